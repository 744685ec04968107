"""Settles requeued and held jobs once all nodes have registered.

Those whose first run has ended by itself are cancelled: their nodes report it, which slurmctld logs and otherwise
ignores. Of the others, requeued jobs may start, and held ones stay held. Unknown never counts as "still running": a
requeued job waits for a person if the log may lack lines, and for the node of its first run if that doesn't respond. A
node that is back reports late what ended in the meantime, so its jobs wait as long as after a crash.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path

from seltzer.guard.recovery import findings, history, holding, requeues, traces
from seltzer.guard.recovery.common import Controller, RepairReport
from seltzer.guard.recovery.keeper import JobKeeper
from seltzer.guard.recovery.requeues import Unsettled
from seltzer.guard.recovery.slurm import SlurmError
from seltzer.guard.recovery.traces import Evidence, Trace
from seltzer.guard.recovery.verdicts import JobVerdict, exit_words
from seltzer.wire.squeue import PendingJob, QueueEntry

_AT_ONCE = 200
_NAME = re.compile(r"\w[\w.\-]*", re.ASCII)
_LIST = re.compile(r"\w[\w.\-\[\],]*", re.ASCII)
Jobs = Mapping[str, QueueEntry]
"""By their names in Slurm's commands."""


def settle(epoch: Path, slurm: Controller, recovered: RepairReport, after: float = 0.0) -> None:
    """Settle the jobs that were added at least `after` seconds ago; the others wait. Raises SlurmError.

    A job that has ended is held if others depend on it: they would be cancelled with it.
    """
    unsettled = requeues.read(epoch)
    queue = {each.name: each for each in slurm.queue() if each.state == "PENDING"}
    now = time.time()
    due = unsettled.due(now, after)
    later = {name: added for name, added in unsettled.jobs.items() if name not in due}
    silent = unsettled.silent.difference(due)
    if left := {name: queue[name] for name in due if name in queue}:
        log = history.read(epoch, unsettled.since, unsettled.floor)
        evidence = traces.read(log.lines, log.older)
        ended = {name: listed for name, listed in left.items() if _trace(evidence, listed).finished}
        _end(ended, evidence, slurm, recovered)
        free = {name: listed for name, listed in left.items() if name not in ended and not listed.held}
        unlogged = findings.unlogged(epoch, log, evidence, _file_time(epoch, unsettled))
        away = _away(free, evidence, slurm)
        back = unsettled.silent & free.keys() - away
        waiting = _start(free, evidence, unlogged, away | back, epoch, slurm, recovered)
        later |= {name: now if name in back else unsettled.jobs[name] for name in free if name in waiting}
        silent |= away & waiting
    requeues.write(epoch, replace(unsettled, jobs=later, silent=silent))


def _end(jobs: Jobs, evidence: Evidence, slurm: Controller, recovered: RepairReport) -> None:
    if not jobs:
        return
    awaited = {job for each in slurm.pending().values() for job in each.awaits}
    done = [name for name, listed in jobs.items() if not {listed.id, listed.job} & awaited]
    if done:
        slurm.cancel_jobs(done)
    for name, listed in jobs.items():
        how = f"it had ended{exit_words(_trace(evidence, listed))} after all"
        if name in done:
            recovered.add(name, listed.user, "ran", f"{how}; it shows as cancelled")
        elif not listed.held:
            slurm.hold([name], how)
            recovered.add(name, listed.user, "held", f"{how}; other jobs depend on it")


def _start(
    jobs: Jobs,
    evidence: Evidence,
    unlogged: str,
    waiting: Set[str],
    epoch: Path,
    slurm: Controller,
    recovered: RepairReport,
) -> set[str]:
    """`waiting`: the jobs that have to wait for their nodes. Returns the names of all jobs that have to wait."""
    pending = slurm.pending() if jobs else {}
    start, hold, wait = [], [], set()
    for name, listed in jobs.items():
        trace = _trace(evidence, listed)
        if listed.id not in pending:
            wait.add(name)
        elif _is_decided(evidence, listed, pending[listed.id]):
            start.append(name)
        elif why := unlogged or _not_requeued(pending[listed.id]):
            verdict = JobVerdict("held", "hold", f"it had started on {trace.started or 'a node'}, and {why}")
            hold.append((name, listed, verdict))
        elif name in waiting:
            wait.add(name)
        else:
            start.append(name)
    holding.hold(hold, JobKeeper(epoch), slurm, recovered)
    if start:
        slurm.start_now(start)
    return wait


def _away(jobs: Jobs, evidence: Evidence, slurm: Controller) -> set[str]:
    """The names of the jobs whose first runs were on nodes that don't respond."""
    nodes = {name: _trace(evidence, listed).started for name, listed in jobs.items()}
    silent = _silent(set(nodes.values()), slurm)
    return {name for name, where in nodes.items() if where in silent}


def _silent(nodes: set[str], slurm: Controller) -> set[str]:
    """Which of these nodes, or lists of nodes, don't respond.

    An invalid name counts as a silent node if any node is silent.
    """
    named = sorted(name for name in nodes if _NAME.fullmatch(name))
    lists = {each for each in nodes if _LIST.fullmatch(each)}.difference(named)
    unnamed = nodes.difference(named, lists)
    found = unnamed if unnamed and slurm.has_silent_nodes() else set()
    for index in range(0, len(named), _AT_ONCE):
        found |= slurm.silent_nodes(",".join(named[index : index + _AT_ONCE]))
    return found | {each for each in lists if _has_silent(each, slurm)}


def _has_silent(hostlist: str, slurm: Controller) -> bool:
    """Whether any of them is silent. The answer is yes if Slurm doesn't accept the list: then it is unknown."""
    try:
        return bool(slurm.silent_nodes(hostlist))
    except SlurmError:
        slurm.has_silent_nodes()  # raises if slurmctld answers nothing at all
        return True


def _is_decided(evidence: Evidence, listed: QueueEntry, job: PendingJob) -> bool:
    """Whether a person has released the job, and so wants it to start whatever happened before.

    The guard also releases jobs, those that were saved as held, once their restart counts have grown. That decides
    nothing.
    """
    trace = _trace(evidence, listed)
    released = trace.held is False or evidence.of(listed.job).held is False
    return released and not (trace.started and job.restarts)


def _not_requeued(job: PendingJob) -> str:
    """Why the job wasn't requeued, according to slurmctld; empty if it was."""
    return "" if job.restarts else "it could not be requeued"


def _file_time(epoch: Path, unsettled: Unsettled) -> float:
    """From when on the log describes the jobs, in the volume's time."""
    ahead = history.in_log_time(epoch, 0.0)
    return -math.inf if unsettled.since is None or ahead is None else unsettled.since - ahead


def _trace(evidence: Evidence, listed: QueueEntry) -> Trace:
    return evidence.jobs.get((listed.job, listed.task)) or Trace()
