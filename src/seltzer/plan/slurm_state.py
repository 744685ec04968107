"""What Slurm's record of a node tells. Whatever isn't known for certain counts as busy."""

from __future__ import annotations

from collections.abc import Iterable

from seltzer.api.common import NodeCounts
from seltzer.slurm.models import Node

# Every reason that we set begins with this. People's don't: the command line refuses it.
OURS = "seltzer: "
# Stands between a reason and what slurmctld adds to it.
ADDED = " : "
# The comment of every record that a NodeSet has made begins with this.
MARK = "seltzer "

_BROKEN = frozenset({"DOWN", "ERROR", "FAIL", "NOT_RESPONDING", "INVALID_REG", "POWERED_DOWN", "POWERING_DOWN"})
# What Slurm itself says, as SlurmUser, of a node that it set down because it didn't answer. No word more: what people
# say may begin like that.
_OUTAGE = "Not responding"
_SLURM_USER = "slurm"
_OPEN = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_SHUT = frozenset({"DRAIN", "MAINTENANCE", "POWERING_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED", "PLANNED_DOWN"})


def is_dynamic(node: Node) -> bool:
    """It came by itself (slurmd -Z); an administrator's node of slurm.conf is none of our business."""
    return any(state.startswith("DYNAMIC") for state in node.state)


def drained_by_us(node: Node) -> bool:
    return node.drained and is_ours(node.reason)


def drained_by_others(node: Node) -> bool:
    """By a person, a health check or Slurm itself: never undone."""
    return node.drained and not drained_by_us(node)


def down_by_us(node: Node) -> bool:
    return node.base == "DOWN" and not node.drained and is_ours(node.reason)


def down_by_outage(node: Node) -> bool:
    """slurmctld couldn't reach it for a while, and nothing else is the matter with it."""
    return node.base == "DOWN" and not node.drained and _says_outage(node)


def down_by_others(node: Node) -> bool:
    """By a person, who said why, or by Slurm because of something else than an outage."""
    theirs = bool(node.reason) and not is_ours(node.reason) and not _says_outage(node)
    return node.base == "DOWN" and not node.drained and theirs


def is_ours(reason: str) -> bool:
    """slurmctld adds to a reason what it finds later. That a node didn't answer is over when it does; but a broken GPU
    or a job that can't be killed isn't over when the cordon is."""
    first, *added = reason.split(ADDED)
    return first.startswith(OURS) and all(each == _OUTAGE for each in added)


def _says_outage(node: Node) -> bool:
    return node.reason == _OUTAGE and node.reason_set_by_user in ("", _SLURM_USER)


def held_by_others(node: Node) -> bool:
    return drained_by_others(node) or down_by_others(node)


def kept_reason(node: Node, ours: str) -> str:
    """Who drained it or set it down has told a reason, which stays."""
    return node.reason if held_by_others(node) and node.reason else ours


def may_go_down(node: Node) -> bool:
    """Whoever drained it and gave no reason would be taken for us afterwards: Slurm itself has to see to it."""
    return bool(node.reason) or not drained_by_others(node)


def is_empty(node: Node) -> bool:
    """No job is on it, and none can come: the only state in which its pod may go."""
    return node.drained and not node.occupied


def is_available(node: Node) -> bool:
    """It takes jobs, or is full of them."""
    states = set(node.state)
    return node.base in _OPEN and not states & _BROKEN and not states & _SHUT


def count(nodes: Iterable[Node]) -> NodeCounts:
    """How many are in which state; each is counted once."""
    counts = dict.fromkeys(("idle", "mixed", "allocated", "draining", "drained", "down", "other"), 0)
    total = 0
    for node in nodes:
        counts[_state(node)] += 1
        total += 1
    return NodeCounts(total=total, **counts)


def _state(node: Node) -> str:
    if set(node.state) & _BROKEN:
        return "down"
    if node.drained:
        return "draining" if node.occupied else "drained"
    return {"IDLE": "idle", "MIXED": "mixed", "ALLOCATED": "allocated"}.get(node.base, "other")
