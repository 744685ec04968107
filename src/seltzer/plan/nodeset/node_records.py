"""Slurm's records of a NodeSet's nodes: which are its own, and what becomes of those whose pods are gone.

A record outlives its pod. It keeps its jobs, and the drain that a person set; waiting jobs may name it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from seltzer.api.nodeset import NodeSet
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import Action, DeleteRecords, DownNodes
from seltzer.plan.nodeset import deletion, unreachable_pods
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.slurm_state import MARK, OURS
from seltzer.slurm.models import Node

CROWD = 20


def mark(nodeset: NodeSet) -> str:
    """What the records of a NodeSet's nodes say."""
    return f"{MARK}{nodeset.metadata.namespace}/{nodeset.metadata.name}"


def needs_mark(node: Node, mark: str) -> bool:
    """A comment of somebody else stays: setting it has had the record saved as well."""
    return not node.comment or (node.comment.startswith(MARK) and node.comment != mark)


def of(seen: NodeSetObservation) -> list[Node]:
    """Slurm's records of this NodeSet's nodes, with or without a pod."""
    ours = re.compile(rf"{re.escape(seen.nodeset.metadata.name)}-(0|[1-9][0-9]*)")
    return [
        node
        for name, node in (seen.slurm.nodes or {}).items()
        if ours.fullmatch(name) and slurm_state.is_dynamic(node) and _is_ours(node, seen)
    ]


def _is_ours(node: Node, seen: NodeSetObservation) -> bool:
    """Another NodeSet of this name may have had the nodes, or have them now: the mark tells whose they are."""
    if node.comment == mark(seen.nodeset):
        return True
    return seen.verdict.member and not node.comment.startswith(MARK)


def orphaned(seen: NodeSetObservation) -> list[Node]:
    """Records whose pods are gone."""
    pods = {pod.metadata.name for pod in seen.pods}
    return [node for node in of(seen) if node.name not in pods]


def can_wait(seen: NodeSetObservation) -> bool:
    """A crowd of pods is leaving: their records go together, afterwards, instead of some with every look at them."""
    return sum(pod_state.deleting(pod) and not unreachable_pods.is_stuck(pod, seen) for pod in seen.pods) > CROWD


def wants_named(seen: NodeSetObservation) -> bool:
    """Whether records could go if no waiting job names them."""
    return not can_wait(seen) and any(not node.occupied for node in orphaned(seen))


def steps(seen: NodeSetObservation, wanted: Sequence[str]) -> list[Action]:
    """Records whose pods are gone: their jobs go back to the queue, then they go too.

    Not one that others drained whose name is `wanted` for a new pod: their drain stays.
    """
    orphans = orphaned(seen)
    bereft = [node for node in orphans if node.occupied and node.base != "DOWN" and slurm_state.may_go_down(node)]
    reused = frozenset(wanted)
    kept = {node.name for node in orphans if node.name in reused and slurm_state.drained_by_others(node)}
    may_lose_jobs = deletion.may_lose_jobs(seen)
    named = frozenset[str]() if may_lose_jobs else seen.named
    over = sorted(node.name for node in orphans if not node.occupied and node.name not in kept)
    over = [] if named is None or can_wait(seen) else [name for name in over if name not in named]
    actions: list[Action] = []
    for reason in sorted({_why_lost(node) for node in bereft}):
        actions.append(DownNodes(tuple(sorted(each.name for each in bereft if _why_lost(each) == reason)), reason))
    if over:
        actions.append(DeleteRecords(tuple(over), unless_named=not may_lose_jobs))
    return actions


def _why_lost(node: Node) -> str:
    return slurm_state.kept_reason(node, f"{OURS}its pod is gone")


def is_free(name: str, seen: NodeSetObservation) -> bool:
    """Whether a new pod may have a name. Not while Slurm has a record of its predecessor that is about to be deleted:
    the new slurmd would lose its own.

    A record that others drained stays, and so does their drain; one that waiting jobs name stays for them.
    """
    if seen.slurm.nodes is None:
        return seen.slurm.gone  # no slurmctld has ever run, so it has no records
    node = seen.slurm.nodes.get(name)
    return node is None or slurm_state.drained_by_others(node) or name in (seen.named or ())
