"""The call to Slurm that an action stands for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from seltzer.plan.actions import (
    DeleteRecords,
    DownNodes,
    DrainNodes,
    KillJobs,
    MarkNodes,
    OnSlurm,
    ResumeNodes,
    SetAddress,
    SetFeatures,
    SetTopology,
)
from seltzer.slurm.client import Outcome, SlurmClient


def call(action: OnSlurm) -> Callable[[SlurmClient], Awaitable[Outcome | None]]:
    """One call for all nodes of the action."""
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
        case SetTopology(names, topology):
            return lambda slurm: slurm.set_topology(names, topology)
        case SetFeatures(names, features):
            return lambda slurm: slurm.set_features(names, features)
        case DeleteRecords(names):
            return lambda slurm: slurm.delete(names)
