"""Events about the controller, each once: from the difference between the status before and after a pass."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.api.status import ControllerStatus, Crash, Recovered, RecoveredJobs, Recovery, SlurmClusterStatus
from seltzer.plan import conditions
from seltzer.plan.actions import PlannedEvent
from seltzer.wire import job_ids
from seltzer.wire.lease_json import GuardEvent

# The outcome of recovered jobs: the event's reason, whether a person has to look, and the text behind their IDs.
_OUTCOMES = {
    "put-back": ("JobsPutBack", False, "back in the queue under their IDs; slurmctld had lost them"),
    "requeued": ("JobsRequeued", False, "ended by the crash and requeued, since their users allow it"),
    "held": ("JobsHeld", True, "in the queue and held, for a person to decide"),
    "kept": ("JobsKept", True, "couldn't be put back; scripts and environments are in lost/ on the state volume"),
    "ran": ("JobsRan", False, "had ended before slurmctld saved that; nothing is to be done"),
    "lost": ("JobsLost", True, "interactive, or without a script on the volume; their users have to start them again"),
    "cancelled": ("JobsCancelled", False, "had been cancelled before slurmctld saved that; nothing is to be done"),
}
_LONGEST = 1024
"""Bytes of an Event's message."""
ALL = "/run/slurmctld-state/seltzer.recoveries"
"""The file in slurmctld's container that names all jobs."""
_FRAMES = 3


def events(before: SlurmCluster, after: SlurmClusterStatus) -> list[PlannedEvent]:
    """All events, in order."""
    known = before.status
    return [
        *_crashed(known.crash or None, after.crash or None),
        *_failed_over(known, after),
        *_recovered(before, after.recovered or None),
        *_condition_changes(known, after),
    ]


def _crashed(before: Crash | None, after: Crash | None) -> list[PlannedEvent]:
    """One event at once, and another with the backtrace: gdb takes a moment."""
    if after is None:
        return []
    if before is None or before.time != after.time:
        return [PlannedEvent("Warning", "Crashed", exit_summary(after))]
    if after.backtrace and not before.backtrace:
        words = f"slurmctld, which {after.how or 'ended'}, was {_top_frames(after)}"
        return [PlannedEvent("Warning", "Backtrace", words)]
    return []


def exit_summary(crash: Crash) -> str:
    """A crash in one line: how it ended, its last output, and the first frames."""
    words = [f"slurmctld {crash.how or 'ended'}"]
    if lines := crash.lines.splitlines():
        words.append(f"its last words: {lines[-1].strip()}")
    if crash.backtrace:
        words.append(_top_frames(crash))
    if crash.core:
        words.append(f"its core is {crash.core}")
    return "; ".join(words)


def _top_frames(crash: Crash) -> str:
    """The first frames, preferably those with a name."""
    frames = [frame.strip() for frame in crash.backtrace.splitlines()]
    named = [frame for frame in frames if " ?? " not in frame]
    return "in " + " < ".join((named or frames)[:_FRAMES])


def _failed_over(before: SlurmClusterStatus, after: SlurmClusterStatus) -> list[PlannedEvent]:
    if after.last_failover_time is UNSET or after.last_failover_time == before.last_failover_time:
        return []
    old, new = before.controller or ControllerStatus(), after.controller or ControllerStatus()
    source = f" from {_where(old)}" if old.pod and old.pod != new.pod else ""
    return [PlannedEvent("Normal", "FailedOver", f"{_where(new)} has taken over as the controller{source}")]


def _where(controller: ControllerStatus) -> str:
    return f"{controller.pod} on {controller.node}" if controller.node else controller.pod


def _recovered(before: SlurmCluster, after: Recovered | None) -> list[PlannedEvent]:
    """Each recovery once, oldest first. There are several if no operator ran in between."""
    if after is None:
        return []
    known = {each.time for each in before.status.recovered.recoveries} if before.status.recovered else set()
    new = [each for each in after.recoveries if each.time not in known]
    return [each for recovery in new for each in _recovery_events(recovery, before.metadata.name)]


def _recovery_events(recovery: Recovery, cluster: str) -> list[PlannedEvent]:
    found = [each for outcome, groups in by_outcome(recovery).items() for each in _of_outcome(outcome, groups, cluster)]
    if recovery.more:
        words = f"{recovery.more} more jobs were found again; {ALL} in slurmctld's container names them all"
        found.append(PlannedEvent("Warning", "JobsRecovered", words))
    return found


def by_outcome(recovery: Recovery) -> dict[str, list[RecoveredJobs]]:
    """The jobs by outcome."""
    found: dict[str, list[RecoveredJobs]] = {}
    for group in recovery.groups:
        found.setdefault(group.outcome, []).append(group)
    return found


def _of_outcome(outcome: str, groups: Sequence[RecoveredJobs], cluster: str) -> list[PlannedEvent]:
    """Events that name all jobs, as many as that takes."""
    reason, warns, words = _OUTCOMES.get(outcome, ("JobsRecovered", True, outcome))
    advice = f"; 'seltzer status {cluster}' says what to do" if outcome == "held" else ""
    noun = "job" if sum(group.count for group in groups) == 1 else "jobs"
    head, tail = f"{noun} ", f": {words}{advice}"
    return [
        PlannedEvent("Warning" if warns else "Normal", reason, f"{head}{named}{tail}")
        for named in _named(groups, _LONGEST - len(f"{head}{tail}".encode()))
    ]


def _named(groups: Sequence[RecoveredJobs], room: int) -> list[str]:
    """Their IDs with reasons, in texts of at most `room` bytes."""
    texts: list[str] = []
    for group in groups:
        why = f" ({group.why.rstrip('.')})" if group.why else ""
        for first, piece in enumerate(job_ids.pieces(group.jobs)):
            # Another ID of the same group goes before the reason.
            longer = f"{texts[-1].removesuffix(why) if first else texts[-1]}, {piece}{why}" if texts else ""
            if longer and len(longer.encode()) <= room:
                texts[-1] = longer
            else:
                texts.append(f"{piece}{why}")
    return texts


def guard_events(before: SlurmClusterStatus, reported: Sequence[GuardEvent]) -> list[PlannedEvent]:
    """The guard's events after the newest known one; all of them if that one is no longer listed.

    Times are compared only for equality: another guard has another clock.
    """
    times = [each.time for each in reported]
    known = before.last_news_time
    first = times.index(known) + 1 if known in times else 0
    return [PlannedEvent("Normal", each.reason, each.message) for each in reported[first:]]


def _condition_changes(before: SlurmClusterStatus, after: SlurmClusterStatus) -> list[PlannedEvent]:
    """Events for changes of conditions that aren't failures: held, released, enough space again."""
    found = []
    old, new = (conditions.find(each.conditions, "ControllerReady") for each in (before, after))
    was_held, is_held = (each is not None and each.reason == "Held" for each in (old, new))
    if is_held and not was_held and new:
        found.append(PlannedEvent("Normal", "Held", new.message))
    if was_held and not is_held:
        found.append(PlannedEvent("Normal", "Released", "slurmctld is no longer held"))
    old, new = (conditions.find(each.conditions, "StateSafe") for each in (before, after))
    if old and new and (old.reason, new.status) == ("LowSpace", "True"):
        found.append(PlannedEvent("Normal", new.reason, new.message))
    return found
