"""`python3 -m seltzer.guard.recovery.complete 1234:256 …` tells slurmctld that these jobs have ended with this status.

Slurm has no command for that, but its library can do it. This is a process of its own, since a library that isn't as
expected may crash it. The structure is that of Slurm 26.05; the caller has checked the version.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

LIBRARY = "*/slurm*/libslurmfull.so"
NONE = 0xFFFFFFFE


class StepId(ctypes.Structure):
    """slurm_step_id_t."""

    _fields_ = (
        ("sluid", ctypes.c_uint64),
        ("job_id", ctypes.c_uint32),
        ("step_het_comp", ctypes.c_uint32),
        ("step_id", ctypes.c_uint32),
    )


def main(words: list[str]) -> int:
    found = sorted(Path("/usr/lib").glob(LIBRARY))
    if not found:
        print("libslurmfull.so is missing", file=sys.stderr)
        return 1
    library = ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)
    library.slurm_init(None)
    failed = 0
    for word in words:
        job, _, status = word.partition(":")
        step = StepId(0, int(job), NONE, NONE)
        failed += bool(library.slurm_complete_job(ctypes.byref(step), ctypes.c_uint32(int(status))))
    if failed:
        print(f"slurmctld refused {failed} of {len(words)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
