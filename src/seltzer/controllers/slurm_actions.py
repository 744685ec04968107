"""What an action means to Slurm: whether it is still due, and the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from seltzer.plan import slurm_state
from seltzer.plan.actions import (
    Action,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    KillJobs,
    MarkNodes,
    OnSlurm,
    ResumeNodes,
    SetAddress,
)
from seltzer.slurm.client import Outcome, SlurmClient
from seltzer.slurm.models import Node


def is_due(action: OnSlurm, node: Node) -> bool:
    """Whether an action is still what this node needs."""
    match action:
        case DrainNodes(_, reason):
            if slurm_state.down_by_others(node) or not reason.startswith(slurm_state.OURS):
                return not node.drained and node.reason == reason
            return not node.drained or (slurm_state.drained_by_us(node) and node.reason != reason)
        case ResumeNodes():
            if node.drained:
                return slurm_state.drained_by_us(node)
            return slurm_state.down_by_us(node) or slurm_state.down_by_outage(node)
        case DownNodes(_, reason):
            # A reason of somebody else is kept, and only where they still give it.
            theirs = slurm_state.held_by_others(node) or not reason.startswith(slurm_state.OURS)
            return not theirs or node.reason == reason
        case KillJobs():
            # Only a drain of ours has a timeout.
            return slurm_state.drained_by_us(node) and node.occupied
    return True


def needs_view(action: Action) -> bool:
    """Whether Slurm is asked once more before it is done, since people change nodes too."""
    return isinstance(action, DrainNodes | ResumeNodes | DownNodes | KillJobs) or (
        isinstance(action, DeletePods) and action.ask
    )


def call(action: OnSlurm) -> Callable[[SlurmClient], Awaitable[Outcome | None]]:
    """What is asked of Slurm, for all of the action's nodes at once."""
    match action:
        case DrainNodes(names, reason):
            return lambda slurm: slurm.drain(names, reason)
        case ResumeNodes(names):
            return lambda slurm: slurm.resume(names)
        case DownNodes(names, reason):
            return lambda slurm: slurm.down(names, reason)
        case KillJobs(names):
            return lambda slurm: slurm.kill_jobs(names)
        case MarkNodes(names, comment):
            return lambda slurm: slurm.comment(names, comment)
        case SetAddress(names, address):
            return lambda slurm: slurm.set_address(names, address)
        case DeleteRecords(names):
            return lambda slurm: slurm.delete(names)
