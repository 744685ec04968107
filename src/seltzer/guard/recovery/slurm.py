"""Queries and commands for slurmctld about jobs, by Slurm's own commands beside it. Every call has a deadline."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places
from seltzer.guard.slurmctld.config import LOCAL, REST
from seltzer.guard.slurmctld.output import bare
from seltzer.wire import squeue
from seltzer.wire.squeue import PendingJob, QueueEntry, SqueueError

API = "v0.0.45"
NODE_THREADS = re.compile(r"^Agent thread count: *([0-9]+)$", re.MULTILINE)
"""sdiag's count of the threads that talk to nodes."""
DUPLICATE = 2011
RESTART_DELAY = 600
"""A requeued job starts again after this many seconds, unless the guard lets it start sooner."""
_JOB_REQUEUE = re.compile(r"^[ \t]*JobRequeue[ \t]*=[ \t]*\"?(\w+)", re.IGNORECASE | re.MULTILINE)
_AT_ONCE = 200
_ANSWER = 1 << 20
_FOR_QUEUE = 2.0


class SlurmError(Exception):
    """slurmctld can't be reached, or refuses."""

    def __init__(self, words: str, number: int = 0, *, unasked: bool = False) -> None:
        super().__init__(words)
        self.number = number
        self.unasked = unasked
        """Whether the request never reached slurmctld."""

    @property
    def refused(self) -> bool:
        """Whether slurmctld itself refused. If not, a request that was sent may or may not have been carried out."""
        return 2000 <= self.number < 3000


class Cancelled(Exception):
    """The call was cancelled."""


