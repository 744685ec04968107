"""What each of a NodeSet's pods is to the plan: it stays, is replaced, is surplus, lost or gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seltzer.api.core import Pod
from seltzer.plan import pod_state
from seltzer.plan.nodeset import pod_selection, unreachable_pods
from seltzer.plan.nodeset.deletion import deleted
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.pod_selection import Candidates


@dataclass(frozen=True)
class PodRoles:
    """The pods by role. A pod may have several."""

    # How many pods are wanted, and how many of them are missing.
    target: int
    missing: int
    # Pods that nobody deletes.
    alive: Sequence[Pod]
    # Of those, pods that won't run again.
    ended: Sequence[Pod]
    # Pods that are being deleted or have ended.
    going: Sequence[Pod]
    # Pods that are given up, and the nodes (with addresses) that may be unreachable.
    lost: Sequence[Pod]
    suspects: Mapping[str, str]
    # Pods that are too many, and those among them whose choice waits for the deadlines of jobs.
    surplus: Sequence[Pod]
    undecided: Sequence[Pod]
    # Pods that stay, and those among them that are replaced because they are out of date.
    staying: Sequence[Pod]
    replacing: Sequence[Pod]

    @property
    def kept(self) -> list[Pod]:
        """Pods that stay and aren't replaced."""
        return _without(self.staying, self.replacing)

    @property
    def leaving(self) -> list[Pod]:
        """Pods that are too many, as far as that is decided."""
        return _without(self.surplus, self.undecided)


def divide(seen: NodeSetObservation) -> PodRoles:
    """Give each pod its roles."""
    target = 0 if deleted(seen.nodeset) or seen.closing else seen.nodeset.spec.replicas
    alive = [pod for pod in seen.pods if not pod_state.deleting(pod)]
    suspects = unreachable_pods.suspects(seen)
    running = [pod for pod in seen.pods if not pod_state.finished(pod)]
    lost = [pod for pod in running if unreachable_pods.is_lost(pod, seen, suspects)]
    candidates = _candidates(seen, _without([pod for pod in alive if not pod_state.finished(pod)], lost))
    surplus = pod_selection.surplus(candidates, len(candidates.pods) - target, seen.template)
    staying = _candidates(seen, _without(candidates.pods, surplus))
    missing = max(0, target - len(staying.pods))
    return PodRoles(
        target=target,
        missing=missing,
        alive=alive,
        ended=[pod for pod in alive if pod_state.finished(pod)],
        going=[pod for pod in seen.pods if pod_state.deleting(pod) or pod_state.finished(pod)],
        lost=lost,
        suspects=suspects,
        surplus=surplus,
        undecided=pod_selection.undecided(surplus, candidates, seen.deadlines_age) if target else [],
        staying=staying.pods,
        replacing=_replacing(seen, staying, missing),
    )


def _candidates(seen: NodeSetObservation, pods: Sequence[Pod]) -> Candidates:
    return Candidates(pods, seen.slurm.nodes or {}, seen.free_at)


def _replacing(seen: NodeSetObservation, staying: Candidates, missing: int) -> list[Pod]:
    """Pods that are out of date, as many as an update may replace now."""
    spec = seen.nodeset.spec
    if spec.update.paused or not seen.membership.accepted:
        return []
    budget = pod_selection.max_unavailable(spec.update.max_unavailable, spec.replicas)
    return pod_selection.outdated(staying, seen.template, budget, missing)


def _without(pods: Sequence[Pod], others: Sequence[Pod]) -> list[Pod]:
    """The pods that aren't among the others, compared by name: comparing thousands of whole pods takes seconds."""
    names = {pod.metadata.name for pod in others}
    return [pod for pod in pods if pod.metadata.name not in names]
