"""What slurmctld's log says about jobs, line by line. Pure.

slurmctld logs before it acts: a job with a line about its submission and none about its start hasn't started. Lines
below level verbose are ignored. One exception: a job that was pending while the log was set to be less detailed
(`scontrol setdebug`, `setdebugflags`). Jobs that the backfill scheduler starts then have no line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

# Numbers are no longer than Slurm's: users can have longer ones logged, and int() rejects those of 4300 digits.
_NUMBER = r"\d{1,10}(?!\d)"
_TASK = rf"(?P<task>{_NUMBER}|\*|\[[^\]\s]*\])"
_JOB = rf"JobId=(?P<job>{_NUMBER})(?:_{_TASK})?(?:\+{_NUMBER})?(?:\((?P<own>{_NUMBER})\))?(?!\S)"
_STAMP = re.compile(r"\[\d{4}-[^\]\s]*\] ")
# What slurmctld puts before its message: level, scheduler, function, debug flag. Text by users, such as the name of a
# partition that doesn't exist, comes after other words, so rules match at the beginning only.
_BEFORE = r"(?:error: )?(?:sched(?:/\w+)?: )?(?:\w*_\w*: )?(?:HETJOB: )?"
_DEBUG = re.compile(r"debug\d?:")
_RECOVERED = re.compile(rf"Recovered {_JOB} Assoc=")
_LEVEL = re.compile(r"Set debug level to '(?P<level>\w+)'")
_UNREACHED = re.compile(r"(?:error: )?agent/is_node_resp: node:(?P<node>\S+) RPC:REQUEST_BATCH_JOB_LAUNCH ")
_FIRST = re.compile(r"([^\[,]+)(?:\[(\d+))?")  # of a list of nodes
_FLAGS = re.compile(r"Set DebugFlags to (?P<flags>\S*)")
_BEGIN = re.compile(r"slurmctld version \S+ started on cluster ")
SETTINGS = ("Set debug level to ", "Set DebugFlags to ", "slurmctld version ")
"""How lines begin that say how detailed the log is from there on."""
TOO_QUIET = frozenset({"quiet", "fatal", "error", "info"})
"""Levels at which slurmctld doesn't log which jobs start, end and are cancelled; the guard never sets them."""
# IDs above this belong to jobs of a federation.
HIGHEST = 0x03FF0000
# How a job ends if the kernel kills it for its memory (SIG_OOM).
_OUT_OF_MEMORY = 253
_SLURM_USER = 401
# What slurmctld logs as the signal of a job that ends without a status.
_NO_STATUS = 126


@dataclass(slots=True)
class Trace:
    """One job, or one task of an array, according to the log."""

    submitted: bool = False
    heterogeneous: bool = False
    """It is part of a heterogeneous job."""
    interactive: bool = False
    started: str = ""
    """The nodes that it runs on or ran on last; empty until it has started."""
    ended: bool = False
    status: int | None = None
    """As from wait(2), if it ended by itself."""
    requeued: bool = False
    unreached: bool = False
    """slurmctld could not send it to its node, and will report its end to itself, perhaps after a requeue."""
    ended_itself: bool = False
    """It was requeued since its script had ended with a status: a run of a crontab, or `RequeueExit`."""
    cancelled: bool = False
    cancel_asked_by: int | None = None
    """The user who asked to cancel it, if the log says neither that this was done nor that it was refused."""
    modified: bool = False
    held: bool | None = None
    unseen: bool = False
    """The log was not detailed enough at some time since its submission: it may have started without a line."""
    finished: bool = False
    """Its node reported the end of its script while slurmctld believed it pending or didn't know it. Slurm does nothing
    then."""
    unknown_ends: int = field(default=0, compare=False, repr=False)
    """How many of the reports of its end are about a job that slurmctld doesn't know, and perhaps a node's."""
    exiting: bool = field(default=False, compare=False, repr=False)
    """The last line was its status; the next one says what slurmctld makes of it."""

    @property
    def ran(self) -> bool:
        """Whether it has started, and Slurm hasn't decided since then to start it again."""
        return bool(self.started or self.ended) and not self.requeued


Name = tuple[int, str]
"""A job ID, or the ID of an array and the task as Slurm writes it (`3`, `[3-4]`)."""


@dataclass
class Evidence:
    """All jobs that the log mentions, by name, and the highest ID that slurmctld gave to one of them."""

    jobs: dict[Name, Trace] = field(default_factory=dict)
    recovered: set[int] = field(default_factory=set)
    """Jobs that a slurmctld found in the state it started from."""
    highest: int = 0
    unseen: bool = False
    """The log was not detailed enough at some time: any job may have started without a line."""
    tasks: dict[int, Name] = field(default_factory=dict)
    """The tasks of arrays that had IDs of their own, by these."""

    def of(self, job: int) -> Trace:
        return self.jobs.get((job, "")) or Trace()

    def count(self, match: re.Match[str]) -> None:
        """Take note of the IDs of a job, or of a task, which has one of its own."""
        ids = (int(number) for number in (match["job"], match["own"]) if number)
        self.highest = max([self.highest, *(number for number in ids if number < HIGHEST)])

    def by_array(self) -> dict[int, dict[str, Trace]]:
        """The tasks that have traces of their own, by array."""
        found: dict[int, dict[str, Trace]] = {}
        for (job, task), trace in self.jobs.items():
            if task:
                found.setdefault(job, {})[task] = trace
        return found


