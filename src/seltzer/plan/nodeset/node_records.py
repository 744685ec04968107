"""Slurm's records of a NodeSet's nodes: which are its own, and what happens to those whose pods are gone.

A record outlives its pod. It keeps its jobs and the drain that a person set, and waiting jobs may name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seltzer.api.nodeset import NodeSet
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import Action, DeleteRecords, DownNodes
from seltzer.plan.nodeset import deletion, places, unreachable_pods
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.slurm_state import MARK, OURS
from seltzer.slurm.models import Node

CROWD = 20


def mark(nodeset: NodeSet) -> str:
    """The comment of the records of a NodeSet's nodes."""
    return f"{MARK}{nodeset.metadata.namespace}/{nodeset.metadata.name}"


def needs_mark(node: Node, mark: str) -> bool:
    """Not if somebody else set a comment: it stays, and slurmctld has saved the record for it."""
    return not node.comment or (node.comment.startswith(MARK) and node.comment != mark)


def of(seen: NodeSetObservation) -> list[Node]:
    """Slurm's records of this NodeSet's nodes, with or without a pod."""
    ours = places.names_of(seen.nodeset)
    return [
        node
        for name, node in (seen.slurm.nodes or {}).items()
        if ours.fullmatch(name) and slurm_state.is_dynamic(node) and _is_ours(node, seen)
    ]


def _is_ours(node: Node, seen: NodeSetObservation) -> bool:
    """Another NodeSet of this name may have, or have had, such nodes: the mark says whose they are."""
    if node.comment == mark(seen.nodeset):
        return True
    return seen.membership.member and not node.comment.startswith(MARK)


def orphaned(seen: NodeSetObservation) -> list[Node]:
    """Records whose pods are gone."""
    pods = {pod.metadata.name for pod in seen.pods}
    return [node for node in of(seen) if node.name not in pods]


def can_wait(seen: NodeSetObservation) -> bool:
    """Whether many pods are leaving: their records go together afterwards, instead of some with every pass."""
    return sum(pod_state.deleting(pod) and not unreachable_pods.is_stuck(pod, seen) for pod in seen.pods) > CROWD


def wants_named(seen: NodeSetObservation) -> bool:
    """Whether records could go if no waiting job names them."""
    return not can_wait(seen) and any(not node.occupied for node in orphaned(seen))


def steps(seen: NodeSetObservation, wanted: Sequence[str]) -> list[Action]:
    """Records whose pods are gone: their jobs go back to the queue, then the records go.

    A record that others drained stays if its name is `wanted` for a new pod, or belongs to a machine that may have a
    node again: their drain stays with it.
    """
    orphans = orphaned(seen)
    bereft = [node for node in orphans if node.occupied and node.base != "DOWN" and slurm_state.may_go_down(node)]
    reused = frozenset((*wanted, *_lasting(seen)))
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


def _lasting(seen: NodeSetObservation) -> Iterable[str]:
    """Names that may be wanted again, since they are those of machines that exist."""
    ends = deletion.deleted(seen.nodeset) or seen.closing
    return () if ends or seen.places is None else seen.places.existing


def _why_lost(node: Node) -> str:
    return slurm_state.kept_reason(node, f"{OURS}its pod is gone")


def is_free(name: str, seen: NodeSetObservation) -> bool:
    """Whether a new pod may have a name. Not while the record of its predecessor is about to be deleted: the new slurmd
    would lose its own.

    A record that others drained or that waiting jobs name stays, and the new pod takes it over.
    """
    if seen.slurm.nodes is None:
        return seen.slurm.gone  # there is no slurmctld, so there are no records
    node = seen.slurm.nodes.get(name)
    return node is None or slurm_state.drained_by_others(node) or name in (seen.named or ())
