"""The plan for a NodeSet: pods that are missing, too many, out of date or ended, and their records in Slurm.

Guarantees, whatever the observation:

- A pod is deleted only if no job can be on it: it never started, it has ended, its node is drained and empty, its node
  isn't registered and isn't about to be, Slurm is gone, or the user allowed jobs to be killed.
- A drain that we didn't set is neither undone nor overwritten.
- A node whose machine or pod is unwell or about to go takes no new jobs, and takes them again when that is over.
- A pod is given up as lost only if both its kubelet and its slurmd are silent. Its jobs go back to the queue, and its
  name isn't used again before Kubernetes knows that it has ended.
- No more than `update.maxUnavailable` nodes are unavailable for an update.
- When nothing changes any more, the plan comes to rest.

`decide` is the whole plan. `pod_selection` chooses the pods that go, and `removal` removes them. `unreachable_pods` and
`unregistered_pods` replace pods that can't be kept, `drain_resume` looks after the nodes of the others, and
`node_records` after records without pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from seltzer.api.core import Pod
from seltzer.api.labels import FINALIZER
from seltzer.plan import pod_state, wakeup
from seltzer.plan.actions import Action, CreatePods, DeletePods, PatchPods, PodRef, SetFinalizer
from seltzer.plan.nodeset import (
    deletion,
    drain_resume,
    node_records,
    pod_conditions,
    pod_selection,
    removal,
    unreachable_pods,
    unregistered_pods,
)
from seltzer.plan.nodeset.deletion import deleted
from seltzer.plan.nodeset.observation import NodeSetObservation, Wants
from seltzer.plan.nodeset.pod_selection import Candidates
from seltzer.plan.nodeset.removal import RemovalSteps
from seltzer.plan.wakeup import Wakeup

# Why pods go, for people.
_DELETED = "the NodeSet is being deleted"
_CLOSING = "the SlurmCluster is being deleted"
_SURPLUS = "fewer are wanted"
_OUTDATED = "the NodeSet has changed, and it is made anew"
_LOST = "neither its Kubernetes node nor its slurmd is heard of"
_FORGOTTEN = "Slurm has no record of it any more, and only a new pod registers"
_ENDED = "it had ended"


@dataclass(frozen=True)
class NodeSetDecision:
    """The actions, and what the status is made from."""

    actions: tuple[Action, ...]
    # Pods that stay, and those among them that are replaced.
    staying: tuple[Pod, ...]
    replacing: tuple[Pod, ...]
    removal: RemovalSteps
    target: int
    # How many pods are missing.
    missing: int
    # Why to look again even if nothing changes.
    wakeups: tuple[Wakeup, ...] = ()
    # What the pods don't show yet.
    pod_updates: tuple[PatchPods, ...] = ()
    # What the next plan needs to know.
    wants: Wants = field(default_factory=Wants)


def decide(seen: NodeSetObservation) -> NodeSetDecision:
    """The plan."""
    nodeset, spec = seen.nodeset, seen.nodeset.spec
    if FINALIZER not in nodeset.metadata.finalizers:
        # Before the first pod: every pod has to be drained when the NodeSet is deleted.
        begins = seen.membership.member and not deleted(nodeset)
        return _idle(seen, (SetFinalizer(True),) if begins else ())
    if not seen.membership.member and not deleted(nodeset) and not seen.closing:
        return _idle(seen, ())  # its pods stay as they are
    target = 0 if deleted(nodeset) or seen.closing else spec.replicas
    alive = [pod for pod in seen.pods if not pod_state.deleting(pod)]
    ended = [pod for pod in alive if pod_state.finished(pod)]
    suspects = unreachable_pods.suspects(seen)
    lost = [pod for pod in seen.pods if not pod_state.finished(pod) and unreachable_pods.is_lost(pod, seen, suspects)]
    pool = _pool(seen, _without([pod for pod in alive if not pod_state.finished(pod)], lost))
    surplus = pod_selection.surplus(pool, len(pool.pods) - target, seen.template)
    pool = _pool(seen, _without(pool.pods, surplus))
    going = [pod for pod in seen.pods if pod_state.deleting(pod) or pod_state.finished(pod)]
    returning = sum(
        pod_selection.ordinal(pod.metadata.name) < target and not unreachable_pods.is_stuck(pod, seen) for pod in going
    )
    missing = max(0, target - len(pool.pods))
    replacing = _replacing(seen, pool, missing)
    undecided = [] if target == 0 else pod_selection.undecided(surplus, pool, seen.deadlines_age)
    leaving = _leaving(seen, _without(surplus, undecided), replacing)
    kept = _without(pool.pods, replacing)
    kept_steps = drain_resume.steps(kept, seen)
    actions = [*_ended(ended), *_because(_LOST, unreachable_pods.steps(lost, seen)), *leaving.actions]
    actions += _because(_FORGOTTEN, unregistered_pods.steps(kept, seen))
    actions += node_records.steps(seen, _free_names(seen, missing))
    actions += [*kept_steps.actions, *removal.unasked(seen.pods, seen.slurm)]
    if names := tuple(name for name in _free_names(seen, max(0, missing - returning)) if _may_create(name, seen)):
        actions.append(CreatePods(names))
    if deleted(nodeset) and _all_gone(seen):
        actions.append(SetFinalizer(False, if_empty=_partition_to_empty(seen)))
    arriving = target - sum(pod.metadata.name in (seen.slurm.nodes or {}) for pod in alive)
    wakeups = (
        *kept_steps.wakeups,
        *_pod_wakeups(seen, alive, arriving),
        *wakeup.given(
            (
                ("Slurm doesn't know yet whether pods that leave have jobs", leaving.unknown),
                ("which jobs end first isn't known yet", undecided),
                ("the drain timeout runs", leaving.busy and spec.drain.timeout is not None),
                ("a deleted NodeSet without pods waits for jobs in the queue", deleted(nodeset) and not seen.pods),
                ("pods that are missing wait for names of pods that go", missing and going),
                ("a ready pod hasn't registered", unregistered_pods.unregistered(pool.pods, seen)),
                ("a pod is lost", lost),
                ("a slurmd may be unreachable", suspects),
                ("a Kubernetes node isn't known yet", any(_is_on_unknown_machine(pod, seen) for pod in seen.pods)),
            )
        ),
    )
    updates = _pod_updates(seen, alive, actions, arriving)
    wants = Wants(
        deadlines=bool(undecided),
        named=node_records.wants_named(seen),
        partition=seen.ending_partition if deleted(nodeset) and not seen.pods else "",
    )
    return NodeSetDecision(
        tuple(actions), tuple(pool.pods), tuple(replacing), leaving, target, missing, wakeups, updates, wants
    )


def _idle(seen: NodeSetObservation, actions: tuple[Action, ...]) -> NodeSetDecision:
    """Nothing is done about the pods but to show their jobs: pods without jobs can be evicted, others can't."""
    pods = tuple(pod for pod in seen.pods if not pod_state.deleting(pod) and not pod_state.finished(pod))
    target = seen.nodeset.spec.replicas
    own = _own(pods, seen)
    updates = _pod_updates(seen, own, actions, 0)
    wakeups = _pod_wakeups(seen, own, 0)
    return NodeSetDecision(actions, pods, (), RemovalSteps(), target, max(0, target - len(pods)), wakeups, updates)


