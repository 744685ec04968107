"""Pods whose kubelet and slurmd are both silent.

One of the two alone proves nothing. The containers of a silent kubelet keep running, and a slurmd that slurmctld can't
reach may still run its jobs: suspects are asked.
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

# A pod is gone soon after its grace period, unless its kubelet is dead.
STUCK_SECONDS = 60.0


def is_heard(pod: Pod, seen: NodeSetObservation) -> bool:
    """Whether its kubelet is known to be alive."""
    machine = seen.machine(pod)
    return machine is not None and not machine.is_silent


def is_stuck(pod: Pod, seen: NodeSetObservation) -> bool:
    """Whether it should be gone by now, or its kubelet is silent. Its name isn't free, and isn't waited for."""
    until = pod.metadata.deletion_timestamp
    if until is None:
        return False
    machine = seen.machine(pod)
    late = seen.now - datetime.fromisoformat(until).timestamp()
    return late > STUCK_SECONDS or (machine is not None and machine.is_silent)


def suspects(seen: NodeSetObservation) -> dict[str, str]:
    """The nodes to ask, with their addresses: their kubelet is silent, or slurmctld can't reach them. Nodes without an
    address can't be asked."""
    nodes = seen.slurm.nodes or {}
    found: dict[str, str] = {}
    for pod in seen.pods:
        name, machine = pod.metadata.name, seen.machine(pod)
        node = nodes.get(name)
        silent = (machine is not None and machine.is_silent) or (node is not None and slurm_state.down_by_outage(node))
        # Hardly any of thousands get here: the expensive checks come last.
        if not silent or pod_state.finished(pod) or (pod_state.deleting(pod) and not _has_jobs_to_lose(node)):
            continue
        if _is_ip(address := _address(pod, node)):
            found[name] = address
    return found


def _address(pod: Pod, node: Node | None) -> str:
    """The address of its slurmd, from Kubernetes or else from Slurm, which may know only a name."""
    return pod.status.pod_ip or (node.address if node else "")


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _has_jobs_to_lose(node: Node | None) -> bool:
    """Whether there is something to do if its pod, which is being deleted, is lost."""
    return node is not None and node.occupied and node.base != "DOWN"


def is_lost(pod: Pod, seen: NodeSetObservation, suspects: Mapping[str, str]) -> bool:
    """Whether both its kubelet and its slurmd are silent, or its kubelet is and it never had an address."""
    machine, name = seen.machine(pod), pod.metadata.name
    if not pod.spec.node_name or machine is None or not machine.is_silent:
        return False
    if name in suspects:
        return seen.answers.get(name) is False
    nodes = seen.slurm.nodes
    return nodes is not None and not pod_state.deleting(pod) and not _address(pod, nodes.get(name))


def steps(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Action]:
    """Their jobs go back into the queue, then their nodes are drained, then the pods are deleted.

    A deletion ends nothing while the kubelet is away: the object stays until it is back, and so does its name.
    """
    if seen.slurm.nodes is None:
        return []
    silent: dict[str, str] = {}
    down: dict[str, list[str]] = {}
    drain: dict[str, list[str]] = {}
    leaving: list[PodRef] = []
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
            leaving.append(PodRef(name, pod.metadata.uid))
    actions: list[Action] = [
        DownNodes(tuple(sorted(names)), why, {name: silent[name] for name in names if name in silent})
        for why, names in sorted(down.items())
    ]
    actions += [DrainNodes(tuple(sorted(names)), why) for why, names in sorted(drain.items())]
    return [*actions, DeletePods(tuple(leaving), ask=True)] if leaving else actions
