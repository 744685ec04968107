"""Why a node takes jobs again, for people: the cause of its drain that is over."""

from __future__ import annotations

from seltzer.api.core import Pod
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.nodeset import checks
from seltzer.plan.slurm_state import OURS
from seltzer.slurm.models import Node

_MACHINE = "Kubernetes node "
_TURNED = {
    "is not ready": "is ready again",
    "is not heard of": "is heard of again",
    "is gone": "is back",
    "has no network": "has its network again",
}
_TAINTED = "has taint "


def why(pod: Pod, node: Node) -> str:
    """From the node's reason. Nothing is wrong with it any more; whether it is the same pod isn't known."""
    if slurm_state.down_by_outage(node):
        return "its slurmd answers again, the outage is over"
    reason = node.reason.removeprefix(OURS).partition(slurm_state.ADDED)[0]
    if reason.startswith(_MACHINE):
        name, _, matter = reason.removeprefix(_MACHINE).partition(" ")
        if name != pod.spec.node_name:
            return f"its pod is on {_MACHINE}{pod.spec.node_name} now, no longer on {name}"
        return f"{_MACHINE}{name} {_turned(matter)}"
    if check := checks.drained_by(node):
        return f"check {check} passes again, or isn't in the NodeSet any more"
    if reason.startswith("its pod is "):
        return "its pod is ready" if pod_state.ready(pod) else "nothing is the matter with its pod any more"
    if reason.startswith("slurmd's container "):
        return "slurmd's container runs again"
    return f"now it stays (it was drained for: {reason})"


def _turned(matter: str) -> str:
    if matter in _TURNED:
        return _TURNED[matter]
    if matter.startswith(_TAINTED):
        # The taint may still be there, and be tolerated now.
        return f"no longer repels it (taint {matter.removeprefix(_TAINTED)})"
    return f"is no longer {matter.removeprefix('is ')}"