class SlurmCommands:
    """Every call ends by `deadline`, a time.monotonic, or raises SlurmError. After `cancel` they raise Cancelled."""

    def __init__(self, places: Places, processes: Processes, deadline: float) -> None:
        self._places = places
        self._processes = processes
        self._deadline = deadline
        self._for_queue = min(_FOR_QUEUE, (deadline - time.monotonic()) / 4)
        self._env = {"SLURM_CONF": str(places.etc / LOCAL)}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._over = threading.Event()

    def cancel(self) -> None:
        """From any thread. Ends the commands that are running."""
        self._over.set()
        for process in list(self._running):
            with suppress(OSError):
                process.kill()

    def queue(self) -> list[QueueEntry]:
        """All jobs that slurmctld knows, one entry for each task of an array."""
        return squeue.parse_queue(self._run([self._places.squeue, *squeue.QUEUE]))

    def pending(self) -> dict[int, PendingJob]:
        """All pending jobs by their own IDs. Tasks of an array that nothing has happened to share the array's."""
        try:
            return {job.id: job for job in squeue.parse_pending(self._run([self._places.squeue, *squeue.PENDING]))}
        except SqueueError as error:
            raise SlurmError(str(error)) from error

    def has_silent_nodes(self) -> bool:
        """Whether any node doesn't respond to slurmctld."""
        return bool(self._run([*self._sinfo(), "--dead"]).strip())

    def silent_nodes(self, hostlist: str) -> set[str]:
        """Which of these nodes don't respond to slurmctld, or aren't known to it: sinfo leaves those out."""
        names = self._run([self._places.scontrol, "show", "hostnames", hostlist]).split()
        if not names:  # scontrol ends well
            raise SlurmError(f"not a list of nodes: {bare(hostlist)}")
        responding = self._run([*self._sinfo(), "--Node", "--responding", f"--nodes={hostlist}"]).split()
        return set(names).difference(responding)

    def _sinfo(self) -> list[str]:
        return [self._places.sinfo, "--noheader", "--all", "--format=%N"]

    def requeues_by_default(self) -> bool:
        """Whether a job may be requeued by default."""
        try:
            said = _JOB_REQUEUE.findall((self._places.etc / LOCAL).read_text(errors="replace"))
        except OSError:
            return False
        return not said or said[-1] == "1"

    def delay(self, names: Sequence[str]) -> None:
        """Start these pending jobs no sooner than after RESTART_DELAY. Gives each task its own record."""
        self._update(names, f"StartTime=now+{RESTART_DELAY}")

    def start_now(self, names: Sequence[str]) -> None:
        """Remove the start time of these pending jobs."""
        self._update(names, "StartTime=now")

    def _update(self, names: Sequence[str], change: str) -> None:
        _in_parts(names, lambda part: self._run([self._places.scontrol, "update", f"JobId={','.join(part)}", change]))

    def requeue(self, jobs: Collection[int]) -> None:
        """Have slurmctld treat these pending batch jobs as requeued: their restart counts grow.

        Jobs that may not be requeued stay as they are. Raises SlurmError if this Slurm can't do that; `pending` says
        what became of each job.
        """
        self._require_known_version("only Slurm 26.05 requeues a pending job")
        module = "seltzer.guard.recovery.requeue"
        _in_parts(map(str, jobs), lambda part: self._run([sys.executable, "-m", module, *part]))

    def hold(self, names: Sequence[str], why: str) -> None:
        """As a user hold, so that their owners can release them."""

        def hold(part: list[str]) -> None:
            try:
                self._run([self._places.scontrol, "uhold", ",".join(part)])
            finally:  # a refused job doesn't prevent the others from being held, and they need their reason
                with suppress(SlurmError):  # they are held, which is what matters
                    self._update(part, f"AdminComment={why}")

        _in_parts(names, hold)

    def release(self, names: Sequence[str]) -> None:
        _in_parts(names, lambda part: self._run([self._places.scontrol, "release", ",".join(part)]))

    def cancel_jobs(self, names: Sequence[str]) -> None:
        _in_parts(names, lambda part: self._run([self._places.scancel, *part]))

    def complete(self, statuses: dict[int, int]) -> None:
        """Tell slurmctld that these jobs have ended, and how. Raises SlurmError if this Slurm can't do that."""
        self._require_known_version("only Slurm 26.05 lets a job be completed with its status")
        module = "seltzer.guard.recovery.complete"
        words = [f"{job}:{status}" for job, status in statuses.items()]
        _in_parts(words, lambda part: self._run([sys.executable, "-m", module, *part]))

    def _require_known_version(self, otherwise: str) -> None:
        """The library's structures are those of 26.05."""
        if "26.05." not in self._run([*self._places.slurmctld, "-V"]):
            raise SlurmError(otherwise)

    def node_threads(self) -> int:
        """How many threads of slurmctld currently talk to nodes, or try to."""
        said = self._run([self._places.sdiag])
        found = NODE_THREADS.search(said)
        if found is None:
            raise SlurmError(f"{self._places.sdiag} doesn't say how many threads talk to nodes")
        return int(found[1])

    def set_partition(self, name: str, state: str) -> None:
        self._run([self._places.scontrol, "update", f"PartitionName={name}", f"State={state}"])

    def never_requeue(self, names: Sequence[str]) -> None:
        self._update(names, "Requeue=0")

    def save_crontab_again(self, user: int) -> None:
        """slurmctld cancels the pending jobs of the user's crontab, and creates one for each line."""
        command = [self._places.scrontab, "-u", str(user)]
        with tempfile.NamedTemporaryFile(prefix="crontab.") as file:
            file.write(self._output([*command, "-l"]))
            file.flush()
            self._run([*command, file.name])

    def _run(self, argv: Sequence[str]) -> str:
        return self._output(argv).decode(errors="replace")

    def _output(self, argv: Sequence[str]) -> bytes:
        process = self._start(argv, stdin=False)
        try:
            printed, complaint = process.communicate(timeout=self.left())
        except subprocess.TimeoutExpired:
            raise SlurmError(f"{argv[0]} did not end in time") from None
        finally:
            if process.returncode is None:
                self.end(process)
            self._running.discard(process)
        if process.returncode:
            self.pause(0)
            words = "; ".join(map(bare, complaint.decode(errors="replace").splitlines()))
            raise SlurmError(f"{argv[0]}: {words[:300] or f'code {process.returncode}'}")
        return printed

    def _start(self, argv: Sequence[str], *, stdin: bool, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        self.left()
        try:
            process = self._processes.start(
                argv,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if not stdin else subprocess.DEVNULL,
                env=env or self._env,
            )
        except OSError as error:
            raise SlurmError(f"{argv[0]} can't be run: {error}", unasked=True) from error
        self._running.add(process)
        return process

    def left(self) -> float:
        """How many seconds are left."""
        return self._left(0)

    def left_to_submit(self) -> float:
        """The same, less the time to check in the queue what became of a submission without an answer."""
        return self._left(self._for_queue)

    def _left(self, but: float) -> float:
        self.pause(0)
        left = self._deadline - but - time.monotonic()
        if left <= 0:
            raise SlurmError("there was no time left", unasked=True)
        return left

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the deadline."""
        if self._over.wait(max(0.0, min(seconds, self._deadline - time.monotonic()))):
            raise Cancelled

    def rest(self) -> Rest:
        return Rest(self)

    def start_rest(self) -> subprocess.Popen[bytes]:
        """A slurmrestd on standard input and output, for this process only.

        It refuses to run as SlurmUser, which the guard has to be. Its slurm.conf therefore names another user.
        """
        conf = str(self._places.etc / REST)
        env = {"SLURM_CONF": conf, "SLURMRESTD_SECURITY": "disable_unshare_sysv,disable_unshare_files"}
        argv = [self._places.slurmrestd, "-f", conf, "-a", "rest_auth/local", "-s", "slurmctld", "-d", API]
        return self._start(argv, stdin=True, env=env)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        self._running.discard(process)


class Rest:
    """slurmrestd, started on demand. It closes its connection with every error that it returns."""

    def __init__(self, slurm: SlurmCommands) -> None:
        self._slurm = slurm
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def submit(self, job: dict[str, Any], script: str) -> None:
        """Submit a job under its own ID. Raises SlurmError if it isn't queued then; DUPLICATE if the ID is taken."""
        body = json.dumps({"script": script, "job": job}).encode()
        answer = self._call(body)
        errors = answer.get("errors") or []
        if errors:
            first = errors[0] if isinstance(errors[0], dict) else {}
            words = first.get("error") or first.get("description") or "unknown error"
            raise SlurmError(str(words), _number(first.get("error_number")))
        if answer.get("job_id") != job["job_id"]:
            raise SlurmError(f"slurmctld accepted it as job {answer.get('job_id')}")

    def close(self) -> None:
        if self._process:
            self._slurm.end(self._process)
            self._process = None
        self._rest = b""

    def _call(self, body: bytes) -> dict[str, Any]:
        head = (
            f"POST /slurm/{API}/job/submit HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._slurm.left_to_submit()
        if not self._process or self._process.poll() is not None:
            self.close()
            self._process = self._slurm.start_rest()
        try:
            self._send(head.encode() + body)
            status, answer = self._receive()
            found = json.loads(answer)
        except (OSError, ValueError, SlurmError) as error:
            self.close()
            self._slurm.pause(0)
            raise SlurmError(f"slurmrestd gave no answer: {error}") from error
        if status != 200:
            self.close()
        if not isinstance(found, dict):
            raise SlurmError("slurmrestd's answer is not an object")
        return found

    def _send(self, data: bytes) -> None:
        assert self._process and self._process.stdin
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        while data:
            if not self._wait(pipe, select.POLLOUT):
                raise OSError("it doesn't read its input")
            data = data[os.write(pipe, data[:65536]) :]

    def _wait(self, pipe: int, event: int) -> bool:
        """Whether the event comes in time."""
        poll = select.poll()  # not select(): it can't handle descriptors of 1,024 and above, and probes use that many
        poll.register(pipe, event)
        return bool(poll.poll(self._slurm.left_to_submit() * 1000))

    def _receive(self) -> tuple[int, bytes]:
        """Status and body of one response."""
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *fields = head.split(b"\r\n")
        lengths = [int(line.partition(b":")[2]) for line in fields if line.lower().startswith(b"content-length:")]
        length = lengths[0] if lengths else 0
        while len(self._rest) < length:
            self._more()
        body, self._rest = self._rest[:length], self._rest[length:]
        return int(first.split()[1]), body

    def _more(self) -> None:
        assert self._process and self._process.stdout
        pipe = self._process.stdout.fileno()
        if not self._wait(pipe, select.POLLIN):
            raise OSError("it doesn't answer")
        data = os.read(pipe, 65536)
        if not data or len(self._rest) > _ANSWER:
            raise OSError("it has ended")
        self._rest += data


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _in_parts(names: Iterable[str], command: Callable[[list[str]], object]) -> None:
    """Run it for all of them, even if a part is refused. The first error is raised at the end."""
    todo = list(names)
    first: SlurmError | None = None
    for index in range(0, len(todo), _AT_ONCE):
        try:
            command(todo[index : index + _AT_ONCE])
        except SlurmError as error:
            first = first or error
    if first:
        raise first
