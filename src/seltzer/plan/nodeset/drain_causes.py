"""Why a Slurm node should take no new jobs: its machine is cordoned, tainted, unwell or leaving, or its pod is.

A machine is a Kubernetes node; a node is Slurm's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from seltzer.api.core import Node as KubeNode
from seltzer.api.core import Pod, Taint, Terminated
from seltzer.plan import pod_state
from seltzer.plan.slurm_state import ADDED, OURS
from seltzer.slurm.models import Node

# A machine that was unwell has to be well for so long before it takes jobs again; longer if it changes often.
CALM_SECONDS = 5.0
RESTLESS_SECONDS = 30.0
RESTLESS_CHANGES = 6
# A pod that we see unready for so long fails its check. Right after its start it is about to be ready.
UNREADY_SECONDS = 5.0

_MACHINE = f"{OURS}Kubernetes node "
_UNWELL = ("is not ready", "is not heard of", "has no network", "is under ")
_PRESSURE = {"MemoryPressure": "memory", "DiskPressure": "disk", "PIDPressure": "process"}
# These taints repeat conditions or spec.unschedulable.
_TOLD_ELSEWHERE = "node.kubernetes.io/"
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# Also drained with a toleration for everything: its jobs should end before the machine does.
_LEAVING = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/",
    _OUT_OF_SERVICE,
)
_REPELS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Machine:
    """A Kubernetes node; `node` is None if it doesn't exist."""

    node: KubeNode | None
    # For how many seconds it hasn't changed, by our own clock, and how often it changed in the last two minutes.
    calm: float = 0.0
    changes: int = 0

    @property
    def is_silent(self) -> bool:
        """Whether its kubelet is silent: it may be dead, cut off or asleep."""
        return self.node is None or _condition(self.node, "Ready") in ("Unknown", "")


def of(pod: Pod, machine: Machine | None, tolerations: Sequence[Mapping[str, Any]], unready_for: float = 0.0) -> str:
    """Why a pod's node should take no new jobs, as a reason for Slurm; empty if nothing is wrong."""
    why = of_machine(pod.spec.node_name, machine, tolerations) if machine is not None else ""
    return why or of_pod(pod, unready_for)


