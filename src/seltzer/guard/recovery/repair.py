"""Repairs what was found while slurmctld schedules nothing: hold, cancel, complete, requeue; then put back, and save
crontabs again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from seltzer.guard import log
from seltzer.guard.recovery import crontabs, history, holding, requeues, spool, traces
from seltzer.guard.recovery.common import DYING, Controller, RepairReport
from seltzer.guard.recovery.findings import Findings
from seltzer.guard.recovery.holding import Todo
from seltzer.guard.recovery.keeper import JobKeeper
from seltzer.guard.recovery.put_back import awaited_by_forgotten, put_back
from seltzer.guard.recovery.slurm import Cancelled, SlurmError
from seltzer.guard.recovery.traces import Evidence, Trace
from seltzer.guard.recovery.verdicts import ALIVE, UNKNOWN, JobVerdict, of_known
from seltzer.wire.squeue import QueueEntry

_AGAIN = 0.1
# Outcomes of jobs that no longer need what was found.
_BACK = ("put-back", "requeued", "held", "cancelled")


def repair(found: Findings, slurm: Controller, keep_jobs: bool, recovered: RepairReport) -> bool:
    """Whatever fails, no job that may have run is left in a state in which it would run again. Safe to repeat.

    Returns whether what was found is no longer needed. What was reported stays reported when this raises. Raises
    Cancelled when slurmctld ends meanwhile, which leaves the rest to the next start; anything else is for `emergency`.
    """
    evidence = traces.read(history.read(found.epoch, found.since, found.floor).lines)
    keeper = JobKeeper(found.epoch)
    queue: list[QueueEntry] | None = None
    from_crontabs: list[Todo] = []
    try:
        queue = _exclude_reused_ids(_ask(slurm), evidence, found)
        from_crontabs += _repair_known(queue, evidence, found, keeper, slurm, recovered)
    except Cancelled:
        raise
    except Exception as error:  # a SlurmError or an unexpected one: jobs can be put back all the same
        log.say(f"jobs can't be repaired: {error if isinstance(error, SlurmError) else repr(error)}")
        slurm.pause(DYING)
        _withdraw_all(queue, evidence, keeper, recovered)
    known = {each.job for each in queue} if queue is not None else evidence.recovered
    from_crontabs += put_back(known, evidence, found, slurm, keep_jobs, recovered, keeper)
    crontabs.save_again(from_crontabs, slurm, recovered)
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
) -> list[Todo]:
    """Repairs the jobs that slurmctld knows, but not as they were, or not for certain as they are.

    Returns those whose crontabs have to be saved again.
    """
    todo: dict[str, list[Todo]] = {each: [] for each in ("hold", "cancel", "complete", "requeue", "retire", "crontab")}
    statuses: dict[int, int] = {}
    traced = _with_traces(queue, evidence)
    if found.unlogged:
        traced += _without_traces(queue, traced)
        _prevent_requeue(queue, slurm)
    any_pending = any(listed.state == "PENDING" for _, listed, _ in traced)
    waiting = {}
    if any_pending:
        awaited = awaited_by_forgotten({each.job for each in queue}, found)
        waiting = requeues.waiting(slurm, queue, found.epoch, awaited)
    for name, listed, trace in traced:
        unlogged = "" if listed.held else found.unlogged
        verdict = of_known(trace, listed.state, listed.user, unlogged, waiting.get(listed.id, UNKNOWN))
        if verdict:
            todo[verdict.action].append((name, listed, verdict))
            if trace.status is not None:
                statuses[listed.id] = trace.status
    refused = requeues.requeue(todo["requeue"], found, slurm, recovered)
    held = [*todo["hold"], *refused, *_retire(todo["retire"], slurm, recovered)]
    requeues.remember(found, [name for name, *_ in held])
    holding.hold(held, keeper, slurm, recovered)
    _cancel(todo["cancel"], keeper, slurm, recovered)
    _complete(todo["complete"], statuses, slurm, recovered)
    return todo["crontab"]


def _with_traces(queue: Sequence[QueueEntry], evidence: Evidence) -> list[tuple[str, QueueEntry, Trace]]:
    """Jobs and tasks of the queue that the log mentions, with their names in Slurm's commands."""
    found = []
    tasks = evidence.by_array()
    for listed in queue:
        if not listed.task:
            if trace := evidence.jobs.get((listed.job, "")):
                found.append((listed.name, listed, trace))
            continue
        if trace := evidence.jobs.get((listed.job, listed.task)):
            found.append((listed.name, listed, trace))
        elif listed.state == "PENDING" and (trace := evidence.jobs.get((listed.job, ""))) and not trace.ran:
            found.append((str(listed.job), listed, trace))  # what was done to the array applies to all pending tasks
        for task, trace in tasks.get(listed.job, {}).items():
            if task.startswith("[") and _in_range(listed.task, task):
                found.append((listed.name, listed, trace))
    return found