def _submit(trace: Trace, _: re.Match[str]) -> None:
    trace.submitted = True


def _submit_heterogeneous(trace: Trace, _: re.Match[str]) -> None:
    trace.submitted = trace.heterogeneous = True


def _allocate(trace: Trace, match: re.Match[str]) -> None:
    trace.submitted = trace.interactive = True
    if match["nodes"] != "(null)":
        _start(trace, match)


def _start(trace: Trace, match: re.Match[str]) -> None:
    trace.started = match.groupdict().get("nodes") or trace.started or "a node"
    trace.ended = trace.requeued = trace.cancelled = trace.finished = trace.exiting = False
    trace.ended_itself = trace.unreached = False
    trace.status = trace.cancel_asked_by = None
    trace.unknown_ends = 0


def _register(trace: Trace, match: re.Match[str]) -> None:
    """A node runs a job that the next slurmctld believes pending: it has started, unless it is being requeued."""
    if not trace.requeued:
        _start(trace, match)


def _exit(trace: Trace, match: re.Match[str]) -> None:
    number = int(match["number"])
    trace.status = number << 8 if match["how"] == "WEXITSTATUS" else number
    trace.exiting = True


def _run_out_of_memory(trace: Trace, _: re.Match[str]) -> None:
    trace.status, trace.exiting = _OUT_OF_MEMORY, True


def _finish(trace: Trace, _: re.Match[str]) -> None:
    """A node reports the end of a job that is pending for slurmctld, or somebody ends a job without a status."""
    if trace.exiting and trace.status != _NO_STATUS:
        trace.finished, trace.unknown_ends = True, 0
    else:
        trace.cancelled = True
    trace.exiting = False


def _finish_unknown(trace: Trace, _: re.Match[str]) -> None:
    """A node reports the end of a job that slurmctld doesn't know, or only as the one that was put back for it.

    slurmctld itself does, too, of a start that didn't reach its node, where the node's failure has already requeued it.
    Any user can cause this line, but only with the line of `_withdraw` after it.
    """
    if trace.unreached and trace.requeued:
        trace.unreached = False
    elif trace.started and (trace.unknown_ends or not trace.finished):
        trace.finished = True
        trace.unknown_ends += 1


def _withdraw(trace: Trace, _: re.Match[str]) -> None:
    """One of the reports of its end was sent by a command, not by a node."""
    if trace.unknown_ends:
        trace.unknown_ends -= 1
        trace.finished = trace.unknown_ends > 0


def _end(trace: Trace, _: re.Match[str]) -> None:
    trace.ended, trace.exiting = True, False


def _requeue(trace: Trace, _: re.Match[str]) -> None:
    if not trace.requeued:
        trace.ended_itself = trace.ended and trace.status not in (None, _NO_STATUS)
    trace.requeued = True


def _ask(trace: Trace, match: re.Match[str]) -> None:
    trace.cancel_asked_by = int(match["uid"])


def _refuse(trace: Trace, _: re.Match[str]) -> None:
    trace.cancel_asked_by = None


def _signal(trace: Trace, match: re.Match[str]) -> None:
    trace.cancel_asked_by = None
    if match["signal"] == "9":
        trace.cancelled = True
        if match["state"] == "pending":
            trace.requeued = False  # whatever it was put back for before
    if match["state"] != "pending" and not trace.started:
        trace.started = "a node"


def _cancel(trace: Trace, _: re.Match[str]) -> None:
    trace.cancelled = True


def _modify(trace: Trace, _: re.Match[str]) -> None:
    trace.modified = True


def _hold(trace: Trace, _: re.Match[str]) -> None:
    trace.held = True


def _release(trace: Trace, match: re.Match[str]) -> None:
    """Only a pending job can be released, by someone who wants it to start, whatever happened before.

    The guard releases jobs, too. It knows nothing of an end that is reported in the meantime.
    """
    trace.held = False
    if int(match["uid"]) != _SLURM_USER:
        trace.started, trace.ended, trace.requeued, trace.status = "", False, False, None
        trace.finished, trace.exiting, trace.unknown_ends, trace.ended_itself = False, False, 0, False


