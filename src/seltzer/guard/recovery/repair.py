"""Repairs what was found while slurmctld schedules nothing: hold, cancel, complete; then put back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from seltzer.guard import log
from seltzer.guard.recovery import history, spool, traces
from seltzer.guard.recovery.common import DYING, Controller, RepairReport
from seltzer.guard.recovery.findings import Findings
from seltzer.guard.recovery.keeper import JobKeeper
from seltzer.guard.recovery.put_back import put_back
from seltzer.guard.recovery.slurm import Cancelled, SlurmError
from seltzer.guard.recovery.traces import Evidence, Trace
from seltzer.guard.recovery.verdicts import ALIVE, JobVerdict, of_known
from seltzer.wire.squeue import QueueEntry

_AGAIN = 0.1
# Outcomes of jobs that no longer need what was found.
_BACK = ("put-back", "held", "cancelled")

Todo = tuple[str, QueueEntry, JobVerdict, Trace]


def repair(found: Findings, slurm: Controller, keep_jobs: bool, recovered: RepairReport) -> bool:
    """Whatever fails, no job that may have run is left in a state in which it would run again. Safe to repeat.

    Returns whether what was found is no longer needed. What was reported stays reported when this raises. Raises
    Cancelled when slurmctld ends meanwhile, which leaves the rest to the next start; anything else is for `emergency`.
    """
    evidence = traces.read(history.read(found.epoch, found.since, found.floor).lines)
    keeper = JobKeeper(found.epoch)
    queue: list[QueueEntry] | None = None
    try:
        queue = _exclude_reused_ids(_ask(slurm), evidence, found)
        _repair_known(queue, evidence, found, keeper, slurm, recovered)
    except Cancelled:
        raise
    except Exception as error:  # a SlurmError or an unexpected one: jobs can be put back all the same
        log.say(f"jobs can't be repaired: {error if isinstance(error, SlurmError) else repr(error)}")
        slurm.pause(DYING)
        _withdraw_all(queue, evidence, keeper, recovered)
    known = {each.job for each in queue} if queue is not None else evidence.recovered
    put_back(known, evidence, found, slurm, keep_jobs, recovered, keeper)
    return keeper.safe


def _ask(slurm: Controller) -> list[QueueEntry]:
    """slurmctld says that it is ready a moment before it answers."""
    while True:
        try:
            return slurm.queue()
        except SlurmError:
            slurm.left()
            slurm.pause(_AGAIN)


def _exclude_reused_ids(queue: Sequence[QueueEntry], evidence: Evidence, found: Findings) -> list[QueueEntry]:
    """Excludes other jobs that were given the ID of a job that was found, where that couldn't be prevented."""
    others = {
        job
        for job in {each.job for each in queue} & found.jobs - evidence.recovered
        if not spool.is_same(found.epoch, job, spool.read(found.epoch, job))
    }
    return [each for each in queue if each.job not in others]


def _repair_known(
    queue: Sequence[QueueEntry],
    evidence: Evidence,
    found: Findings,
    keeper: JobKeeper,
    slurm: Controller,
    recovered: RepairReport,
) -> None:
    """Repairs the jobs that slurmctld knows, but not as they were, or not for certain as they are."""
    todo: dict[str, list[Todo]] = {"hold": [], "cancel": [], "complete": []}
    traced = _with_traces(queue, evidence)
    if found.unlogged:
        traced += _without_traces(queue, traced)
        _prevent_requeue(queue, slurm)
    for name, listed, trace in traced:
        verdict = of_known(trace, listed.state, listed.user, "" if listed.held else found.unlogged)
        if verdict:
            todo[verdict.action].append((name, listed, verdict, trace))
    _hold(todo["hold"], keeper, slurm, recovered)
    _cancel(todo["cancel"], keeper, slurm, recovered)
    _complete(todo["complete"], slurm, recovered)


def _with_traces(queue: Sequence[QueueEntry], evidence: Evidence) -> list[tuple[str, QueueEntry, Trace]]:
    """Jobs and tasks of the queue that the log mentions, with their names in Slurm's commands."""
    found = []
    tasks = evidence.by_array()
    for listed in queue:
        if not listed.task:
            if trace := evidence.jobs.get((listed.job, "")):
                found.append((str(listed.job), listed, trace))
            continue
        if trace := evidence.jobs.get((listed.job, listed.task)):
            found.append((f"{listed.job}_{listed.task}", listed, trace))
        elif (trace := evidence.jobs.get((listed.job, ""))) and not trace.ran:
            found.append((str(listed.job), listed, trace))  # what was done to the array applies to all pending tasks
        for task, trace in tasks.get(listed.job, {}).items():
            if task.startswith("[") and _in_range(listed.task, task):
                found.append((f"{listed.job}_{listed.task}", listed, trace))
    return found


def _without_traces(
    queue: Sequence[QueueEntry], traced: Sequence[tuple[str, QueueEntry, Trace]]
) -> list[tuple[str, QueueEntry, Trace]]:
    """All others, which the log says nothing about."""
    names = {(listed.job, listed.task) for _, listed, _ in traced}
    return [(_name(each), each, Trace()) for each in queue if (each.job, each.task) not in names]


