"""A controller's pod on a dead Kubernetes node: Kubernetes waits for that node for ever, and its successor for the pod.

Removing the pod's object doesn't end what may still run on the node. That is safe here: whoever takes over renames the
state directory, and a slurmctld that was left behind can't save or acknowledge anything from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from seltzer.api.core import Lease, Node, Pod
from seltzer.plan import pods as kube_pods
from seltzer.plan.actions import Happening, RemoveStuckPod

# Beyond what clocks may differ by.
_MARGIN = 2.0


def lost(pod: Pod, nodes: Mapping[str, Node]) -> bool:
    """It should go, and nobody on its node is known to see to it."""
    return kube_pods.deleting(pod) and bool(pod.spec.node_name) and not is_ready(nodes.get(pod.spec.node_name))


def removals(pods: tuple[Pod, ...], nodes: Mapping[str, Node], lease: Lease | None, now: float) -> list[RemoveStuckPod]:
    """The pods that are to be removed now. A node is known to be gone only if the nodes are known at all."""
    return [
        RemoveStuckPod(
            pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, pod.spec.node_name, _state(pod, nodes)
        )
        for pod in pods
        if lost(pod, nodes) and (_grace_is_over(pod, now) or _is_silent(pod, nodes, lease, now))
    ]


def told(removal: RemoveStuckPod) -> Happening:
    node = removal.node
    taint = f"kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    advice = (
        f"if its volume stays attached there and the machine is certainly off, run '{taint}'"
        if removal.state != "gone"
        else "if its volume stays attached, delete its VolumeAttachment"
    )
    words = (
        f"pod {removal.name} couldn't end on Kubernetes node {node}, which is {removal.state}, and was removed so that "
        f"another can take its place; a slurmctld that still runs there can't change the state; {advice}"
    )
    return Happening("Warning", "StuckPodRemoved", words)


def is_ready(node: Node | None) -> bool:
    """Whether its kubelet says that it is well; None is a node that isn't there."""
    return node is not None and _ready(node) == "True"


def _ready(node: Node) -> str:
    return next((each.status for each in node.status.conditions if each.type == "Ready"), "Unknown")


def _state(pod: Pod, nodes: Mapping[str, Node]) -> str:
    node = nodes.get(pod.spec.node_name)
    if node is None:
        return "gone"
    return "not ready" if _ready(node) == "False" else "not heard of"


def _grace_is_over(pod: Pod, now: float) -> bool:
    """The API server's deletionTimestamp is when the grace ends, not when it begins."""
    return now > _seconds(pod.metadata.deletion_timestamp) + _MARGIN


def _is_silent(pod: Pod, nodes: Mapping[str, Node], lease: Lease | None, now: float) -> bool:
    """Neither its kubelet nor its guard is heard of, or it has been replaced: waiting for its grace helps nobody."""
    node = nodes.get(pod.spec.node_name)
    if node is not None and _ready(node) == "False":
        return False  # its kubelet speaks, and may be about to end it
    if lease is None or lease.spec.holder_identity != pod.metadata.name:
        return lease is not None and bool(lease.spec.holder_identity)
    lasts = lease.spec.lease_duration_seconds or 0
    return now > _seconds(lease.spec.renew_time) + lasts + _MARGIN


def _seconds(time: str | None) -> float:
    try:
        return datetime.fromisoformat(time).timestamp() if time else 0.0
    except ValueError:
        return 0.0
