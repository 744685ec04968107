"""What a pod's status says."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime

from seltzer.api.core import ContainerStatus, ObjectCondition, Pod

_FINISHED = frozenset({"Succeeded", "Failed"})
# Waiting for these reasons ends by itself.
_PATIENCE = frozenset({"", "ContainerCreating", "PodInitializing"})
_ADVICE = {
    "ErrImagePull": "check the image's name and the registry's credentials",
    "ImagePullBackOff": "check the image's name and the registry's credentials",
    "ErrImageNeverPull": "load the image onto the nodes, or change imagePullPolicy",
    "InvalidImageName": "correct the image's name",
    "CrashLoopBackOff": "see 'seltzer logs'",
    "Unschedulable": "add Kubernetes nodes, or ask for less",
    "VolumePending": "'kubectl get pvc' shows its claims",
}
# The scheduler's message for a pod that may not share a machine.
_APART = "anti-affinity"
_ALONE = "nodes without limits on CPU and memory never share a Kubernetes node: add some, or set spec.resources.limits"
# The scheduler's message for a pod whose claim has no volume yet. Most claims get one within seconds.
_UNBOUND = "unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True)
class Trouble:
    """Why a pod won't become ready by itself."""

    reason: str
    message: str


def deleting(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def finished(pod: Pod) -> bool:
    """Whether its containers ended for good: it was evicted, or its node shut down."""
    return pod.status.phase in _FINISHED


def ready(pod: Pod) -> bool:
    return not deleting(pod) and any(
        condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions
    )


def ready_since(pod: Pod) -> float:
    """When its readiness last changed."""
    times = [_seconds(each.last_transition_time) for each in pod.status.conditions if each.type == "Ready"]
    return max(times, default=0.0)


def never_started(pod: Pod) -> bool:
    """Whether no container of it has ever run, so that no job can have: it waits for a node, a volume or an image.

    True of this resourceVersion only: it may start at any moment.
    """
    if pod.status.phase not in ("", "Pending"):
        return False
    return all(
        status.state.waiting is not None
        and status.restart_count == 0
        and status.last_state.terminated is None
        and status.state.terminated is None
        for status in pod.status.container_statuses
    )


def awaits_volumes(pod: Pod) -> bool:
    """Whether its machine hasn't mounted its volumes or set up its network yet. Only Kubernetes since 1.29 tells."""
    told = (each.status for each in pod.status.conditions if each.type == "PodReadyToStartContainers")
    return never_started(pod) and "False" in told


def settled_for(pod: Pod, now: float) -> float:
    """For how many seconds its conditions haven't changed; 0 if it has none."""
    times = [_seconds(each.last_transition_time) for each in _theirs(pod)]
    return max(0.0, now - max(times)) if times else 0.0


def settled(pod: Pod) -> Hashable:
    """A value that changes when its conditions do, whatever clock they are from."""
    return ("settled", pod.metadata.uid, *((each.type, each.last_transition_time) for each in _theirs(pod)))


def _theirs(pod: Pod) -> list[ObjectCondition]:
    """Its conditions without ours, which show the state of its Slurm node."""
    return [each for each in pod.status.conditions if not each.type.startswith("seltzer.dev/")]


def _seconds(time: str | None) -> float:
    return datetime.fromisoformat(time).timestamp() if time else 0.0


def trouble(pod: Pod) -> Trouble | None:
    """What keeps it from becoming ready; None if it only needs time."""
    if deleting(pod):
        return None
    if pod.status.phase == "Failed":
        return Trouble(pod.status.reason or "Failed", f"pod {pod.metadata.name}: {pod.status.message or 'failed'}")
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason:
            reason = "VolumePending" if _UNBOUND in condition.message else condition.reason
            return _described(pod, reason, condition.message)
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in _PATIENCE:
            return _described(pod, waiting.reason, _last_words(status) or waiting.message)
    return None


def first_trouble(pods: Iterable[Pod]) -> Trouble | None:
    """The trouble of the first pod, by name, that has one."""
    ordered = sorted(pods, key=lambda pod: pod.metadata.name)
    return next((found for pod in ordered if (found := trouble(pod))), None)


def _described(pod: Pod, reason: str, message: str) -> Trouble:
    words = " ".join(message.split())[:600] or reason
    advice = _ALONE if reason == "Unschedulable" and _APART in message else _ADVICE.get(reason)
    return Trouble(reason, f"pod {pod.metadata.name}: {words}" + (f"; {advice}" if advice else ""))


def _last_words(status: ContainerStatus) -> str:
    ended = status.last_state.terminated
    if ended is None:
        return ""
    how = f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
    words = ended.message.strip().splitlines()
    return f"{status.name} ended with {how} ({ended.reason})" + (f": {words[-1]}" if words else "")
