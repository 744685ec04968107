"""Whether a planned action is still due, decided on facts read right before it is done.

Seconds pass between a plan's view of Slurm and its actions, and people drain and resume nodes too. What can't be taken
back is therefore checked again: `needs` says which facts to read, `still_due` drops what they no longer allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from seltzer.errors import SeltzerError
from seltzer.plan import slurm_state
from seltzer.plan.actions import (
    Action,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    KillJobs,
    OnSlurm,
    ResumeNodes,
    SetFinalizer,
)
from seltzer.slurm.models import Node

A = TypeVar("A", bound=Action)
# A drained node gets no job within such a moment, unless a person resumes it.
_MOMENT = 0.5


@dataclass(frozen=True)
class Needs:
    """The facts to read before some actions are done."""

    # Slurm's nodes, at most `max_age` seconds old.
    nodes: bool = False
    max_age: float = 0.0
    # Whether these slurmds answer: addresses by node name.
    silent: Mapping[str, str] = field(default_factory=dict)
    # The nodes that waiting jobs name, and the jobs that wait in a partition.
    named: bool = False
    partition: str = ""


@dataclass(frozen=True)
class Facts:
    """What was read. None is unknown, and so is a slurmd that isn't in `answers`."""

    nodes: Mapping[str, Node] | None = None
    answers: Mapping[str, bool] = field(default_factory=dict)
    named: frozenset[str] | None = None
    queued: int | None = None


def needs(actions: Iterable[Action], known: Mapping[str, Node]) -> Needs:
    """What these actions depend on. `known` is Slurm's nodes as of the plan."""
    checked: list[Action] = []
    silent: dict[str, str] = {}
    named, partition = False, ""
    for action in actions:
        if needs_nodes(action):
            checked.append(action)
        match action:
            case DownNodes():
                silent |= action.silent
            case DeleteRecords():
                named = named or action.unless_named
            case SetFinalizer(False):
                partition = action.if_empty
    drained = all(isinstance(action, DeletePods) and _are_drained(action, known) for action in checked)
    return Needs(bool(checked), _MOMENT if drained else 0.0, silent, named, partition)


def needs_nodes(action: Action) -> bool:
    """Whether Slurm's nodes are read again before the action is done."""
    return isinstance(action, DrainNodes | ResumeNodes | DownNodes | KillJobs) or (
        isinstance(action, DeletePods) and action.ask
    )


def still_due(action: A, facts: Facts) -> A | None:
    """The action without what changed since it was planned; None if nothing is left. Raises if Slurm doesn't answer."""
    match action:
        case DeletePods(pods) if action.ask:
            known = _known(facts)
            left = tuple(pod for pod in pods if _is_still_empty(known.get(pod.name)))
            return replace(action, pods=left) if left else None
        case DeleteRecords(names) if action.unless_named:
            return _with_names(action, () if facts.named is None else (n for n in names if n not in facts.named))
        case SetFinalizer(False) if action.if_empty:
            return action if facts.queued == 0 else None
        case DrainNodes(names) | ResumeNodes(names) | DownNodes(names) | KillJobs(names):
            known = _known(facts)
            back = _answering(action, facts) if isinstance(action, DownNodes) else frozenset()
            due = (name for name in names if (node := known.get(name)) and is_due(action, node))
            return _with_names(action, (name for name in due if name not in back))
    return action


def _known(facts: Facts) -> Mapping[str, Node]:
    if facts.nodes is None:
        raise SeltzerError("Slurm can't be asked right now, so nothing is done that could cost a job")
    return facts.nodes


def _with_names(action: A, names: Iterable[str]) -> A | None:
    left = tuple(names)
    return replace(action, names=left) if left else None  # type: ignore[arg-type]


def is_due(action: OnSlurm, node: Node) -> bool:
    """Whether this node still needs the action."""
    match action:
        case DrainNodes(_, reason):
            if slurm_state.down_by_others(node) or not reason.startswith(slurm_state.OURS):
                return not node.drained and node.reason == reason
            return not node.drained or (slurm_state.drained_by_us(node) and node.reason != reason)
        case ResumeNodes():
            if node.extra != action.extras.get(node.name, node.extra):
                return False
            if node.drained:
                return slurm_state.drained_by_us(node)
            return slurm_state.down_by_us(node) or slurm_state.down_by_outage(node)
        case DownNodes(_, reason):
            # Another owner's reason is kept, and only while they still give it.
            theirs = slurm_state.held_by_others(node) or not reason.startswith(slurm_state.OURS)
            return not theirs or node.reason == reason
        case KillJobs():
            # Only a drain of ours has a timeout.
            return slurm_state.drained_by_us(node) and node.occupied
    return True


def _is_still_empty(node: Node | None) -> bool:
    """A node that Slurm doesn't know has no job; one that it knows must be drained and empty."""
    return node is None or slurm_state.is_empty(node)


def _are_drained(action: DeletePods, known: Mapping[str, Node]) -> bool:
    return all((node := known.get(pod.name)) is not None and node.drained for pod in action.pods)


def _answering(action: DownNodes, facts: Facts) -> frozenset[str]:
    """Nodes given up as lost that may answer by now: the earlier silence is too old to count."""
    return frozenset(name for name in action.silent if facts.answers.get(name) is not False)