def of_machine(name: str, machine: Machine, tolerations: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong with a machine, as a reason for Slurm; empty if nothing is."""
    matter = words(machine.node, tolerations)
    return f"{_MACHINE}{name} {matter}" if matter else ""


def words(node: KubeNode | None, tolerations: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong with it; empty if nothing is."""
    if node is None:
        return "is gone"
    ready = _condition(node, "Ready")
    if ready != "True":
        return "is not ready" if ready == "False" else "is not heard of"
    if node.metadata.deletion_timestamp is not None:
        return "is being removed"
    if leaving := next((taint for taint in node.spec.taints if _leaves(taint)), None):
        return f"is about to be removed (taint {leaving.key})"
    if node.spec.unschedulable:
        return "is cordoned"
    if _condition(node, "NetworkUnavailable") == "True":
        return "has no network"
    for kind, what in _PRESSURE.items():
        if _condition(node, kind) == "True":
            return f"is under {what} pressure"
    repelling = (taint for taint in node.spec.taints if _repels(taint) and not tolerates(tolerations, taint))
    if taint := next(repelling, None):
        value = f"={taint.value}" if taint.value else ""
        return f"has taint {taint.key}{value}:{taint.effect}"
    return ""


def of_pod(pod: Pod, unready_for: float) -> str:
    """What is wrong with a pod whose slurmd runs, as a reason for Slurm; empty if nothing is.

    `unready_for` is for how many seconds we have seen it unready, by our own clock: its kubelet's may be hours off.
    """
    if pod_state.deleting(pod):
        return f"{OURS}its pod is being deleted"
    if turns_unready(pod) and unready_for >= UNREADY_SECONDS:
        return f"{OURS}its pod is not ready"
    return ""


def turns_unready(pod: Pod) -> bool:
    """Whether its Ready condition is set and false: if that lasts, it fails its check."""
    return not pod_state.ready(pod) and pod_state.ready_since(pod) > 0


def unready(pod: Pod, node: Node) -> tuple[str | float, ...]:
    """A value that stays the same while a pod and its slurmd fail their check without a break.

    It depends on the Ready condition alone: the conditions that we write don't count. A slurmd that restarts gets the
    full time again.
    """
    return ("unready", pod.metadata.uid, pod_state.ready_since(pod), node.slurmd_started or 0.0)


def ended(pod: Pod, node: Node | None = None) -> str:
    """Why slurmd's container doesn't run although it did, as a reason for Slurm: none of its jobs can still run.

    A kubelet may report a restart late, and jobs may run by then: Slurm knows when its slurmd started.
    """
    for status in pod.status.container_statuses:
        if status.name != "slurmd":
            continue
        over = status.state.terminated
        waiting = status.state.waiting if status.restart_count or status.last_state.terminated else None
        last = over or (status.last_state.terminated if waiting else None)
        if not (over or waiting) or (node is not None and _is_newer(node, last)):
            return ""
        why = (last.reason if last else "") or (waiting.reason if waiting else "") or "ended"
        how = f" with exit code {last.exit_code}" if last and last.exit_code else ""
        times = f", {status.restart_count + 1} times" if status.restart_count else ""
        return f"{OURS}slurmd's container ended{how} ({why}){times}"
    return ""


def _is_newer(node: Node, last: Terminated | None) -> bool:
    """Whether the registered slurmd is newer. Both times are from the clock of their machine."""
    if last is None or not last.finished_at or node.slurmd_started is None:
        return True  # unknown
    return node.slurmd_started >= int(datetime.fromisoformat(last.finished_at).timestamp())


def is_over(node: Node, machine: Machine | None) -> bool:
    """Whether a drain of ours whose cause is gone can be undone or get another reason now. Not while the machine
    changes often, nor while it is unknown."""
    if not node.reason.startswith(_MACHINE):
        return True
    if machine is None:
        return False
    if machine.changes >= RESTLESS_CHANGES:
        return machine.calm >= RESTLESS_SECONDS
    return machine.calm >= CALM_SECONDS or not any(f" {each}" in node.reason for each in _UNWELL)


def is_cause(reason: str) -> bool:
    """Whether we drained a node because of its machine or its pod, and not to remove it."""
    return reason.startswith((_MACHINE, f"{OURS}its pod is ", f"{OURS}slurmd's container "))


def is_of_pod(cause: str) -> bool:
    """Whether the cause is the pod alone. The reason of a node that is down says more than that."""
    return not cause.startswith(_MACHINE)


def tells(reason: str, cause: str) -> bool:
    """Whether a node's reason is this cause; slurmctld may have added to it."""
    return reason == cause or reason.startswith(cause + ADDED)


def _condition(node: KubeNode, kind: str) -> str:
    return next((each.status for each in node.status.conditions if each.type == kind), "")


def _leaves(taint: Taint) -> bool:
    return taint.effect in _REPELS and taint.key.startswith(_LEAVING)


def _repels(taint: Taint) -> bool:
    return taint.effect in _REPELS and not taint.key.startswith(_TOLD_ELSEWHERE)


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Taint) -> bool:
    """As Kubernetes does. tolerationSeconds doesn't count: jobs may take any time."""
    for each in tolerations:
        if not isinstance(each, Mapping):
            continue  # a user wrote it, and it isn't validated
        if each.get("effect") not in (None, "", taint.effect):
            continue
        exists = each.get("operator") == "Exists"
        if not each.get("key"):
            if exists:
                return True
        elif each["key"] == taint.key and (exists or str(each.get("value") or "") == taint.value):
            return True
    return False
