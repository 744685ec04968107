"""What slurmctld's log tells about jobs: pure, a line at a time.

slurmctld writes a line before the fact, so a job without a line of its start hasn't started, as long as it has a line
of its submission. Lines of a level below verbose are left alone. That doesn't hold for a job that waited while the log
was set to say less (`scontrol setdebug`, `setdebugflags`): those that the backfill scheduler starts have no line then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

# No number is longer than Slurm's are: users can have longer ones logged, and int() refuses those of 4300 digits.
_NUMBER = r"\d{1,10}(?!\d)"
_TASK = rf"(?P<task>{_NUMBER}|\*|\[[^\]\s]*\])"
_JOB = rf"JobId=(?P<job>{_NUMBER})(?:_{_TASK})?(?:\+{_NUMBER})?(?:\((?P<own>{_NUMBER})\))?(?!\S)"
_STAMP = re.compile(r"\[\d{4}-[^\]\s]*\] ")
# What slurmctld puts before its words: level, scheduler, the function that says it, debug flag. What users write, such
# as the name of a partition that there isn't, comes behind other words: so rules count at the beginning only.
_BEFORE = r"(?:error: )?(?:sched(?:/\w+)?: )?(?:\w*_\w*: )?(?:HETJOB: )?"
_DEBUG = re.compile(r"debug\d?:")
_RECOVERED = re.compile(rf"Recovered {_JOB} Assoc=")
_LEVEL = re.compile(r"Set debug level to '(?P<level>\w+)'")
_FLAGS = re.compile(r"Set DebugFlags to (?P<flags>\S*)")
_BEGIN = re.compile(r"slurmctld version \S+ started on cluster ")
SETTINGS = ("Set debug level to ", "Set DebugFlags to ", "slurmctld version ")
"""How the lines begin that say how much the log tells from there on."""
TOO_QUIET = frozenset({"quiet", "fatal", "error", "info"})
"""Levels at which slurmctld doesn't say which jobs start, end and are cancelled; life.py never sets them."""
# Above are the jobs of a federation.
HIGHEST = 0x03FF0000


@dataclass(slots=True)
class Trace:
    """One job, or one task of an array, as far as the log goes."""

    submitted: bool = False
    together: bool = False
    """It is a part of a heterogeneous job."""
    interactive: bool = False
    started: str = ""
    """Where it runs or ran last, once it has started."""
    ended: bool = False
    status: int | None = None
    """As from wait(2), if it ended by itself."""
    requeued: bool = False
    cancelled: bool = False
    asked: int | None = None
    """Who asked to end it, where the log says neither that it was done nor that it was refused."""
    modified: bool = False
    held: bool | None = None
    unseen: bool = False
    """The log was too quiet at some time since it was submitted: it may have started without a line."""

    @property
    def ran(self) -> bool:
        """Whether it has started, and Slurm hasn't decided since then that it is to start again."""
        return bool(self.started or self.ended) and not self.requeued


Name = tuple[int, str]
"""A job's ID, or that of an array and the task as Slurm writes it (`3`, `[3-4]`)."""


@dataclass
class Evidence:
    """All jobs that a log tells of, by name, and the highest ID that slurmctld gave to one of them."""

    jobs: dict[Name, Trace] = field(default_factory=dict)
    recovered: set[int] = field(default_factory=set)
    """Jobs that a slurmctld found in the state that it started from."""
    highest: int = 0
    unseen: bool = False
    """The log was too quiet at some time: any job may have started without a line."""

    def of(self, job: int) -> Trace:
        return self.jobs.get((job, "")) or Trace()

    def count(self, match: re.Match[str]) -> None:
        """The IDs of a job or a task, which has one of its own."""
        ids = (int(number) for number in (match["job"], match["own"]) if number)
        self.highest = max([self.highest, *(number for number in ids if number < HIGHEST)])

    def by_array(self) -> dict[int, dict[str, Trace]]:
        """The tasks that have traces of their own, by their array."""
        found: dict[int, dict[str, Trace]] = {}
        for (job, task), trace in self.jobs.items():
            if task:
                found.setdefault(job, {})[task] = trace
        return found


def _submit(trace: Trace, _: re.Match[str]) -> None:
    trace.submitted = True


def _submit_together(trace: Trace, _: re.Match[str]) -> None:
    trace.submitted = trace.together = True


def _allocate(trace: Trace, match: re.Match[str]) -> None:
    trace.submitted = trace.interactive = True
    if match["nodes"] != "(null)":
        _start(trace, match)


def _start(trace: Trace, match: re.Match[str]) -> None:
    trace.started = match.groupdict().get("nodes") or trace.started or "a node"
    trace.ended = trace.requeued = trace.cancelled = False
    trace.status = trace.asked = None


def _register(trace: Trace, match: re.Match[str]) -> None:
    """A node runs what the next slurmctld takes for waiting: it has started, unless it is being put back just then."""
    if not trace.requeued:
        _start(trace, match)


def _exit(trace: Trace, match: re.Match[str]) -> None:
    number = int(match["number"])
    trace.status = number << 8 if match["how"] == "WEXITSTATUS" else number


def _end(trace: Trace, _: re.Match[str]) -> None:
    trace.ended = True


def _requeue(trace: Trace, _: re.Match[str]) -> None:
    trace.requeued = True


