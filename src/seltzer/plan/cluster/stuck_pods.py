"""Removes a controller's pod from a dead node: Kubernetes waits for the node forever, and the successor for the pod.

Kubernetes evicts a pod some seconds after its node became silent, often five and at times fifteen. If the guard is
silent too, there is nothing to wait for, and the successor can start.

Removing the pod object doesn't end processes that may still run on the node. That is safe here: the successor renames
the state directory, and from then on a slurmctld that was left behind can't save or acknowledge anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from seltzer.api.core import Lease, Node, Pod
from seltzer.plan import pod_state
from seltzer.plan.actions import PlannedEvent, RemoveStuckPod

# Covers the difference between clocks, and the delay of the watch.
_MARGIN = 2.0


def lost(pod: Pod, nodes: Mapping[str, Node], lease: Lease | None) -> bool:
    """Whether it is being deleted or has to be replaced, and its kubelet isn't known to handle that."""
    if not pod.spec.node_name:
        return False
    node = nodes.get(pod.spec.node_name)
    return not is_ready(node) if pod_state.deleting(pod) else not _reports(node) and _holds(pod, lease)


def removals(
    pods: tuple[Pod, ...], nodes: Mapping[str, Node], lease: Lease | None, now: float, *, silence: float, patient: bool
) -> list[RemoveStuckPod]:
    """The pods to remove now; if `patient`, only those that Kubernetes evicts.

    `silence`: for how many seconds the Lease hasn't changed, by our own clock, since the guard's may differ. `nodes`
    must be complete: a missing node counts as gone.
    """
    found = []
    for pod in pods:
        deleting = pod_state.deleting(pod)
        if not lost(pod, nodes, lease) or (patient and not deleting):
            continue
        over = deleting and (_grace_is_over(pod, now) or _is_replaced(pod, nodes, lease))
        if over or _is_silent(pod, nodes, lease, silence):
            metadata, node = pod.metadata, pod.spec.node_name
            proof = None if over else lease
            found.append(
                RemoveStuckPod(metadata.namespace, metadata.name, metadata.uid, node, _state(pod, nodes), proof)
            )
    return found


def event(removal: RemoveStuckPod) -> PlannedEvent:
    """The Event that is recorded before the removal."""
    node = removal.node
    taint = f"kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    advice = (
        f"if its volume stays attached there and the machine is certainly off, run '{taint}'"
        if removal.state != "gone"
        else "if its volume stays attached, delete its VolumeAttachment"
    )
    words = (
        f"pod {removal.name} on Kubernetes node {node}, which is {removal.state}, is removed so that another can take "
        f"its place; a slurmctld that still runs there can't change the state; {advice}"
    )
    return PlannedEvent("Warning", "RemovingStuckPod", words)


def is_ready(node: Node | None) -> bool:
    """Whether its kubelet reports it ready. None: the node doesn't exist."""
    return node is not None and _ready(node) == "True"


def _ready(node: Node) -> str:
    return next((each.status for each in node.status.conditions if each.type == "Ready"), "Unknown")


def _reports(node: Node | None) -> bool:
    """Whether its kubelet reports at all, even trouble: it may still end a pod, or start it again."""
    return node is not None and _ready(node) != "Unknown"


def _state(pod: Pod, nodes: Mapping[str, Node]) -> str:
    node = nodes.get(pod.spec.node_name)
    if node is None:
        return "gone"
    return "not ready" if _reports(node) else "not heard of"


def _grace_is_over(pod: Pod, now: float) -> bool:
    """The deletionTimestamp is when the grace period ends, not when it begins."""
    until = pod.metadata.deletion_timestamp
    return until is not None and now > datetime.fromisoformat(until).timestamp() + _MARGIN


def _holds(pod: Pod, lease: Lease | None) -> bool:
    return lease is not None and lease.spec.holder_identity == pod.metadata.name


def _is_replaced(pod: Pod, nodes: Mapping[str, Node], lease: Lease | None) -> bool:
    """Whether another pod is active and its kubelet is silent: waiting for its grace period gains nothing."""
    replaced = lease is not None and bool(lease.spec.holder_identity) and not _holds(pod, lease)
    return replaced and not _reports(nodes.get(pod.spec.node_name))


def _is_silent(pod: Pod, nodes: Mapping[str, Node], lease: Lease | None, silence: float) -> bool:
    """Whether it is active, and both its kubelet and its guard are silent."""
    if lease is None or not _holds(pod, lease) or _reports(nodes.get(pod.spec.node_name)):
        return False
    return silence > (lease.spec.lease_duration_seconds or 0) + _MARGIN
