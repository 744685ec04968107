"""squeue: its arguments, and what it prints, for each question that is asked with it.

| question | runs | reads |
|---|---|---|
| jobs on some nodes | the guard's HTTP server | the operator |
| nodes that pending jobs ask for by name | the guard's HTTP server | the operator |
| all jobs, with what a repair needs to know | the guard | the guard |
| all pending jobs, with whether and how often they were requeued | the guard | the guard |
| all jobs, with what people want to see | the CLI, in slurmctld's pod | the CLI |

Over REST a list of 28,000 jobs takes a minute; squeue takes 0.7 s for the same, and less for a few.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from seltzer.wire import job_ids

# Names and reasons may hold any other byte, blanks and bars included.
_SEPARATOR = "\x1f"
_ON_NODES = ("JobArrayID", "UserName", "State", "Partition", "NodeList", "TimeLeft", "Requeue", "Reason")
_HOLDS_NODES = "RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED"
_FOR_REPAIR = "%F|%K|%A|%T|%U|%Q"
_FOR_REQUEUE = ("JobID", "Requeue", "RestartCnt", "BatchFlag", "HetJobID", "CronJob", "Dependency")
_FOR_PEOPLE = (
    "JobArrayID",
    "JobID",
    "UserName",
    "Name",
    "State",
    "Reason",
    "Partition",
    "NodeList",
    "ReqNodes",
    "StartTime",
    "EndTime",
    "SubmitTime",
    "EligibleTime",
    "TimeLimit",
    "Requeue",
    "NumCPUs",
    "NumNodes",
    "Feature",
    "Dependency",
    "PriorityLong",
    "admin_comment",
)
_DIGITS = re.compile(r"\d+")
_DURATION = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")

Fields = Mapping[str, str]
"""One job: squeue's fields by their names."""


class SqueueError(ValueError):
    """The text isn't an answer to the question. It may be cut off, or an error message."""


@dataclass(frozen=True)
class QueueEntry:
    """A job or a task of an array, with what a repair needs to know of it."""

    job: int
    task: str
    id: int
    state: str
    user: int
    held: bool

    @property
    def name(self) -> str:
        """In Slurm's commands."""
        return f"{self.job}_{self.task}" if self.task else str(self.job)


@dataclass(frozen=True)
class PendingJob:
    """A pending job or task of an array, with what a requeue needs to know."""

    id: int
    may_requeue: bool
    """It is a batch job on its own, and Slurm may start it again."""
    restarts: int
    awaits: frozenset[int]
    """Jobs that it depends on."""
    from_crontab: bool = False


def jobs_on_nodes(hostlist: str) -> list[str]:
    """Arguments that list the jobs on these nodes, whatever they do there. `parse_jobs` reads the output."""
    if not hostlist:
        raise ValueError("name at least one node: without one squeue would list all jobs")
    format_ = _format(_ON_NODES, _SEPARATOR)
    return ["--noheader", "--noconvert", format_, f"--nodelist={hostlist}", f"--states={_HOLDS_NODES}"]


def parse_jobs(output: str) -> list[Fields]:
    """The jobs, one per line. Raises SqueueError if any line isn't one: half a list is no list."""
    return [_job(line) for line in output.splitlines() if line]


def _job(line: str) -> Fields:
    values = [value.strip() for value in line.split(_SEPARATOR)]
    if len(values) != len(_ON_NODES) + 1 or not job_ids.is_id(values[0]):
        raise SqueueError(f"squeue printed a line that makes no sense: {line[:200]!r}")
    return dict(zip(_ON_NODES, values[:-1], strict=True))


NAMED_NODES: Final = ("--noheader", "--states=PENDING", "--Format=ReqNodes:\n")
"""Arguments that list the nodes that pending jobs ask for by name. `parse_named` reads the output."""


def parse_named(output: str) -> list[str]:
    """Hostlists, each once. Most pending jobs name no node, and their lines are empty."""
    return sorted({line.strip() for line in output.splitlines() if line.strip()})


QUEUE: Final = ("--noheader", "--all", "--array", "--states=all", f"--format={_FOR_REPAIR}")
"""Arguments that list all jobs for a repair, one line for each task of an array. `parse_queue` reads the output."""


def parse_queue(output: str) -> list[QueueEntry]:
    """The jobs. Malformed lines are ignored."""
    return [found for line in output.splitlines() if (found := _listed(line))]


def _listed(line: str) -> QueueEntry | None:
    try:
        job, task, own, state, user, priority = line.strip().split("|")
        return QueueEntry(
            int(job), "" if task == "N/A" else task, int(own), state, int(user), held=int(float(priority)) == 0
        )
    except ValueError:
        return None


PENDING: Final = (
    *("--noheader", "--all", "--array", "--states=PENDING"),
    "--Format=" + ",".join(f"{name}:{_SEPARATOR}" for name in _FOR_REQUEUE),
)
"""Arguments that list all pending jobs and tasks of arrays for a requeue. `parse_pending` reads the output."""


def parse_pending(output: str) -> list[PendingJob]:
    """The pending jobs. Raises SqueueError if any line isn't one: a job may depend on another one."""
    return [_pending(line) for line in output.splitlines() if line.strip()]


def _pending(line: str) -> PendingJob:
    try:
        job, requeue, restarts, batch, het, cron, dependency, _ = [value.strip() for value in line.split(_SEPARATOR)]
        alone = het in ("", "0", "N/A")
        awaits = frozenset(map(int, _DIGITS.findall(dependency)))
        may_requeue = requeue == "1" and batch != "0" and alone
        return PendingJob(int(job), may_requeue, int(restarts), awaits, from_crontab=cron == "Yes")
    except ValueError:
        raise SqueueError(f"squeue printed a line that makes no sense: {line[:200]!r}") from None


def snapshot(separator: str, *, ended: bool) -> list[str]:
    """Arguments that list all jobs for people, with `separator` behind each field. `parse_snapshot` reads the output.

    A job's name may hold any byte, line ends included: nobody may be able to guess the separator.
    """
    return ["--noheader", "--all", _format(_FOR_PEOPLE, separator), *(("--states=all",) if ended else ())]


def parse_snapshot(values: Sequence[str]) -> list[Fields]:
    """The jobs, from the output split at the separator, without what follows the last one.

    Raises SqueueError if a field is missing.
    """
    count = len(_FOR_PEOPLE)
    if len(values) % count:
        raise SqueueError("what Slurm's commands printed was cut off")
    # The line's end is in front of the first field of the next job.
    jobs = [[value.strip() for value in values[at : at + count]] for at in range(0, len(values), count)]
    for job in jobs:
        if not job_ids.is_id(job[0]):
            raise SqueueError(f"squeue printed a job that makes no sense: {job[0][:200]!r}")
    return [dict(zip(_FOR_PEOPLE, job, strict=True)) for job in jobs]


def seconds(text: str) -> int | None:
    """A duration: `1-02:03:04`, `02:03:04` or `03:04`. None for UNLIMITED, INVALID and NOT_SET."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _format(fields: Sequence[str], separator: str) -> str:
    # What follows a field's colon is printed behind its value, and the field is as wide as the value.
    return "--Format=" + ",".join(f"{name}:{separator}" for name in fields)