def _pod_wakeups(seen: NodeSetObservation, pods: Sequence[Pod], arriving: int) -> tuple[Wakeup, ...]:
    """Why the conditions of these pods have to change although nothing else does."""
    lingers = pod_conditions.lingers(pods, seen.slurm.nodes or {}, seen.slurm.now)
    return wakeup.given(
        (
            ("a pod counts as busy for a while after its last job", lingers),
            ("many nodes register, and show afterwards that they are idle", arriving > pod_conditions.CROWD),
            ("Slurm hasn't answered yet, and may be unreachable", pods and _is_about_to_be_unreachable(seen)),
        )
    )


def _is_on_unknown_machine(pod: Pod, seen: NodeSetObservation) -> bool:
    return bool(pod.spec.node_name) and seen.machine(pod) is None


def _own(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Pod]:
    """Excludes pods whose Slurm record belongs to another NodeSet."""
    nodes, mark = seen.slurm.nodes or {}, node_records.mark(seen.nodeset)
    return [pod for pod in pods if (node := nodes.get(pod.metadata.name)) is None or node.comment == mark]


def _without(pods: Sequence[Pod], others: Sequence[Pod]) -> list[Pod]:
    """The pods that aren't among the others, compared by name: comparing thousands of whole pods takes seconds."""
    names = {pod.metadata.name for pod in others}
    return [pod for pod in pods if pod.metadata.name not in names]


def _pool(seen: NodeSetObservation, pods: Sequence[Pod]) -> Candidates:
    return Candidates(pods, seen.slurm.nodes or {}, seen.free_at)


