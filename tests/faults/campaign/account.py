"""What became of every job that was acknowledged. Pure: ledger, evidence and queue in, fates out.

A job is known by its key, which is its name in Slurm: an ID could be given away twice, and a key can't. The ledger has
what `sbatch` acknowledged; the evidence is what the jobs themselves wrote when they started and ended, on a volume that
no fault touches; the queue is what slurmctld says afterwards.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

_ALIVE = frozenset({"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD"})
# For `squeue --Format`; what stands behind a colon is printed behind the field.
QUEUE_FORMAT = ",".join(f"{field}:|" for field in ("JobID", "Name", "State", "Reason", "StartTime", "RestartCnt"))
_TELLING = 10.0  # how long a busy node may take to tell slurmctld that a job has ended
GHOSTLY = 40.0
"""After so many seconds at most, slurmctld should have noticed that a job doesn't run: its node reports the end again
after 15 s, and otherwise all nodes register again 20 s after a repair. The next crash begins that anew."""
# What slurmctld logs when it has a node end a job that it believes to wait: a requeued one, whose first run it forgot.
_ENDED = re.compile(r"^\[(\S+)\] error: Registered PENDING JobId=(\d+) ", re.MULTILINE)
_ENDING = (1.0, 2.0)  # a run that ends so long before, or after, ends unheard: its slurmstepd is about to be killed
_HELD = frozenset({"JobHeldAdmin", "JobHeldUser", "launch_failed_requeued_held"})


class Fate(enum.Enum):
    """What became of a job, as far as can be told now."""

    QUEUED = "in the queue"
    RAN = "has run to its end"
    HELD = "held in the queue for a person"
    KILLED = "started, and was killed on the way"
    FAILED = "ended with its node, as it was submitted to; Slurm says so"
    KEPT = "named, with its script on the state volume"
    LOST = "lost"


@dataclass(frozen=True)
class Ack:
    """A submission that sbatch said yes to: when it was begun, when it was answered, and with which ID."""

    key: str
    job: str
    begun: float
    answered: float
    requeue: bool = True
    """Whether Slurm may put it back and start it again when its node fails: not so after sbatch --no-requeue."""


@dataclass(frozen=True)
class Run:
    """A line that a job wrote when it started or ended; `restarts` is how often Slurm says that it put it back."""

    time: float
    what: str
    key: str
    job: str
    restarts: int
    node: str = ""


@dataclass(frozen=True)
class Away:
    """A Kubernetes node that nobody could reach, with Slurm's nodes on it: since when, and until when."""

    machine: str
    nodes: frozenset[str]
    since: float
    until: float = math.inf

    def overlaps(self, begun: float, ended: float) -> bool:
        return self.since <= ended and begun < self.until

    def hides(self, end: Run) -> bool:
        """Whether slurmctld can't have heard that a job ended there, or heard of it only after it had given it up."""
        return end.node in self.nodes and self.overlaps(end.time - _TELLING, end.time + _TELLING)


@dataclass(frozen=True)
class Ended:
    """When slurmctld had a node end a job."""

    job: str
    time: float

    def hides(self, end: Run) -> bool:
        """Whether the job wrote its end so close to its killing that slurmctld wasn't told."""
        before, after = _ENDING
        return end.job == self.job and self.time - before <= end.time <= self.time + after


@dataclass(frozen=True)
class Queued:
    """A job as squeue shows it, those that have ended included."""

    key: str
    job: str
    state: str
    reason: str
    since: float = 0.0
    """When it was started, as far as slurmctld knows."""
    restarts: int = 0
    """How often Slurm has put it back."""

    @property
    def alive(self) -> bool:
        return self.state in _ALIVE

    @property
    def held(self) -> bool:
        return self.alive and (self.reason in _HELD or self.state == "REQUEUE_HOLD")


def read_runs(text: str) -> list[Run]:
    """The lines of the jobs; a line that is still being written is left for the next time."""
    runs = []
    for line in text.splitlines(keepends=True):
        words = line.split()
        if line.endswith("\n") and len(words) in (5, 6) and words[1] in ("start", "end"):
            runs.append(Run(float(words[0]), words[1], words[2], words[3], int(words[4]), *words[5:]))
    return runs


