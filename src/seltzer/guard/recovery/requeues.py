"""Requeues jobs that a crash has ended, as Slurm does when their node fails: their restart counts grow.

A requeued job doesn't start at once, since its first run may still be there: slurmctld ends that when its node
registers, and after that `settle` lets the job start. `seltzer.requeued` beside slurmctld's state names the jobs that
aren't settled yet, whatever guard comes next. If none comes, they start after RESTART_DELAY.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.recovery.common import Controller, RepairReport
from seltzer.guard.recovery.findings import Findings
from seltzer.guard.recovery.holding import Todo
from seltzer.guard.recovery.slurm import SlurmError
from seltzer.guard.recovery.verdicts import Waiting
from seltzer.wire.squeue import QueueEntry

FILE = "seltzer.requeued"


@dataclass(frozen=True)
class Unsettled:
    """Jobs that aren't settled yet."""

    jobs: Mapping[str, float] = field(default_factory=dict)
    """When each was added, or its node was back, by the clock of the machine that did it."""
    since: float | None = None
    """From when on the log describes them, as in Findings."""
    floor: str = ""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Their restart counts before the guard last tried to requeue them."""
    silent: frozenset[str] = frozenset()
    """The jobs whose nodes didn't respond when they were due."""

    def wait(self, now: float, soonest: float, after: float) -> float:
        """How long to wait until the next job is due: at most `after`, even if clocks differ."""
        due = min(self.jobs.values(), default=now) + after
        return min(after, max(soonest, due - now))

    def due(self, now: float, after: float) -> list[str]:
        """The jobs that have waited that long. A time in the future, by a clock that is ahead, counts as due."""
        return [name for name, added in self.jobs.items() if not now - after < added <= now]


def waiting(
    slurm: Controller, queue: Sequence[QueueEntry], epoch: Path, awaited_too: Collection[int] = ()
) -> dict[int, Waiting]:
    """What slurmctld says about its pending jobs, by their own IDs; nothing if it can't be asked.

    `awaited_too`: jobs on which others depend that slurmctld doesn't know.
    """
    try:
        found = slurm.pending()
    except SlurmError as error:
        log.say(f"can't tell which jobs may be requeued: {error}")
        return {}
    awaited = {job for each in found.values() for job in each.awaits}.union(awaited_too)
    unsettled = read(epoch)
    before = {each.id: unsettled.restarts[each.name] for each in queue if each.name in unsettled.restarts}
    jobs = {each.id: each.job for each in queue}  # others may wait for the array of a task
    return {
        id_: Waiting(
            each.may_requeue,
            awaited=bool({id_, jobs.get(id_, id_)} & awaited),
            requeued=id_ in before and each.restarts > before[id_],
            from_crontab=each.from_crontab,
        )
        for id_, each in found.items()
    }


def requeue(
    todo: Sequence[Todo], found: Findings, slurm: Controller, recovered: RepairReport, *, late: bool = False
) -> list[Todo]:
    """Requeue these pending jobs, and report those for which slurmctld confirms it. Returns the others, to be held.

    `late`: they were submitted to start late. If this repair is cut short, the next one would take another update for
    one by their users.
    """
    if not todo:
        return []
    remember(found, [name for name, *_ in todo])
    done: set[str] = set()
    try:
        done = _requeue(todo, found, slurm, late=late)
    except SlurmError as error:
        log.say(f"jobs can't be requeued: {error}")
    for name, listed, verdict in todo:
        if name in done:
            recovered.add(name, listed.user, "requeued", verdict.why)
    return [
        (name, listed, replace(verdict, outcome="held", action="hold", why=f"{verdict.why}; it could not be requeued"))
        for name, listed, verdict in todo
        if name not in done
    ]


def _requeue(todo: Sequence[Todo], found: Findings, slurm: Controller, *, late: bool) -> set[str]:
    """The names of the jobs whose restart count has grown, and that don't start at once."""
    names = [name for name, *_ in todo]
    delayed = set(names) if late else _update(names, "delayed", slurm.delay)
    queue = slurm.queue()
    count = Counter(each.id for each in queue)
    by_name = {(each.job, each.task): each.id for each in queue if count[each.id] == 1 and each.state == "PENDING"}
    before = slurm.pending()
    ids = {
        name: id_
        for name, listed, _ in todo
        if name in delayed and (id_ := by_name.get((listed.job, listed.task), 0)) in before and before[id_].may_requeue
    }
    if not ids:
        return set()
    # If this is cut short, the next repair can tell whether the counts have grown.
    _remember_counts(found.epoch, {name: before[id_].restarts for name, id_ in ids.items()})
    slurm.requeue(sorted(ids.values()))
    after = slurm.pending()
    done = {name for name, id_ in ids.items() if id_ in after and after[id_].restarts > before[id_].restarts}
    # A job that was saved as held had been released before it started, so it is released again. Only now: in the log
    # this looks like a release by a person, who wants the job to start whatever happened before.
    held = [name for name, listed, _ in todo if name in done and listed.held]
    if not held:
        return done
    _update(held, "released", slurm.release)
    free = {(each.job, each.task) for each in slurm.queue() if not each.held}
    released = [name for name, listed, _ in todo if name in held and (listed.job, listed.task) in free]
    return done.difference(held) | _update(released, "delayed", slurm.delay)


def _update(names: Sequence[str], what: str, update: Callable[[Sequence[str]], None]) -> set[str]:
    """The jobs that slurmctld has updated. If it refuses, each half is tried alone: no job blocks others."""
    if not names:
        return set()
    try:
        update(names)
        return set(names)
    except SlurmError as error:
        if len(names) == 1:
            log.say(f"job {names[0]} can't be {what}: {error}")
            return set()
    half = len(names) // 2
    return _update(names[:half], what, update) | _update(names[half:], what, update)


def remember(found: Findings, names: Sequence[str]) -> None:
    """Add jobs to those that aren't settled."""
    if not names:
        return
    before = read(found.epoch)
    first = before if before.jobs else found
    jobs = {**dict.fromkeys(names, time.time()), **before.jobs}
    write(found.epoch, replace(before, jobs=jobs, since=first.since, floor=first.floor))


def _remember_counts(epoch: Path, restarts: Mapping[str, int]) -> None:
    before = read(epoch)
    write(epoch, replace(before, restarts={**before.restarts, **restarts}))


def write(epoch: Path, unsettled: Unsettled) -> None:
    """Without jobs there is no file. Keeps nothing about other jobs."""
    if not unsettled.jobs:
        (epoch / FILE).unlink(missing_ok=True)
        return
    half = epoch / f"{FILE}.half"
    restarts = {name: count for name, count in unsettled.restarts.items() if name in unsettled.jobs}
    silent = sorted(unsettled.silent & unsettled.jobs.keys())
    try:
        half.write_text(json.dumps({**asdict(unsettled), "restarts": restarts, "silent": silent}))
        half.rename(epoch / FILE)
    except OSError as error:
        log.say(f"{FILE} can't be written: {error}")  # they start after RESTART_DELAY, even if they have ended


def read(epoch: Path) -> Unsettled:
    """A malformed file counts as empty."""
    try:
        found = json.loads((epoch / FILE).read_text())
        since = None if found["since"] is None else float(found["since"])
        jobs = {str(name): float(added) for name, added in found["jobs"].items()}
        restarts = {str(name): int(count) for name, count in found.get("restarts", {}).items()}
        silent = frozenset(map(str, found.get("silent", ())))
        return Unsettled(jobs, since, str(found["floor"]), restarts, silent)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Unsettled()
