"""Decides what becomes of a job that slurmctld forgot, or knows wrongly. Pure; all policy of the recovery is here.

A job runs again by itself only if it certainly hasn't run, or if Slurm may requeue it and the crash has ended it: then
its restart count grows, as when its node fails. Anything uncertain waits for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seltzer.guard.recovery.journal import FROM_CRONTAB, Entry
from seltzer.guard.recovery.traces import Trace

Outcome = Literal["put-back", "requeued", "held", "kept", "ran", "cancelled", "lost"]
Action = Literal[
    "put-back",
    "put-back-held",
    "put-back-requeued",
    "keep",
    "hold",
    "cancel",
    "complete",
    "requeue",
    "retire",
    "crontab",
    "none",
]
OURS = frozenset({0, 401})
"""Users that may always cancel everybody's jobs: root and SlurmUser."""
FULL = "the state volume was full, and slurmctld couldn't write into its log"
CUT = "slurmctld's log has grown so fast that it doesn't reach back to the last save"
UNSEEN = "slurmctld's log had been set too quiet to tell"
# squeue states in which a job holds nodes.
ALIVE = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED"})


def may_have_started(unlogged: str) -> str:
    """`unlogged`: why lines of the log may be missing; empty if none are."""
    return unlogged and f"it may have started: {unlogged}"


@dataclass(frozen=True)
class JobVerdict:
    outcome: Outcome
    action: Action
    why: str


@dataclass(frozen=True)
class Waiting:
    """What else slurmctld says about a pending job. The defaults apply if it can't be asked."""

    may_requeue: bool = False
    """It is a batch job on its own, and neither its user nor the cluster forbids to start it again."""
    awaited: bool = True
    """Another job depends on it."""
    requeued: bool = False
    """The guard has requeued it after an earlier crash, and its restart count shows that."""
    from_crontab: bool = False
    """slurmctld refuses to hold or change it, and if it is cancelled, its line of the crontab is disabled."""


UNKNOWN = Waiting()


@dataclass(frozen=True)
class Unsaved:
    """A job that was acknowledged, and that slurmctld no longer knows."""

    id: int
    trace: Trace
    tasks: Mapping[str, Trace] = field(default_factory=dict)
    has_script: bool = True
    """Script and environment exist and are text."""
    has_files: bool = True
    entry: Entry | None = None
    modified: bool = False
    unlogged: str = ""
    """Why log lines may be missing, and what that means; empty if none are."""
    may_requeue: bool = False
    """Neither its user nor the cluster forbids to start it again."""

    @property
    def owner(self) -> int | None:
        try:
            return int(self.entry.options["user_id"]) if self.entry else None
        except (KeyError, ValueError, TypeError):
            return None


def of_unsaved(job: Unsaved, keep_jobs: bool) -> JobVerdict:
    """For a job that isn't in the queue."""
    trace = job.trace
    if _was_cancelled(trace, job.owner) and not any(map(_may_run, job.tasks.values())):
        return JobVerdict("cancelled", "none", "it had been cancelled")
    if job.entry and job.entry.cannot == FROM_CRONTAB:
        return JobVerdict("requeued", "crontab", FROM_CRONTAB)
    if trace.interactive:
        return JobVerdict("lost", "none", _interactive(trace))
    if not job.tasks and (trace.finished or (trace.ran and trace.ended)):
        return JobVerdict("ran", "keep", f"it had ended{exit_words(trace)}")
    if not job.has_files:
        return JobVerdict("lost", "none", "its script isn't on the state volume")
    cannot = _why_not(job, keep_jobs)
    doubt = _doubt(job)
    if cannot:
        return JobVerdict("kept", "keep", f"{doubt}; {cannot}" if doubt else cannot)
    changed = job.modified or trace.modified  # the new values are unknown
    if doubt and job.may_requeue and not (job.tasks or changed or job.unlogged) and _has_only_started(trace):
        return JobVerdict("requeued", "put-back-requeued", doubt)
    if doubt:
        return JobVerdict("held", "put-back-held", doubt)
    return JobVerdict("put-back", "put-back", "it had not started")


def _why_not(job: Unsaved, keep_jobs: bool) -> str:
    """Why it can't be put back; empty if it can."""
    if not job.trace.submitted:
        return "sbatch had not been answered, or slurmctld's log is gone"
    if not keep_jobs:
        return "controller.keepJobs is off"
    if job.trace.heterogeneous:
        return "a heterogeneous job can't be put back"
    if not job.has_script:
        return "its script or environment isn't text"
    if not job.entry:
        return "there is no journal of its options"
    return f"not all of its options are known: {job.entry.cannot}" if job.entry.cannot else ""


