"""Facts that have to last for a while before a plan acts on them.

Conditions and Leases have timestamps by the clock of their writer, which may be hours off. What counts is for how long
we have seen a fact ourselves.
"""

from __future__ import annotations

from collections.abc import Hashable

from seltzer.plan.nodeset import drain_resume, removal, unregistered_pods
from seltzer.plan.nodeset.observation import NodeSetObservation


def things(seen: NodeSetObservation) -> frozenset[Hashable]:
    """One value per fact: the same while it lasts, another when it ends and begins again."""
    return frozenset((*drain_resume.aging(seen), *unregistered_pods.aging(seen), *removal.aging(seen.pods, seen.slurm)))
