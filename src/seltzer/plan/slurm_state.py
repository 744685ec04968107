"""What Slurm's record of a node says. Whatever isn't certain counts as busy."""

from __future__ import annotations

from collections.abc import Iterable

from seltzer.api.common import GpuCounts, NodeCounts
from seltzer.slurm.models import Node

# Every reason that we set begins with this. People can't use it: the command line refuses it.
OURS = "seltzer: "
# Separates a reason from what slurmctld adds to it.
ADDED = " : "
# The comment of every record of a NodeSet begins with this.
MARK = "seltzer "

_BROKEN = frozenset({"DOWN", "ERROR", "FAIL", "NOT_RESPONDING", "INVALID_REG", "POWERED_DOWN", "POWERING_DOWN"})
# The reason that Slurm itself, as SlurmUser, gives a node that didn't answer. It is compared as a whole: a person's
# reason may begin with it.
_OUTAGE = "Not responding"
_SLURM_USER = "slurm"
_OPEN = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_SHUT = frozenset({"DRAIN", "MAINTENANCE", "POWERING_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED", "PLANNED_DOWN"})


def is_dynamic(node: Node) -> bool:
    """Whether it registered by itself (slurmd -Z). An administrator's nodes in slurm.conf are never ours."""
    return any(state.startswith("DYNAMIC") for state in node.state)


def drained_by_us(node: Node) -> bool:
    return node.drained and is_ours(node.reason)


def drained_by_others(node: Node) -> bool:
    """By a person, a health check or Slurm itself. We never undo that."""
    return node.drained and not drained_by_us(node)


def down_by_us(node: Node) -> bool:
    return node.base == "DOWN" and not node.drained and is_ours(node.reason)


def down_by_outage(node: Node) -> bool:
    """Whether slurmctld couldn't reach it for a while, and nothing else is wrong with it."""
    return node.base == "DOWN" and not node.drained and _says_outage(node)


def down_by_others(node: Node) -> bool:
    """By a person who gave a reason, or by Slurm for another reason than an outage."""
    theirs = bool(node.reason) and not is_ours(node.reason) and not _says_outage(node)
    return node.base == "DOWN" and not node.drained and theirs


def is_ours(reason: str) -> bool:
    """Not once slurmctld has appended anything but an outage: that ends when the node answers, but a broken GPU or
    a job that can't be killed doesn't end with the cordon."""
    first, *added = reason.split(ADDED)
    return first.startswith(OURS) and all(each == _OUTAGE for each in added)


def _says_outage(node: Node) -> bool:
    return node.reason == _OUTAGE and node.reason_set_by_user in ("", _SLURM_USER)


def held_by_others(node: Node) -> bool:
    return drained_by_others(node) or down_by_others(node)


def kept_reason(node: Node, ours: str) -> str:
    """The reason of whoever else drained it or set it down; else ours."""
    return node.reason if held_by_others(node) and node.reason else ours


def may_go_down(node: Node) -> bool:
    """Not if somebody drained it without a reason: our reason would make their drain look like ours."""
    return bool(node.reason) or not drained_by_others(node)


def is_empty(node: Node) -> bool:
    """Whether no job is on it and none can come: the only state in which its pod may go."""
    return node.drained and not node.occupied


def is_available(node: Node) -> bool:
    """Whether it takes jobs, or is full of them."""
    states = set(node.state)
    return node.base in _OPEN and not states & _BROKEN and not states & _SHUT


def count(nodes: Iterable[Node]) -> NodeCounts:
    """How many nodes are in each state. Each node counts once."""
    counts = dict.fromkeys(("idle", "mixed", "allocated", "draining", "drained", "down", "other"), 0)
    total = 0
    for node in nodes:
        counts[_state(node)] += 1
        total += 1
    return NodeCounts(total=total, **counts)


def count_gpus(nodes: Iterable[Node]) -> GpuCounts:
    """All GPUs of the nodes, and those that jobs have."""
    having = [node for node in nodes if node.gres]
    return GpuCounts(total=sum(node.gpus for node in having), used=sum(node.used_gpus for node in having))


def is_refused(node: Node) -> bool:
    """Whether slurmctld doesn't accept what slurmd reports, such as fewer GPUs than the node should have."""
    return "INVALID_REG" in node.state


def _state(node: Node) -> str:
    if set(node.state) & _BROKEN:
        return "down"
    if node.drained:
        return "draining" if node.occupied else "drained"
    return {"IDLE": "idle", "MIXED": "mixed", "ALLOCATED": "allocated"}.get(node.base, "other")
