"""Slurm's state of a node, on its pod: for people and `kubectl wait`, for autoscalers and the disruption budget.

A job that starts shows at once. An idle node shows a little later, so that short jobs one after the other don't cost a
write each; a drained and empty node shows at once, since somebody waits for that. While many nodes register, those that
are idle show it afterwards: each such write would hold up another node. When Slurm is unreachable, the conditions are
Unknown: jobs may have started or ended since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from seltzer.api.core import ObjectCondition, Pod
from seltzer.api.labels import (
    BUSY,
    DELETION_COST,
    FREE_AT,
    SAFE_TO_EVICT,
    SLURM_BUSY,
    SLURM_READY,
    UNLIMITED,
)
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import PatchPods, PodPatch
from seltzer.slurm.models import Node

# A node counts as busy for so long after its last job.
LINGER_SECONDS = 5
REGISTERS_SECONDS = 5
CROWD = 100
CROWD_SECONDS = 30
# Slurm gives deadlines in seconds left: the same deadline differs a little each time.
_JITTER = 15.0
# Slurm takes limits of thousands of years, which no date can hold.
_NEVER = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
_LONGEST = 512
NOT_REGISTERED, FORGOTTEN, UNREACHABLE = "NotRegistered", "Forgotten", "Unreachable"
_SINCE = "Slurm can't be asked: slurmrestd or slurmctld doesn't answer; before that: "


def changes(
    pods: Sequence[Pod],
    nodes: Mapping[str, Node] | None,
    free_at: Mapping[str, float | None],
    clock: int | None,
    now: str,
    theirs: Collection[str] = (),
    arriving: int = 0,
) -> tuple[PatchPods, ...]:
    """Patches for pods that don't show Slurm's state. `clock` is slurmctld's; `now` is ours, and is written.

    `theirs` are annotations that the user sets in the podTemplate: they stay as they are. `arriving` is how many nodes
    have yet to register.
    """
    if nodes is None:
        return ()
    patches = [
        patch
        for pod in pods
        if arriving <= CROWD or not _can_wait(pod, nodes.get(pod.metadata.name), now)
        if not pod_state.finished(pod) and (pod.metadata.name in nodes or _find(pod, SLURM_READY) or _waits(pod, now))
        if (patch := _patch(pod, nodes.get(pod.metadata.name), free_at, clock, now, theirs))
    ]
    return (PatchPods(tuple(patches)),) if patches else ()


def unknown(pods: Sequence[Pod], now: str, theirs: Collection[str] = ()) -> tuple[PatchPods, ...]:
    """Patches for pods whose state is no longer known. The last known state stays in the messages, for people.

    The label of busy pods stays as it is: the disruption budget protects all pods now.
    """
    found = (_unknown(pod, now, theirs) for pod in pods if not pod_state.finished(pod))
    patches = tuple(patch for patch in found if patch)
    return (PatchPods(patches),) if patches else ()


def _unknown(pod: Pod, now: str, theirs: Collection[str]) -> PodPatch | None:
    known = [each for kind in (SLURM_READY, SLURM_BUSY) if (each := _find(pod, kind))]
    conditions = tuple(
        ObjectCondition(
            type=each.type,
            status="Unknown",
            reason=UNREACHABLE,
            message=_SINCE + ": ".join(part for part in (each.reason, each.message) if part),
            last_transition_time=now,
        )
        for each in known
        if each.status != "Unknown"
    )
    unsafe = known and SAFE_TO_EVICT not in theirs and pod.metadata.annotations.get(SAFE_TO_EVICT) != "false"
    annotations = {SAFE_TO_EVICT: "false"} if unsafe else {}
    return PodPatch(pod.metadata.name, pod.metadata.uid, {}, annotations, conditions) if conditions or unsafe else None


def last_told(pod: Pod) -> tuple[str, str]:
    """The last known state of its node, and the reason; empty if there is none."""
    found = _find(pod, SLURM_READY)
    if found is None:
        return "", ""
    if found.status != "Unknown":
        return found.reason, found.message
    state, _, why = found.message.partition(_SINCE)[2].partition(": ")
    return state, why


def _can_wait(pod: Pod, node: Node | None, now: str) -> bool:
    """Whether it would only show that its node has registered and is idle."""
    idle = node is not None and slurm_state.is_available(node) and not node.occupied
    return idle and _find(pod, SLURM_READY) is None and _ready_for(pod, now) < CROWD_SECONDS


def _waits(pod: Pod, now: str) -> bool:
    """Whether it has been ready for longer than a slurmd takes to register."""
    return pod_state.ready(pod) and _ready_for(pod, now) > REGISTERS_SECONDS


def _ready_for(pod: Pod, now: str) -> float:
    return datetime.fromisoformat(now).timestamp() - pod_state.ready_since(pod)


def lingers(pods: Sequence[Pod], nodes: Mapping[str, Node], clock: int | None) -> bool:
    """Whether some pod has to be patched soon although nothing else changes."""
    return any(
        not node.occupied and _is_busy(pod, node, clock) for pod in pods if (node := nodes.get(pod.metadata.name))
    )


def was_forgotten(pod: Pod) -> ObjectCondition | None:
    """Its condition, if Slurm had a record of it and has none any more."""
    found = _find(pod, SLURM_READY)
    return found if found and found.reason == FORGOTTEN else None


def _is_busy(pod: Pod, node: Node, clock: int | None) -> bool:
    """Whether jobs are on it, or were a moment ago: the next one is likely to follow at once."""
    if node.occupied:
        return True
    if BUSY not in pod.metadata.labels or node.drained or node.base == "DOWN":
        return False
    if clock is None or node.last_busy is None:
        return False
    return 0 <= clock - node.last_busy < LINGER_SECONDS


def _patch(
    pod: Pod,
    node: Node | None,
    free_at: Mapping[str, float | None],
    clock: int | None,
    now: str,
    theirs: Collection[str],
) -> PodPatch | None:
    busy = node is not None and _is_busy(pod, node, clock)
    labels = {BUSY: "true" if busy else None}
    annotations = {
        DELETION_COST: "1000" if busy else "0",
        SAFE_TO_EVICT: "false" if busy else "true",
        FREE_AT: _free_at(pod, free_at) if busy else None,
    }
    status, reason, message = _ready(pod, node, busy)
    why = f"its jobs end by {annotations[FREE_AT]}" if annotations[FREE_AT] not in (None, UNLIMITED) else ""
    conditions = (
        _condition(pod, SLURM_READY, status, reason, message, now),
        _condition(pod, SLURM_BUSY, "True" if busy else "False", "JobsRun" if busy else "NoJob", why, now),
    )
    patch = PodPatch(
        pod.metadata.name,
        pod.metadata.uid,
        {key: value for key, value in labels.items() if pod.metadata.labels.get(key) != value},
        {
            key: value
            for key, value in annotations.items()
            if pod.metadata.annotations.get(key) != value and key not in theirs
        },
        tuple(each for each in conditions if each is not None),
    )
    return patch if patch.labels or patch.annotations or patch.conditions else None


def _free_at(pod: Pod, free_at: Mapping[str, float | None]) -> str | None:
    """When the last job reaches its limit. The present annotation stays if that is unknown or hardly differs."""
    present = pod.metadata.annotations.get(FREE_AT)
    if pod.metadata.name not in free_at:
        return present
    at = free_at[pod.metadata.name]
    if at is None or at >= _NEVER:
        return UNLIMITED
    if present and present != UNLIMITED:
        try:
            if abs(datetime.fromisoformat(present).timestamp() - at) <= _JITTER:
                return present
        except (ValueError, OverflowError):
            pass  # written by somebody else
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ready(pod: Pod, node: Node | None, busy: bool) -> tuple[str, str, str]:
    if node is None:
        knew = _find(pod, SLURM_READY) is not None and last_told(pod)[0] != NOT_REGISTERED
        words = "Slurm doesn't know it any more" if knew else "Slurm doesn't know it yet"
        return "False", FORGOTTEN if knew else NOT_REGISTERED, words
    status = "True" if slurm_state.is_available(node) else "False"
    # We act as SlurmUser, as Slurm itself does.
    person = node.reason_set_by_user not in ("", "slurm")
    who = f" (set by {node.reason_set_by_user})" if node.reason and person else ""
    return status, _state(node, busy), f"{node.reason}{who}"[:_LONGEST] if status == "False" else ""


def _state(node: Node, busy: bool) -> str:
    states = set(node.state)
    if "DOWN" in states:
        return "Down"
    if node.drained:
        return "Draining" if node.occupied else "Drained"
    if "NOT_RESPONDING" in states:
        return "NotResponding"
    if slurm_state.is_available(node):
        return "InUse" if busy else "Idle"
    # All nodes of ours are dynamic.
    flags = [state for state in node.state if not state.startswith("DYNAMIC")]
    return "".join(part.capitalize() for part in (flags[-1] if flags else "UNKNOWN").split("_"))


def _find(pod: Pod, kind: str) -> ObjectCondition | None:
    return next((each for each in pod.status.conditions if each.type == kind), None)


def _condition(pod: Pod, kind: str, status: str, reason: str, message: str, now: str) -> ObjectCondition | None:
    """The condition to write; None if it is up to date."""
    old = _find(pod, kind)
    if old and (old.status, old.reason, old.message) == (status, reason, message):
        return None
    since = old.last_transition_time if old and (old.status, old.reason) == (status, reason) else now
    return ObjectCondition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)