_RULES: tuple[tuple[re.Pattern[str], Callable[[Trace, re.Match[str]], None]], ...] = tuple(
    (re.compile(_BEFORE + pattern.replace("<job>", _JOB).replace("<int>", _NUMBER)), step)
    for pattern, step in (
        (r"_slurm_rpc_submit_batch_job: <job>", _submit),
        (r"_slurm_rpc_submit_batch_het_job: <job>", _submit_heterogeneous),
        (r"_slurm_rpc_allocate_resources <job> NodeList=(?P<nodes>\S+)", _allocate),
        (r"Allocate <job> NodeList=(?P<nodes>\S+)", _start),
        (r"Started <job> in \S+ on (?P<nodes>\S+)", _start),
        (r"<job> allocated resources: NodeList=(?P<nodes>\S+)", _start),
        (r"Registered PENDING <job> StepId=\S+ on node (?P<nodes>\S+)", _register),
        (r"Configuration for <job> (?:is )?complete", _start),
        (r"_job_complete: <job> (?P<how>WEXITSTATUS|WTERMSIG) (?P<number><int>)", _exit),
        (r"_job_complete: <job> OOM failure", _run_out_of_memory),
        (r"_job_complete: <job> cancelled by interactive user", _finish),
        (r"job_complete: invalid <job>", _finish_unknown),
        (r"_slurm_rpc_complete_job_allocation: <job>(?: SLUID=\S+)? error Invalid job id", _withdraw),
        (r"_job_complete: <job> done", _end),
        (r"(?:Attempting to )?[Rr]equeu(?:e|ing)(?: failed job)? <job>", _requeue),
        (r"<job> starting expedited requeue", _requeue),
        (r"preempted <job> has been requeued", _requeue),
        # Anchored at the end, too: the job is as the user wrote it.
        (r"REQUEST_KILL_JOB <job> uid (?P<uid><int>)$", _ask),
        (r"job_str_signal\(\) uid=<int> <job> sig=<int> returned", _refuse),
        (r"job_signal: (?P<signal><int>) of (?P<state>\w+) <job> successful", _signal),
        (r"Job dependency can't be satisfied, cancelling <job>", _cancel),
        (r"<job> with time_(?:limit|min) <int> exceeded deadline \S+ and cancelled", _cancel),
        (r"_slurm_rpc_update_job: complete <job> uid=", _modify),
        (r"_hold_job_rec: hold on <job> by uid", _hold),
        (r"_release_job_rec: release hold on <job> by uid (?P<uid><int>)", _release),
    )
)
# In these lines a user names a job, which may not exist.
_NAMED_BY_USERS = (_ask, _refuse, _finish_unknown, _withdraw)


@dataclass
class _Settings:
    """How detailed the log is. A slurmctld starts with the guard's configuration, which is detailed enough."""

    level: bool = True
    flags: bool = True

    @property
    def enough(self) -> bool:
        return self.level and self.flags

    def take(self, text: str) -> bool:
        """Whether jobs may have started without a line before this one, or may from now on."""
        if _BEGIN.match(text):
            self.level = self.flags = True
        elif match := _LEVEL.match(text):
            self.level = match["level"] not in TOO_QUIET
            return True  # at `error` the change to that level isn't logged, only the change back
        elif match := _FLAGS.match(text):
            self.flags = "hetjob" in match["flags"].lower().split(",")
            return not self.flags
        return False


def read(lines: Sequence[str], older: int = 0) -> Evidence:
    """What these lines say, the oldest first. Malformed lines are ignored.

    The first `older` lines only say how detailed the log was when the others began.
    """
    found = Evidence()
    settings = _Settings()
    for index, line in enumerate(lines):
        if index == older:
            found.unseen = not settings.enough
        with suppress(ValueError):  # the log contains text by users, which must not keep slurmctld from starting
            if match := _STAMP.match(line):
                _take(line[match.end() :], found, settings)
    if len(lines) <= older:
        found.unseen = not settings.enough
    return found


def _take(text: str, found: Evidence, settings: _Settings) -> None:
    """One line, without its timestamp."""
    if text.startswith(SETTINGS) and settings.take(text):
        found.unseen = True
        for trace in found.jobs.values():
            trace.unseen = True
    if match := _UNREACHED.match(text):
        _lose(match["node"], found)
    if "JobId=" not in text or _DEBUG.match(text):
        return
    for pattern, step in _RULES:
        if match := pattern.match(text):
            # The array's own record stands for its remaining tasks.
            name = int(match["job"]), (match["task"] or "").replace("*", "")
            name = found.tasks.get(name[0], name) if step in (_finish_unknown, _withdraw) else name
            if match["own"]:
                found.tasks[int(match["own"])] = name
            step(found.jobs.setdefault(name, Trace(unseen=not settings.enough)), match)
            if step not in _NAMED_BY_USERS:
                found.count(match)
            break
    if match := _RECOVERED.match(text):
        found.recovered.add(int(match["job"]))
        found.count(match)


def _lose(node: str, found: Evidence) -> None:
    """slurmctld couldn't send a job to this node. Which one isn't said: a script starts on the first of its nodes."""
    for trace in found.jobs.values():
        if (match := _FIRST.match(trace.started)) and match[1] + (match[2] or "") == node:
            trace.unreached = True


def has_launched(lines: Sequence[str]) -> bool:
    """Whether a batch job was started in these lines and may still run."""
    return any(each.started and not each.ended and not each.interactive for each in read(lines).jobs.values())