def _prevent_requeue(queue: Sequence[QueueEntry], slurm: Controller) -> None:
    """Jobs that hold nodes may have ended without a log line; Slurm would restart those that no node has."""
    names = [_name(each) for each in queue if each.state in ALIVE]
    try:
        if names:
            slurm.never_requeue(names)
    except SlurmError as error:
        log.say(f"jobs that have ended may start again: {error}")


def _name(listed: QueueEntry) -> str:
    return f"{listed.job}_{listed.task}" if listed.task else str(listed.job)


def _in_range(task: str, ranges: str) -> bool:
    """Whether `[1-3,7-9:2]` contains the task."""
    for part in ranges.strip("[]").partition("%")[0].split(","):
        with suppress(ValueError):
            span, _, step = part.partition(":")
            first, _, last = span.partition("-")
            if int(task) in range(int(first), int(last or first) + 1, int(step or 1)):
                return True
    return False


def _hold(todo: Sequence[Todo], keeper: JobKeeper, slurm: Controller, recovered: RepairReport) -> None:
    """A job counts as held only if slurmctld says so. The others get a script that fails instead of running."""
    if not todo:
        return
    by_why: dict[str, list[str]] = {}
    for name, _, verdict, _ in todo:
        by_why.setdefault(verdict.why, []).append(name)
    for why, names in by_why.items():
        _try_hold(slurm, names, why)
    free = _not_held(todo, slurm)
    if free:  # one job that can't be held may have kept others from it
        for name, _, verdict, _ in free:
            _try_hold(slurm, [name], verdict.why)
        free = _not_held(free, slurm)
    left = {name for name, *_ in free}
    for name, listed, verdict, _ in todo:
        if name in left:
            why = keeper.withdraw(listed.job, f"{verdict.why}; it can't be held, so it is made to fail")
            recovered.add(name, listed.user, "kept", why)
        else:
            recovered.add(name, listed.user, verdict.outcome, verdict.why)


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


def _cancel(todo: Sequence[Todo], keeper: JobKeeper, slurm: Controller, recovered: RepairReport) -> None:
    named = {name: (listed, verdict) for name, listed, verdict, _ in todo}
    if not named:
        return
    whys = {name: verdict.why for name, (_, verdict) in named.items()}
    try:
        slurm.cancel_jobs(list(named))
    except SlurmError as error:
        log.say(f"not all could be cancelled again: {error}")
        for name, (listed, verdict) in named.items():
            if listed.state == "PENDING":
                whys[name] = keeper.withdraw(listed.job, f"{verdict.why}; if it is pending, it is made to fail")
    for name, (listed, verdict) in named.items():
        recovered.add(name, listed.user, verdict.outcome, whys[name])


def _complete(todo: Sequence[Todo], slurm: Controller, recovered: RepairReport) -> None:
    """Ends jobs that hold nodes though they have ended. Left alone, Slurm waits for minutes and then requeues them."""
    statuses = {each.id: trace.status for _, each, _, trace in todo if trace.status is not None}
    others = [name for name, listed, _, _ in todo if listed.id not in statuses]
    if statuses:
        try:
            slurm.complete(statuses)
        except SlurmError as error:
            log.say(str(error))
            others = [name for name, *_ in todo]
    if others:
        slurm.never_requeue(others)
        slurm.cancel_jobs(others)
    for name, listed, verdict, _ in todo:
        more = "; it shows as cancelled" if name in others else ""
        recovered.add(name, listed.user, verdict.outcome, f"{verdict.why}{more}")


def _withdraw_all(
    queue: Sequence[QueueEntry] | None, evidence: Evidence, keeper: JobKeeper, recovered: RepairReport
) -> None:
    """slurmctld couldn't be told. Pending jobs that must not run get another script; running jobs have read theirs."""
    done = {job.id for job in recovered.jobs}
    states = {(each.job, each.task): each for each in queue or ()}
    for (job, task), trace in evidence.jobs.items():
        name = f"{job}_{task}" if task else str(job)
        listed = states.get((job, task))
        if name in done or (queue is not None and listed is None) or not spool.directory(keeper.epoch, job).is_dir():
            continue
        verdict = of_known(trace, "PENDING", listed.user if listed else None)
        if verdict and (listed is None or listed.state == "PENDING") and job in (evidence.recovered or {job}):
            why = keeper.withdraw(job, f"{verdict.why}; if it is pending, it is made to fail")
            recovered.add(name, listed and listed.user, "kept", why)


def emergency(found: Findings, error: Exception, recovered: RepairReport) -> bool:
    """The repair itself failed: nothing that may have run runs again, and every script is kept. Returns like `repair`.

    Jobs that slurmctld says it recovered are in its queue. The others are reported, unless they were put back.
    """
    keeper, evidence = JobKeeper(found.epoch), Evidence()
    with suppress(Exception):
        evidence = traces.read(history.read(found.epoch, found.since, found.floor).lines)
        _withdraw_all(None, evidence, keeper, recovered)
    done = {job.id: job.outcome for job in recovered.jobs}
    for job in sorted(spool.saved(found.epoch) - evidence.recovered):
        if done.get(str(job), "kept") not in _BACK:
            why = keeper.keep(job, f"the repair failed, so check whether it is in the queue: {error!r}")
            if str(job) not in done:
                recovered.add(str(job), None, "kept", why)
    return keeper.safe
