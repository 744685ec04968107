"""Holds jobs, and makes those fail that can't be held."""

from __future__ import annotations

from collections.abc import Sequence

from seltzer.guard import log
from seltzer.guard.recovery import recoveries
from seltzer.guard.recovery.common import Controller, RepairReport
from seltzer.guard.recovery.keeper import JobKeeper
from seltzer.guard.recovery.slurm import SlurmError
from seltzer.guard.recovery.verdicts import JobVerdict
from seltzer.wire.squeue import QueueEntry

_REASONS = 20
Todo = tuple[str, QueueEntry, JobVerdict]
"""A job's name in Slurm's commands, the job, and what is to become of it."""


def hold(todo: Sequence[Todo], keeper: JobKeeper, slurm: Controller, recovered: RepairReport) -> None:
    """A job counts as held only if slurmctld says so. The others get a script that fails instead of running."""
    if not todo:
        return
    for why, names in _by_why(todo).items():
        _try_hold(slurm, names, why)
    free = _not_held(todo, slurm)
    if free:  # one job that can't be held may have blocked others
        for name, _, verdict in free:
            _try_hold(slurm, [name], verdict.why)
        free = _not_held(free, slurm)
    left = {name for name, *_ in free}
    for name, listed, verdict in todo:
        if name in left:
            why = keeper.withdraw(listed.job, f"{verdict.why}; it can't be held, so it is made to fail")
            recovered.add(name, listed.user, "kept", why)
        else:
            recovered.add(name, listed.user, verdict.outcome, verdict.why)


def _by_why(todo: Sequence[Todo]) -> dict[str, list[str]]:
    """The names of the jobs by their reasons, which lose their details if there are many: each costs two commands."""
    details = len({verdict.why for _, _, verdict in todo}) <= _REASONS
    found: dict[str, list[str]] = {}
    for name, _, verdict in todo:
        found.setdefault(verdict.why if details else recoveries.without_details(verdict.why), []).append(name)
    return found


def _try_hold(slurm: Controller, names: Sequence[str], why: str) -> None:
    try:
        slurm.hold(names, why)
    except SlurmError as error:
        log.say(f"not all could be held: {error}")


def _not_held(todo: Sequence[Todo], slurm: Controller) -> list[Todo]:
    """The jobs that could still start."""
    queue = {(each.job, each.task): each for each in slurm.queue()}
    return [
        each
        for each in todo
        if (after := queue.get((each[1].job, each[1].task), each[1])).state == "PENDING" and not after.held
    ]
