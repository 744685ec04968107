"""`python3 -m seltzer.guard.recovery.requeue 1234 …` has slurmctld treat pending batch jobs as requeued.

Slurm has no command for that: `scontrol requeue` refuses pending jobs. slurmctld does it when a node reports that it
could not run the script of a job, which is the message that is sent here. It names no node, so none is drained. A job
that may not be requeued stays as it is. The answer is an error in any case, since there is no such node.

This is a process of its own, since a library that isn't as expected may crash it. The structures are those of Slurm
26.05; the caller has checked the version.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from seltzer.guard.recovery.complete import LIBRARY, NONE, StepId

_TYPE = 5018
_NAME = b"REQUEST_COMPLETE_BATCH_SCRIPT"
_MESSAGE_SIZE = 1 << 10  # larger than slurm_msg_t
_DATA, _MESSAGE_TYPE = 0xC0, 0xE2  # in slurm_msg_t
_FAILED = 0xFFFFFFFF  # SLURM_ERROR
_BATCH = 0xFFFFFFFB  # SLURM_BATCH_SCRIPT
# Neither an exit code nor a signal: slurmctld logs no status.
_NO_STATUS = 0x7F


class BatchEnd(ctypes.Structure):
    """complete_batch_script_msg_t."""

    _fields_ = (
        ("jobacct", ctypes.c_void_p),
        ("job_rc", ctypes.c_uint32),
        ("slurm_rc", ctypes.c_uint32),
        ("step_id", StepId),
        ("node_name", ctypes.c_char_p),
        ("user_id", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


def main(words: list[str]) -> int:
    found = sorted(Path("/usr/lib").glob(LIBRARY))
    if not found:
        print("libslurmfull.so is missing", file=sys.stderr)
        return 1
    library = ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)
    library.rpc_num2string.restype = ctypes.c_char_p
    if library.rpc_num2string(ctypes.c_uint16(_TYPE)) != _NAME:
        print(f"message {_TYPE} of this Slurm is another one", file=sys.stderr)
        return 1
    library.slurm_init(None)
    unanswered = sum(not _report_failure(library, int(word)) for word in words)
    if unanswered:
        print(f"slurmctld answered {unanswered} of {len(words)} requests not at all", file=sys.stderr)
    return 1 if unanswered else 0


def _report_failure(library: ctypes.CDLL, job: int) -> bool:
    """Whether slurmctld answered."""
    end = BatchEnd(None, _NO_STATUS, _FAILED, StepId(0, job, NONE, _BATCH), None, 0, 0)
    message = ctypes.create_string_buffer(_MESSAGE_SIZE)
    library.slurm_msg_t_init(message)
    ctypes.c_void_p.from_buffer(message, _DATA).value = ctypes.addressof(end)
    ctypes.c_uint16.from_buffer(message, _MESSAGE_TYPE).value = _TYPE
    answer = ctypes.c_int(0)
    return bool(library.slurm_send_recv_controller_rc_msg(message, ctypes.byref(answer), None) == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
