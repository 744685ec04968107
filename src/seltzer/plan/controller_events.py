"""What happened to the controller, told once: by what the status knew before and knows now."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.api.status import ControllerStatus, Crash, Recovered, SlurmClusterStatus
from seltzer.plan import conditions
from seltzer.plan.actions import Happening

# What became of jobs, as one word for programs, whether a person has to look, and a beginning for the list of them.
_OUTCOMES = {
    "put-back": ("JobsPutBack", False, "back in the queue under their IDs, after slurmctld had been made to forget"),
    "held": ("JobsHeld", True, "in the queue and held, since nobody can know whether they ran"),
    "kept": ("JobsKept", True, "couldn't be put back; scripts and environments are in lost/ on the state volume"),
    "ran": ("JobsRan", False, "had ended before slurmctld saved that; nothing is to be done"),
    "lost": ("JobsLost", True, "interactive, or without a script on the volume; their users have to start them again"),
    "cancelled": ("JobsCancelled", False, "had been cancelled before slurmctld saved that; nothing is to be done"),
}
_MOST_NAMED = 60
_FRAMES = 3


def happenings(before: SlurmCluster, after: SlurmClusterStatus) -> list[Happening]:
    """All of them, in the order in which they happen."""
    known = before.status
    return [
        *_crashed(known.crash or None, after.crash or None),
        *_failed_over(known, after),
        *_recovered(before, after.recovered or None),
        *_turned(known, after),
    ]


def _crashed(before: Crash | None, after: Crash | None) -> list[Happening]:
    """At once, and again when it is known where it was: gdb takes a moment, and whoever waits for slurmctld doesn't."""
    if after is None:
        return []
    if before is None or before.time != after.time:
        return [Happening("Warning", "Crashed", obituary(after))]
    if after.backtrace and not before.backtrace:
        words = f"slurmctld, which {after.how or 'ended'}, was {_place(after)}"
        return [Happening("Warning", "Backtrace", words)]
    return []


def obituary(crash: Crash) -> str:
    """A crash in a line: how, the last words, and the first frames."""
    words = [f"slurmctld {crash.how or 'ended'}"]
    if lines := crash.lines.splitlines():
        words.append(f"its last words: {lines[-1].strip()}")
    if crash.backtrace:
        words.append(_place(crash))
    if crash.core:
        words.append(f"its core is {crash.core}")
    return "; ".join(words)


def _place(crash: Crash) -> str:
    """The first frames that have a name, if any has."""
    frames = [frame.strip() for frame in crash.backtrace.splitlines()]
    named = [frame for frame in frames if " ?? " not in frame]
    return "in " + " < ".join((named or frames)[:_FRAMES])


def _failed_over(before: SlurmClusterStatus, after: SlurmClusterStatus) -> list[Happening]:
    if after.last_failover_time is UNSET or after.last_failover_time == before.last_failover_time:
        return []
    old, new = before.controller or ControllerStatus(), after.controller or ControllerStatus()
    source = f" from {_where(old)}" if old.pod and old.pod != new.pod else ""
    return [Happening("Normal", "FailedOver", f"{_where(new)} has taken over as the controller{source}")]


def _where(controller: ControllerStatus) -> str:
    return f"{controller.pod} on {controller.node}" if controller.node else controller.pod


def _recovered(before: SlurmCluster, after: Recovered | None) -> list[Happening]:
    if after is None:
        return []
    known = before.status.recovered or None
    old = by_outcome(known) if known and known.time == after.time else {}
    return [
        _told(outcome, ids, after.more, before.metadata.name)
        for outcome, ids in by_outcome(after).items()
        if old.get(outcome) != ids
    ]


def by_outcome(recovered: Recovered) -> dict[str, list[str]]:
    """The IDs of the jobs, by what became of them."""
    found: dict[str, list[str]] = {}
    for job in recovered.jobs:
        found.setdefault(job.outcome, []).append(job.id)
    return found


def _told(outcome: str, ids: Sequence[str], more: int, cluster: str) -> Happening:
    reason, warns, words = _OUTCOMES.get(outcome, ("JobsRecovered", True, outcome))
    left = len(ids[_MOST_NAMED:]) + more
    named = ", ".join(ids[:_MOST_NAMED]) + (f" and more ({left} in all)" if left else "")
    noun = "job" if len(ids) == 1 else "jobs"
    advice = f"; 'seltzer status {cluster}' says what to do" if outcome == "held" else ""
    return Happening("Warning" if warns else "Normal", reason, f"{noun} {named}: {words}{advice}")


def _turned(before: SlurmClusterStatus, after: SlurmClusterStatus) -> list[Happening]:
    """Conditions that turned in a way that isn't simply for the worse."""
    told = []
    old, new = (conditions.find(each.conditions, "ControllerReady") for each in (before, after))
    was_held, is_held = (each is not None and each.reason == "Held" for each in (old, new))
    if is_held and not was_held and new:
        told.append(Happening("Normal", "Held", new.message))
    if was_held and not is_held:
        told.append(Happening("Normal", "Released", "slurmctld is no longer held"))
    old, new = (conditions.find(each.conditions, "StateSafe") for each in (before, after))
    if old and new and (old.reason, new.status) == ("LowSpace", "True"):
        told.append(Happening("Normal", new.reason, new.message))
    return told