def read_queue(text: str) -> dict[str, Queued]:
    """What squeue prints in `QUEUE_FORMAT`, by key. Of two with one key the living one counts."""
    found: dict[str, Queued] = {}
    for line in text.splitlines():
        job, key, state, reason, since, restarts = [*line.split("|"), "", "", "", "", ""][:6]
        one = Queued(key, job, state, reason, _seconds(since), int(restarts or 0))
        if key not in found or one.alive:
            found[key] = one
    return found


def read_ended(log: str) -> list[Ended]:
    """What slurmctld's log says about runs that it had forgotten."""
    return [Ended(job, _seconds(at)) for at, job in _ENDED.findall(log)]


def _seconds(said: str) -> float:
    """A time as Slurm prints it in a pod, which is in UTC; N/A is 0."""
    try:
        return datetime.fromisoformat(f"{said}+00:00").timestamp()
    except ValueError:
        return 0.0


def fates(
    acks: Iterable[Ack], runs: Sequence[Run], queue: Mapping[str, Queued], named: Mapping[str, str]
) -> dict[str, Fate]:
    """The fate of each acknowledged job; `named` has the outcomes that the guard told, by the jobs' IDs."""
    started = {run.key for run in runs if run.what == "start"}
    ended = {run.key for run in runs if run.what == "end"}
    return {ack.key: _fate(ack, queue.get(ack.key), ack.key in started, ack.key in ended, named) for ack in acks}


def _fate(ack: Ack, queued: Queued | None, started: bool, ended: bool, named: Mapping[str, str]) -> Fate:
    if queued and queued.held:
        return Fate.HELD
    # One that has ended and waits again is on its way to run twice; one that has ended and "runs" is a ghost.
    if queued and queued.alive and not (ended and queued.state != "PENDING"):
        return Fate.QUEUED
    if queued and queued.state == "NODE_FAIL" and not ack.requeue:
        return Fate.FAILED
    if ended:
        return Fate.RAN
    if started:
        return Fate.KILLED
    # Its record may have been purged since, but somebody was told of it.
    return {"kept": Fate.KEPT, "held": Fate.HELD}.get(named.get(ack.job, ""), Fate.LOST)


def ghosts(runs: Iterable[Run], queue: Mapping[str, Queued], now: float, longer: float) -> list[Queued]:
    """The jobs that run for slurmctld only, for longer than these seconds: they have ended, or never began."""
    last = {run.key: run for run in sorted(runs, key=lambda run: run.time)}
    running = [one for one in queue.values() if one.state == "RUNNING" and 0 < one.since < now - longer]
    return [one for one in running if one.key not in last or _ended(last[one.key], now - longer)]


def _ended(run: Run, before: float) -> bool:
    return run.what == "end" and run.time < before


def reused(acks: Iterable[Ack]) -> str:
    """Which ID was given to two jobs, if any was."""
    owners: dict[str, str] = {}
    for ack in acks:
        if (first := owners.setdefault(ack.job, ack.key)) != ack.key:
            return f"ID {ack.job} was given to {first} and to {ack.key}"
    return ""


def twice(runs: Iterable[Run], once: Container[str] = (), unheard: Sequence[Away | Ended] = ()) -> set[str]:
    """The jobs that were run twice.

    A second start counts, under the same ID or another, unless Slurm itself put the job back after a fault had killed
    it: then the run before has no end, or one of which slurmctld can't have heard, and the job's restart count has
    grown. A job of `once` was submitted not to be put back: for it every second start counts.
    """
    lives: dict[str, list[Run]] = {}
    ends: set[tuple[str, str, int]] = set()
    for run in sorted(runs, key=lambda run: run.time):
        if run.what == "start":
            lives.setdefault(run.key, []).append(run)
        elif not any(each.hides(run) for each in unheard):
            ends.add((run.key, run.job, run.restarts))

    def doubled(before: Run, after: Run) -> bool:
        ended = (before.key, before.job, before.restarts) in ends
        return ended or before.job != after.job or after.restarts <= before.restarts or before.key in once

    return {key for key, starts in lives.items() if any(doubled(*pair) for pair in pairwise(starts))}


def requeued(runs: Iterable[Run], queue: Mapping[str, Queued]) -> set[str]:
    """The jobs that Slurm has put back: they wait, or were started again."""
    again = {run.key for run in runs if run.what == "start" and run.restarts > 0}
    return again | {key for key, one in queue.items() if one.alive and one.restarts > 0}
