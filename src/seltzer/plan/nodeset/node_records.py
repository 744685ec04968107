"""Slurm's records of a NodeSet's nodes: which are its own, and what happens to those whose pods are gone.

A record outlives its pod. It keeps its jobs and the drain that a person set, and waiting jobs may name it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from seltzer.api.nodeset import NodeSet
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import Action, DeleteRecords, DownNodes
from seltzer.plan.nodeset import checks, deletion, unreachable_pods
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.slurm_state import ADDED, MARK, OURS
from seltzer.slurm.models import Node

CROWD = 20


def mark(nodeset: NodeSet) -> str:
    """How the comments of the records of a NodeSet's nodes begin."""
    return f"{MARK}{nodeset.metadata.namespace}/{nodeset.metadata.name}"


def comment(node: Node, nodeset: NodeSet) -> str:
    """The comment that a record should have: the mark, and the checks that fail but drain nothing."""
    note = checks.note(node, nodeset.spec.checks)
    if note is None and has_mark(node, mark(nodeset)):
        return node.comment
    return f"{mark(nodeset)}{ADDED}{note}" if note else mark(nodeset)


def has_mark(node: Node, mark: str) -> bool:
    """Whether a record has this mark, alone or with a note."""
    return node.comment == mark or node.comment.startswith(f"{mark}{ADDED}")


def needs_comment(node: Node, comment: str) -> bool:
    """Not if somebody else set one: it stays, and slurmctld has saved the record for it."""
    return not node.comment or (node.comment.startswith(MARK) and node.comment != comment)


def of(seen: NodeSetObservation) -> list[Node]:
    """Slurm's records of this NodeSet's nodes, with or without a pod."""
    ours = re.compile(rf"{re.escape(seen.nodeset.metadata.name)}-(0|[1-9][0-9]*)")
    return [
        node
        for name, node in (seen.slurm.nodes or {}).items()
        if ours.fullmatch(name) and slurm_state.is_dynamic(node) and _is_ours(node, seen)
    ]


def _is_ours(node: Node, seen: NodeSetObservation) -> bool:
    """Another NodeSet of this name may have, or have had, such nodes: the mark says whose they are."""
    if has_mark(node, mark(seen.nodeset)):
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

    A record that others drained stays if its name is `wanted` for a new pod: their drain stays with it.
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
    """Whether a new pod may have a name. Not while the record of its predecessor is about to be deleted: the new slurmd
    would lose its own.

    A record that others drained or that waiting jobs name stays, and the new pod takes it over.
    """
    if seen.slurm.nodes is None:
        return seen.slurm.gone  # there is no slurmctld, so there are no records
    node = seen.slurm.nodes.get(name)
    return node is None or slurm_state.drained_by_others(node) or name in (seen.named or ())