def _replacing(seen: NodeSetObservation, pool: Candidates, missing: int) -> list[Pod]:
    """Pods that are out of date, as many as an update may replace now."""
    spec = seen.nodeset.spec
    if spec.update.paused or not seen.membership.accepted:
        return []
    budget = pod_selection.max_unavailable(spec.update.max_unavailable, spec.replicas)
    return pod_selection.outdated(pool, seen.template, budget, missing)


def _leaving(seen: NodeSetObservation, surplus: Sequence[Pod], replacing: Sequence[Pod]) -> RemovalSteps:
    """The next steps for surplus pods and for those that are out of date."""
    drain = seen.nodeset.spec.drain
    consent = deletion.consent(seen)
    if deleted(seen.nodeset):
        reason, why = "deleted", _DELETED
    elif seen.closing:
        reason, why = "cluster deleted", _CLOSING
    else:
        reason, why = pod_selection.SCALE_IN, _SURPLUS
    unheard = {pod.metadata.name for pod in (*surplus, *replacing) if not unreachable_pods.is_heard(pod, seen)}
    seen_for = {pod.metadata.name: seen.age(pod_state.settled(pod)) for pod in (*surplus, *replacing)}
    steps = partial(removal.steps, slurm=seen.slurm, drain=drain, now=seen.now, unheard=unheard, seen_for=seen_for)
    one = steps(surplus, reason=reason, consent=consent)
    two = steps(replacing, reason=pod_selection.UPDATE, consent=False)
    actions = (*_because(why, one.actions), *_because(_OUTDATED, two.actions))
    return RemovalSteps(actions, one.busy + two.busy, one.overdue + two.overdue, one.unknown + two.unknown)


def _ended(pods: Sequence[Pod]) -> list[Action]:
    """Delete pods that won't run again."""
    found: dict[str, list[PodRef]] = {}
    for pod in pods:
        how = f" ({pod.status.reason})" if pod.status.reason else ""
        found.setdefault(f"{_ENDED}{how}", []).append(PodRef(pod.metadata.name, pod.metadata.uid))
    return [DeletePods(tuple(some), ask=False, why=why) for why, some in sorted(found.items())]


def _because(why: str, actions: Sequence[Action]) -> list[Action]:
    """The same actions, with a reason for deletions of pods."""
    return [replace(each, why=why) if isinstance(each, DeletePods) else each for each in actions]


def _free_names(seen: NodeSetObservation, count: int) -> list[str]:
    """The names of the lowest ordinals that no pod has."""
    used = {pod.metadata.name for pod in seen.pods}
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = f"{seen.nodeset.metadata.name}-{number}"
        if name not in used:
            names.append(name)
        number += 1
    return names


def _may_create(name: str, seen: NodeSetObservation) -> bool:
    return seen.membership.accepted and seen.template is not None and node_records.is_free(name, seen)


def _pod_updates(
    seen: NodeSetObservation, alive: Sequence[Pod], actions: Sequence[Action], arriving: int
) -> tuple[PatchPods, ...]:
    """What pods don't show yet, without pods that are deleted now."""
    going = {pod.name for action in actions if isinstance(action, DeletePods) for pod in action.pods}
    shown = [pod for pod in alive if pod.metadata.name not in going]
    theirs = seen.nodeset.spec.pod_template.metadata.annotations
    now = datetime.fromtimestamp(seen.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if seen.slurm.unreachable:
        return pod_conditions.unknown(shown, now, theirs)
    return pod_conditions.changes(shown, seen.slurm.nodes, seen.free_at, seen.slurm.now, now, theirs, arriving)


def _is_about_to_be_unreachable(seen: NodeSetObservation) -> bool:
    """Whether a new leader still waits for the first answer: only the clock ends that."""
    return seen.slurm.nodes is None and not seen.slurm.gone and not seen.slurm.unreachable


def _all_gone(seen: NodeSetObservation) -> bool:
    """Whether neither a pod nor a record nor a waiting job keeps a deleted NodeSet."""
    if seen.pods:
        return False
    if seen.slurm.gone or seen.membership.reason == "NameTaken":
        return True
    if seen.slurm.nodes is None:
        return deletion.consent(seen)
    if node_records.of(seen):
        return False
    return not seen.ending_partition or seen.queued == 0 or deletion.may_lose_jobs(seen)


def _partition_to_empty(seen: NodeSetObservation) -> str:
    """The partition in which no job may wait when the finalizer goes; empty: it doesn't matter."""
    if seen.slurm.nodes is None or seen.membership.reason == "NameTaken" or deletion.may_lose_jobs(seen):
        return ""
    return seen.ending_partition
