"""Pods that nobody hears of: neither their kubelet nor their slurmd.

One of the two alone is no proof. A kubelet that is away leaves its containers running, and a slurmd that slurmctld
doesn't reach may still run its jobs: so whoever is in doubt is asked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime

from seltzer.api.core import Pod
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import Action, DeletePods, DownNodes, DrainNodes, PodRef
from seltzer.plan.nodeset import drain_causes
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.slurm.models import Node

# A pod is gone soon after its grace is over, unless nobody is there to end it.
STUCK_SECONDS = 60.0


def is_heard(pod: Pod, seen: NodeSetObservation) -> bool:
    """Whether its kubelet is there, as far as Kubernetes knows."""
    machine = seen.machine(pod)
    return machine is not None and not machine.is_silent


def is_stuck(pod: Pod, seen: NodeSetObservation) -> bool:
    """It should be gone for a while, or nobody is there to end it. Its name isn't free, and isn't waited for."""
    until = pod.metadata.deletion_timestamp
    if until is None:
        return False
    machine = seen.machine(pod)
    late = seen.now - datetime.fromisoformat(until).timestamp()
    return late > STUCK_SECONDS or (machine is not None and machine.is_silent)


def doubtful(seen: NodeSetObservation) -> dict[str, str]:
    """The nodes, with their addresses, that have to be asked whether they are there: Kubernetes doesn't hear of their
    machine, or slurmctld of them. Without those that nobody can ask, since only a name of them is known."""
    nodes = seen.slurm.nodes or {}
    found: dict[str, str] = {}
    for pod in seen.pods:
        name, machine = pod.metadata.name, seen.machine(pod)
        node = nodes.get(name)
        silent = (machine is not None and machine.is_silent) or (node is not None and slurm_state.down_by_outage(node))
        # Of thousands hardly any: so what costs more is asked of these only.
        if not silent or pod_state.finished(pod) or (pod_state.deleting(pod) and not _has_jobs_to_lose(node)):
            continue
        if _is_ip(address := _address(pod, node)):
            found[name] = address
    return found


def _address(pod: Pod, node: Node | None) -> str:
    """Where its slurmd is, by Kubernetes or else by Slurm; Slurm may know no more than a name."""
    return pod.status.pod_ip or (node.address if node else "")


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _has_jobs_to_lose(node: Node | None) -> bool:
    """Whether something is to be done about it when its pod, which is being deleted, is lost."""
    return node is not None and node.occupied and node.base != "DOWN"


def is_lost(pod: Pod, seen: NodeSetObservation, doubts: Mapping[str, str]) -> bool:
    """Neither its kubelet nor its slurmd is heard of; nor was it ever, of a pod that is nowhere."""
    machine, name = seen.machine(pod), pod.metadata.name
    if not pod.spec.node_name or machine is None or not machine.is_silent:
        return False
    if name in doubts:
        return seen.answers.get(name) is False
    nodes = seen.slurm.nodes
    return nodes is not None and not pod_state.deleting(pod) and not _address(pod, nodes.get(name))


def steps(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Action]:
    """Their jobs go back into the queue; then no new ones may come; then the pods go, whenever their machine is back.

    Nothing of a pod ends by its deletion while its kubelet is away. Its object stays until then, and so does its name.
    """
    if seen.slurm.nodes is None:
        return []
    silent: dict[str, str] = {}
    down: dict[str, list[str]] = {}
    drain: dict[str, list[str]] = {}
    goners: list[PodRef] = []
    for pod in pods:
        name, node = pod.metadata.name, seen.slurm.nodes.get(pod.metadata.name)
        why = drain_causes.of(pod, seen.machine(pod), seen.tolerations)
        if _is_ip(address := _address(pod, node)):
            silent[name] = address
        if node is not None and node.base != "DOWN":
            if slurm_state.may_go_down(node):
                down.setdefault(slurm_state.kept_reason(node, why), []).append(name)
        elif node is not None and not node.drained:
            drain.setdefault(slurm_state.kept_reason(node, why), []).append(name)
        elif not pod_state.deleting(pod) and (node is None or not node.occupied):
            goners.append(PodRef(name, pod.metadata.uid))
    actions: list[Action] = [
        DownNodes(tuple(sorted(names)), why, {name: silent[name] for name in names if name in silent})
        for why, names in sorted(down.items())
    ]
    actions += [DrainNodes(tuple(sorted(names)), why) for why, names in sorted(drain.items())]
    return [*actions, DeletePods(tuple(goners), ask=True)] if goners else actions