def _doubt(job: Unsaved) -> str:
    """Why it may not just run; empty if it may."""
    trace = job.trace
    if trace.requeued:
        return "it had started and was requeued"
    if trace.ran:
        return f"it had started on {trace.started}"
    if any(each.started or each.ended for each in job.tasks.values()):
        others = ", and the others been cancelled" if _was_cancelled(trace, job.owner) else ""
        return f"some of its tasks had started{others}"
    if any(each.cancelled or each.cancel_asked_by is not None for each in job.tasks.values()):
        return "some of its tasks had been cancelled"
    if trace.cancel_asked_by is not None:
        return "a request to cancel it was in progress"
    if trace.modified or job.modified or any(each.modified for each in job.tasks.values()):
        return "it had been changed after it was submitted"
    if trace.held is not None:
        return "it had been held or released"
    if trace.unseen or any(each.unseen for each in job.tasks.values()):
        return may_have_started(UNSEEN)
    return job.unlogged


def of_known(
    trace: Trace, state: str, owner: int | None, unlogged: str = "", waiting: Waiting = UNKNOWN
) -> JobVerdict | None:
    """For a job or a task that slurmctld has recovered from an older state; None if that state is fine.

    `unlogged`: why log lines may be missing, if they may. `waiting`: for a pending job.
    """
    if state == "PENDING":
        return _of_pending(trace, owner, unlogged, waiting)
    if state in ALIVE:
        if trace.cancelled and not trace.requeued:
            return JobVerdict("cancelled", "cancel", "it had been cancelled, which was not saved")
        # Slurm requeues it once more if it is told of the end once more.
        if trace.ended and (trace.ran or trace.ended_itself):
            return JobVerdict("ran", "complete", f"it had ended{exit_words(trace)}, which was not saved")
    return None


def _of_pending(trace: Trace, owner: int | None, unlogged: str, waiting: Waiting) -> JobVerdict | None:
    if waiting.from_crontab:
        changed = trace.ran or trace.ended or trace.finished or trace.requeued or _was_cancelled(trace, owner)
        return JobVerdict("requeued", "crontab", FROM_CRONTAB) if changed or unlogged else None
    if _was_cancelled(trace, owner):
        return JobVerdict("cancelled", "cancel", "it had been cancelled, which was not saved")
    if trace.finished or (trace.ran and trace.ended):
        how = f"it had ended{exit_words(trace)}, which was not saved"
        if waiting.awaited:
            return JobVerdict("held", "hold", f"{how}: it would have run twice; other jobs may depend on it")
        return JobVerdict("ran", "retire", how)
    may_restart = waiting.may_requeue and not unlogged and _has_only_started(trace)
    if trace.ran:
        how = f"it had started on {trace.started}, which was not saved"
        if may_restart:
            return JobVerdict("requeued", "requeue", how)
        return JobVerdict("held", "hold", f"{how}: it would have run twice")
    if trace.requeued and not waiting.requeued:
        # Its restart count may be an earlier one: if the requeue was saved after all, it only grows once more.
        how = "it had been requeued, which may not have been saved"
        return JobVerdict("requeued", "requeue", how) if may_restart else JobVerdict("held", "hold", how)
    if trace.held:
        return JobVerdict("held", "hold", "it had been held, which was not saved")
    return JobVerdict("held", "hold", unlogged) if unlogged else None


def _has_only_started(trace: Trace) -> bool:
    """Whether nothing but a start happened to it that its next run would have to respect."""
    return (
        bool(trace.started)
        and not trace.finished
        and not trace.heterogeneous
        and not trace.unseen
        and not trace.held
        and trace.cancel_asked_by is None
    )


def _was_cancelled(trace: Trace, owner: int | None) -> bool:
    if trace.cancelled:
        return not trace.requeued
    # The outcome isn't in the log: for a task of an array, or because slurmctld was killed at that moment.
    return (
        trace.cancel_asked_by is not None
        and not trace.started
        and (trace.cancel_asked_by in OURS or trace.cancel_asked_by == owner)
    )


def _may_run(task: Trace) -> bool:
    """Whether it has run, and isn't known to be over. What is done to an array doesn't apply to such a task."""
    over = task.finished or ((task.ended or task.cancelled) and not task.requeued)
    return bool(task.started or task.ended) and not over


def _interactive(trace: Trace) -> str:
    how = f"had started on {trace.started}" if trace.started else "was waiting"
    return f"an interactive job, which {'had ended' if trace.ended else how}: nothing of it can be put back"


def exit_words(trace: Trace) -> str:
    """How it ended; empty if that is unknown."""
    if trace.status is None:
        return ""
    if signal := trace.status & 0x7F:
        return f" by signal {signal}"
    return f" with exit code {trace.status >> 8}"