def _without_traces(
    queue: Sequence[QueueEntry], traced: Sequence[tuple[str, QueueEntry, Trace]]
) -> list[tuple[str, QueueEntry, Trace]]:
    """All others, which the log says nothing about."""
    names = {(listed.job, listed.task) for _, listed, _ in traced}
    return [(each.name, each, Trace()) for each in queue if (each.job, each.task) not in names]


def _prevent_requeue(queue: Sequence[QueueEntry], slurm: Controller) -> None:
    """Jobs that hold nodes may have ended without a log line; Slurm would restart those that no node has."""
    names = [each.name for each in queue if each.state in ALIVE]
    try:
        if names:
            slurm.never_requeue(names)
    except SlurmError as error:
        log.say(f"jobs that have ended may start again: {error}")


def _in_range(task: str, ranges: str) -> bool:
    """Whether `[1-3,7-9:2]` contains the task."""
    for part in ranges.strip("[]").partition("%")[0].split(","):
        with suppress(ValueError):
            span, _, step = part.partition(":")
            first, _, last = span.partition("-")
            if int(task) in range(int(first), int(last or first) + 1, int(step or 1)):
                return True
    return False


def _retire(todo: Sequence[Todo], slurm: Controller, recovered: RepairReport) -> list[Todo]:
    """Cancels pending jobs that have already run to their end: Slurm takes no status for them. Returns those that are
    still in the queue."""
    if not todo:
        return []
    try:
        slurm.cancel_jobs([listed.name for _, listed, _ in todo])
    except SlurmError as error:
        log.say(f"not all jobs that had ended could be cancelled: {error}")
    waits = {(each.job, each.task) for each in slurm.queue() if each.state == "PENDING"}
    for name, listed, verdict in todo:
        if (listed.job, listed.task) not in waits:
            recovered.add(name, listed.user, verdict.outcome, f"{verdict.why}; it shows as cancelled")
    return [
        (name, listed, JobVerdict("held", "hold", f"{verdict.why}: it would have run twice"))
        for name, listed, verdict in todo
        if (listed.job, listed.task) in waits
    ]


def _cancel(todo: Sequence[Todo], keeper: JobKeeper, slurm: Controller, recovered: RepairReport) -> None:
    # Task by task: by its own ID, an array is cancelled with the tasks that run.
    named = {listed.name: (listed, verdict) for _, listed, verdict in todo}
    if not named:
        return
    whys = {name: verdict.why for name, (_, verdict) in named.items()}
    try:
        slurm.cancel_jobs(list(named))
    except SlurmError as error:
        log.say(f"not all could be cancelled again: {error}")
        for name in _pending_of(named, slurm):
            listed, verdict = named[name]
            whys[name] = keeper.withdraw(listed.job, f"{verdict.why}; if it is pending, it is made to fail")
    for name, (listed, verdict) in named.items():
        recovered.add(name, listed.user, verdict.outcome, whys[name])


def _pending_of(named: Mapping[str, tuple[QueueEntry, JobVerdict]], slurm: Controller) -> list[str]:
    """The names of the jobs that are still pending, or all names if slurmctld can't be asked."""
    try:
        states = {each.name: each.state for each in slurm.queue()}
    except SlurmError as error:
        log.say(f"can't tell which of them are pending: {error}")
        states = {name: listed.state for name, (listed, _) in named.items()}
    return [name for name in named if states.get(name) == "PENDING"]


def _complete(todo: Sequence[Todo], known: Mapping[int, int], slurm: Controller, recovered: RepairReport) -> None:
    """Ends jobs that hold nodes though they have ended. Left alone, Slurm waits for minutes and then requeues them."""
    statuses = {each.id: known[each.id] for _, each, _ in todo if each.id in known}
    others = [name for name, listed, _ in todo if listed.id not in statuses]
    if statuses:
        try:
            slurm.complete(statuses)
        except SlurmError as error:
            log.say(str(error))
            alive = {each.name for each in slurm.queue() if each.state in ALIVE}
            others = [name for name, listed, _ in todo if name in others or listed.name in alive]
    if others:
        try:
            slurm.never_requeue(others)
        except SlurmError as error:  # jobs of a crontab can't be changed
            log.say(f"not all that have ended can be kept from being requeued: {error}")
        slurm.cancel_jobs(others)
    for name, listed, verdict in todo:
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
