"""What a NodeSet's pods need beside them: a disruption budget, and Slurm's key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seltzer.plan.actions import CreatePods
from seltzer.plan.nodeset.deletion import deleted
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation


@dataclass(frozen=True)
class SupportNeeds:
    """Which objects a NodeSet needs."""

    # The pods that the disruption budget protects from eviction.
    protects: Literal["everyone", "busy"]
    # An existing budget stays as it is.
    only_create: bool
    # Slurm's key and what else the pods mount.
    key: bool


def needs(seen: NodeSetObservation, decision: NodeSetDecision) -> SupportNeeds | None:
    """What has to exist before the first pod, and for as long as there are any; None: nothing."""
    comes = any(isinstance(each, CreatePods) for each in decision.actions)
    # Also while all pods are drained before they go. What goes with a deleted NodeSet isn't created again.
    waits = seen.pods and not deleted(seen.nodeset) and not seen.closing
    if not (decision.staying or comes or waits):
        return None
    known = seen.slurm.nodes is not None or seen.slurm.gone
    return SupportNeeds(
        # While it is unknown which pods have jobs, all of them may.
        protects="busy" if known else "everyone",
        # A new leader knows nothing yet: it waits until Slurm is known or certainly unreachable.
        only_create=not known and not seen.slurm.unreachable,
        # Whoever has the key is root in Slurm: a NodeSet that isn't a member never gets it, whatever pods it has.
        key=seen.membership.member,
    )
