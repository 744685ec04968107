"""What has to be so for a while before something is done about it.

Conditions and Leases tell since when, by the clock of whoever wrote them, which may be hours off. What counts is for
how long we have seen them so ourselves.
"""

from __future__ import annotations

from collections.abc import Hashable

from seltzer.plan.nodeset import drain_resume, removal, unregistered_pods
from seltzer.plan.nodeset.observation import NodeSetObservation


def things(seen: NodeSetObservation) -> frozenset[Hashable]:
    """Each is the same for as long as it lasts, and another when it ends and begins again."""
    return frozenset((*drain_resume.aging(seen), *unregistered_pods.aging(seen), *removal.aging(seen.pods, seen.slurm)))