def _ask(trace: Trace, match: re.Match[str]) -> None:
    trace.asked = int(match["uid"])


def _refuse(trace: Trace, _: re.Match[str]) -> None:
    trace.asked = None


def _signal(trace: Trace, match: re.Match[str]) -> None:
    trace.asked = None
    if match["signal"] == "9":
        trace.cancelled = True
    if match["state"] != "pending" and not trace.started:
        trace.started = "a node"


def _cancel(trace: Trace, _: re.Match[str]) -> None:
    trace.cancelled = True


def _modify(trace: Trace, _: re.Match[str]) -> None:
    trace.modified = True


def _hold(trace: Trace, _: re.Match[str]) -> None:
    trace.held = True


def _release(trace: Trace, _: re.Match[str]) -> None:
    """Only what waits can be released, so whoever did it wants it to start, whatever was before."""
    trace.held = False
    trace.started, trace.ended, trace.requeued, trace.status = "", False, False, None


_RULES: tuple[tuple[re.Pattern[str], Callable[[Trace, re.Match[str]], None]], ...] = tuple(
    (re.compile(_BEFORE + pattern.replace("<job>", _JOB).replace("<int>", _NUMBER)), step)
    for pattern, step in (
        (r"_slurm_rpc_submit_batch_job: <job>", _submit),
        (r"_slurm_rpc_submit_batch_het_job: <job>", _submit_together),
        (r"_slurm_rpc_allocate_resources <job> NodeList=(?P<nodes>\S+)", _allocate),
        (r"Allocate <job> NodeList=(?P<nodes>\S+)", _start),
        (r"Started <job> in \S+ on (?P<nodes>\S+)", _start),
        (r"<job> allocated resources: NodeList=(?P<nodes>\S+)", _start),
        (r"Registered PENDING <job> StepId=\S+ on node (?P<nodes>\S+)", _register),
        (r"Configuration for <job> (?:is )?complete", _start),
        (r"_job_complete: <job> (?P<how>WEXITSTATUS|WTERMSIG) (?P<number><int>)", _exit),
        (r"_job_complete: <job> cancelled by interactive user", _cancel),
        (r"_job_complete: <job> done", _end),
        (r"(?:Attempting to )?[Rr]equeu(?:e|ing)(?: failed job)? <job>", _requeue),
        (r"<job> starting expedited requeue", _requeue),
        (r"preempted <job> has been requeued", _requeue),
        # At its end, too: the job is as the user wrote it.
        (r"REQUEST_KILL_JOB <job> uid (?P<uid><int>)$", _ask),
        (r"job_str_signal\(\) uid=<int> <job> sig=<int> returned", _refuse),
        (r"job_signal: (?P<signal><int>) of (?P<state>\w+) <job> successful", _signal),
        (r"Job dependency can't be satisfied, cancelling <job>", _cancel),
        (r"<job> with time_(?:limit|min) <int> exceeded deadline \S+ and cancelled", _cancel),
        (r"_slurm_rpc_update_job: complete <job> uid=", _modify),
        (r"_hold_job_rec: hold on <job> by uid", _hold),
        (r"_release_job_rec: release hold on <job> by uid", _release),
    )
)


@dataclass
class _Settings:
    """What the log tells of; a slurmctld that starts has what the guard's configuration says, which is enough."""

    level: bool = True
    flags: bool = True

    @property
    def enough(self) -> bool:
        return self.level and self.flags

    def take(self, text: str) -> bool:
        """Whether jobs may have started unseen before that line, or may from now on."""
        if _BEGIN.match(text):
            self.level = self.flags = True
        elif match := _LEVEL.match(text):
            self.level = match["level"] not in TOO_QUIET
            return True  # at `error` it doesn't say that it is set to that, only that it is set back
        elif match := _FLAGS.match(text):
            self.flags = "hetjob" in match["flags"].lower().split(",")
            return not self.flags
        return False


def read(lines: Sequence[str], older: int = 0) -> Evidence:
    """What these lines tell, the oldest first. Lines that make no sense tell nothing.

    The first `older` only say how much the log told when the others began.
    """
    found = Evidence()
    settings = _Settings()
    for index, line in enumerate(lines):
        if index == older:
            found.unseen = not settings.enough
        with suppress(ValueError):  # what users write is logged, and may keep no slurmctld from starting
            if match := _STAMP.match(line):
                _take(line[match.end() :], found, settings)
    if len(lines) <= older:
        found.unseen = not settings.enough
    return found


def _take(text: str, found: Evidence, settings: _Settings) -> None:
    """One line, without its time."""
    if text.startswith(SETTINGS) and settings.take(text):
        found.unseen = True
        for trace in found.jobs.values():
            trace.unseen = True
    if "JobId=" not in text or _DEBUG.match(text):
        return
    for pattern, step in _RULES:
        if match := pattern.match(text):
            # The array's own record is what is left of it.
            name = int(match["job"]), (match["task"] or "").replace("*", "")
            step(found.jobs.setdefault(name, Trace(unseen=not settings.enough)), match)
            if step not in (_ask, _refuse):  # there a user names a job, whether there is such a one or not
                found.count(match)
            break
    if match := _RECOVERED.match(text):
        found.recovered.add(int(match["job"]))
        found.count(match)
