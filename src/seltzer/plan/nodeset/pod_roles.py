"""What each of a NodeSet's pods is to the plan: it stays, is replaced, is surplus, lost or gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seltzer.api.core import Pod
from seltzer.plan import pod_state
from seltzer.plan.nodeset import places, pod_selection, unreachable_pods
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
    ends = deleted(seen.nodeset) or seen.closing
    alive = [pod for pod in seen.pods if not pod_state.deleting(pod)]
    suspects = unreachable_pods.suspects(seen)
    running = [pod for pod in seen.pods if not pod_state.finished(pod)]
    lost = [pod for pod in running if unreachable_pods.is_lost(pod, seen, suspects)]
    candidates = _candidates(seen, _without([pod for pod in alive if not pod_state.finished(pod)], lost))
    target = 0 if ends else _target(seen, candidates)
    surplus = _surplus(seen, candidates, target)
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
        undecided=_undecided(seen, surplus, candidates) if target else [],
        staying=staying.pods,
        replacing=_replacing(seen, staying, target, missing),
    )


def _candidates(seen: NodeSetObservation, pods: Sequence[Pod]) -> Candidates:
    return Candidates(pods, seen.slurm.nodes or {}, seen.free_at)


def _target(seen: NodeSetObservation, candidates: Candidates) -> int:
    """How many nodes are wanted. While it isn't known which machines are selected, that is all there are."""
    if not seen.nodeset.per_node:
        return seen.nodeset.size
    if seen.places is None:
        return len(candidates.pods)
    kept = sum(not _is_unselected(pod, seen) and not seen.places.wants(pod) for pod in candidates.pods)
    return len(seen.places.wanted) + kept


def _surplus(seen: NodeSetObservation, candidates: Candidates, target: int) -> list[Pod]:
    """The pods that are too many: with placement perNode those on other machines than the selected ones."""
    if seen.nodeset.per_node and target:
        return [pod for pod in candidates.pods if _is_unselected(pod, seen)]
    return pod_selection.surplus(candidates, len(candidates.pods) - target, seen.template)


def _is_unselected(pod: Pod, seen: NodeSetObservation) -> bool:
    """Whether a pod is certainly on a machine that should have no node. A machine may also be unknown."""
    known = places.machine_of(pod) in seen.machines or not places.machine_of(pod)
    return seen.places is not None and known and not seen.places.wants(pod)


def _undecided(seen: NodeSetObservation, surplus: Sequence[Pod], candidates: Candidates) -> list[Pod]:
    """With placement perNode there is nothing to choose."""
    return [] if seen.nodeset.per_node else pod_selection.undecided(surplus, candidates, seen.deadlines_age)


def _replacing(seen: NodeSetObservation, staying: Candidates, target: int, missing: int) -> list[Pod]:
    """Pods that are out of date, as many as an update may replace now."""
    spec = seen.nodeset.spec
    if spec.update.paused or not seen.membership.accepted:
        return []
    count = target if seen.nodeset.per_node else seen.nodeset.size
    budget = pod_selection.max_unavailable(spec.update.max_unavailable, count)
    return pod_selection.outdated(staying, seen.template, budget, missing)


def _without(pods: Sequence[Pod], others: Sequence[Pod]) -> list[Pod]:
    """The pods that aren't among the others, compared by name: comparing thousands of whole pods takes seconds."""
    names = {pod.metadata.name for pod in others}
    return [pod for pod in pods if pod.metadata.name not in names]
