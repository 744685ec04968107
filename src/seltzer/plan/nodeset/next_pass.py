"""When a NodeSet's next pass comes, and how closely Slurm is watched until then."""

from __future__ import annotations

from collections.abc import Sequence

from seltzer.api.core import Pod
from seltzer.api.nodeset import NodeSet, NodeSetStatus
from seltzer.plan.actions import Action, DownNodes, KillJobs, OnSlurm
from seltzer.plan.nodeset import drain_causes
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.wakeup import Wakeup

# How soon to look again at what was just written.
AT_ONCE = 0.02
SOON = 0.5
PODS_UNREAD = Wakeup("the cache of pods lacks our own writes", AT_ONCE)
SLURM_UNREAD = Wakeup("Slurm's nodes lack our own writes", SOON)


def needs_fresh_nodes(nodeset: NodeSet, pods: Sequence[Pod]) -> bool:
    """Whether a pass needs Slurm's nodes as they are now. `pods` are all with the NodeSet's label. Two cases:

    1. Some pods are too many, and the idle ones go first: seconds ago, other nodes may have been idle.
    2. A slurmd container ended. It is restarted within a second and gets jobs again: only Slurm knows whether it has.
    """
    chosen = not nodeset.per_node and 0 < nodeset.size < len(pods)
    return chosen or any(drain_causes.ended(pod) for pod in pods)


def wrote_to_slurm(done: Sequence[Action]) -> bool:
    """Whether Slurm's nodes have to be read back."""
    return any(isinstance(action, OnSlurm) for action in done)


def wakeups(
    seen: NodeSetObservation, decision: NodeSetDecision, done: Sequence[Action], *, unfinished: bool, read_back: bool
) -> tuple[Wakeup, ...]:
    """Why to look again. `read_back` says that Slurm's nodes were read after our writes."""
    found = list(decision.wakeups)
    if seen.home_wakeup:
        found.append(seen.home_wakeup)
    if unfinished:
        found.append(Wakeup("some pods were not reached in time", AT_ONCE))
    if wrote_to_slurm(done):
        # Jobs that are taken off a node need a moment to end.
        ends_jobs = any(isinstance(action, KillJobs | DownNodes) for action in done)
        found.append(Wakeup("Slurm's nodes were changed", AT_ONCE if read_back and not ends_jobs else SOON))
    return tuple(found)


def in_flight(decision: NodeSetDecision, status: NodeSetStatus) -> bool:
    """Whether something is about to happen in Slurm: nodes register, jobs end, or pods are replaced."""
    arriving = status.ready_replicas < decision.target
    return arriving or bool(decision.removal.busy) or bool(decision.replacing)
