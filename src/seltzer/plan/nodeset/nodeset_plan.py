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
from seltzer.api.nodeset import DEFAULT_REPLICAS
from seltzer.plan import pod_state, wakeup
from seltzer.plan.actions import Action, CreatePods, DeletePods, PatchPods, PodRef, SetFinalizer, SetReplicas
from seltzer.plan.nodeset import (
    deletion,
    drain_resume,
    machine_labels,
    node_records,
    places,
    pod_conditions,
    pod_roles,
    pod_selection,
    removal,
    unreachable_pods,
    unregistered_pods,
    user_syncs,
)
from seltzer.plan.nodeset.deletion import deleted
from seltzer.plan.nodeset.observation import NodeSetObservation, Wants
from seltzer.plan.nodeset.pod_roles import PodRoles
from seltzer.plan.nodeset.removal import RemovalSteps
from seltzer.plan.wakeup import Wakeup

# Why pods go, for people.
_DELETED = "the NodeSet is being deleted"
_CLOSING = "the SlurmCluster is being deleted"
_SURPLUS = "fewer are wanted"
_UNSELECTED = "its Kubernetes node is gone, or not selected any more"
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
    nodeset = seen.nodeset
    if FINALIZER not in nodeset.metadata.finalizers:
        # Before the first pod: every pod has to be drained when the NodeSet is deleted.
        begins = seen.membership.member and not deleted(nodeset)
        return _idle(seen, (SetFinalizer(True),) if begins else ())
    if not seen.membership.member and not deleted(nodeset) and not seen.closing:
        return _idle(seen, ())  # its pods stay as they are
    roles = pod_roles.divide(seen)
    leaving = _leaving(seen, roles.leaving, roles.replacing)
    kept = drain_resume.steps(roles.kept, seen)
    actions = (
        *_ended(roles.ended),
        *_because(_LOST, unreachable_pods.steps(roles.lost, seen)),
        *leaving.actions,
        *_because(_FORGOTTEN, unregistered_pods.steps(roles.kept, seen)),
        *node_records.steps(seen, _free_names(seen, roles.missing)),
        *kept.actions,
        *machine_labels.steps(roles.kept, seen),
        *removal.unasked(seen.pods, seen.slurm),
        *_created(seen, roles),
        *_sized(seen),
        *_finished(seen),
    )
    arriving = roles.target - sum(pod.metadata.name in (seen.slurm.nodes or {}) for pod in roles.alive)
    wants = _wants(seen, roles)
    return NodeSetDecision(
        actions=actions,
        staying=tuple(roles.staying),
        replacing=tuple(roles.replacing),
        removal=leaving,
        target=roles.target,
        missing=roles.missing,
        wakeups=(*kept.wakeups, *_pod_wakeups(seen, roles.alive, arriving), *_wakeups(seen, roles, leaving, wants)),
        pod_updates=_pod_updates(seen, roles.alive, actions, arriving),
        wants=wants,
    )


def _wakeups(seen: NodeSetObservation, roles: PodRoles, leaving: RemovalSteps, wants: Wants) -> tuple[Wakeup, ...]:
    """What depends on the time, beside the conditions of pods."""
    ends = deleted(seen.nodeset) and not seen.pods
    return wakeup.given(
        (
            ("Slurm doesn't know yet whether pods that leave have jobs", leaving.unknown),
            ("which jobs end first isn't known yet", roles.undecided),
            ("the drain timeout runs", leaving.busy and seen.nodeset.spec.drain.timeout is not None),
            ("a deleted NodeSet without pods waits for jobs in the queue", ends),
            ("which nodes waiting jobs name isn't known yet", wants.named and seen.named is None),
            # With placement perNode no other name will do, and the end of a pod is an event.
            (
                "pods that are missing wait for names of pods that go",
                roles.missing and roles.going and not seen.nodeset.per_node,
            ),
            ("a ready pod hasn't registered", unregistered_pods.unregistered(roles.staying, seen)),
            ("a pod is lost", roles.lost),
            ("a slurmd may be unreachable", roles.suspects),
            ("a Kubernetes node isn't known yet", any(_is_on_unknown_machine(pod, seen) for pod in seen.pods)),
        )
    )


def _wants(seen: NodeSetObservation, roles: PodRoles) -> Wants:
    return Wants(
        deadlines=bool(roles.undecided),
        named=node_records.wants_named(seen),
        partition=seen.ending_partition if deleted(seen.nodeset) and not seen.pods else "",
    )


def _idle(seen: NodeSetObservation, actions: tuple[Action, ...]) -> NodeSetDecision:
    """Nothing is done about the pods but to show their jobs: pods without jobs can be evicted, others can't."""
    pods = tuple(pod for pod in seen.pods if not pod_state.deleting(pod) and not pod_state.finished(pod))
    target = seen.nodeset.size
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
    machine = places.machine_of(pod)
    return bool(machine) and machine not in seen.machines


def _own(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Pod]:
    """Excludes pods whose Slurm record belongs to another NodeSet."""
    nodes, mark = seen.slurm.nodes or {}, node_records.mark(seen.nodeset)
    return [pod for pod in pods if (node := nodes.get(pod.metadata.name)) is None or node.comment == mark]


def _leaving(seen: NodeSetObservation, surplus: Sequence[Pod], replacing: Sequence[Pod]) -> RemovalSteps:
    """The next steps for surplus pods and for those that are out of date."""
    drain = seen.nodeset.spec.drain
    consent = deletion.consent(seen)
    if deleted(seen.nodeset):
        reason, why = "deleted", _DELETED
    elif seen.closing:
        reason, why = "cluster deleted", _CLOSING
    elif seen.nodeset.per_node:
        reason, why = pod_selection.UNSELECTED, _UNSELECTED
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
    """The names of the lowest ordinals that no pod has; with placement perNode those of machines without a pod."""
    used = {pod.metadata.name for pod in seen.pods}
    if seen.nodeset.per_node:
        return sorted(seen.places.wanted.keys() - used) if seen.places and count else []
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = f"{seen.nodeset.metadata.name}-{number}"
        if name not in used:
            names.append(name)
        number += 1
    return names


def _created(seen: NodeSetObservation, roles: PodRoles) -> list[Action]:
    """Missing pods, without those whose names become free soon."""
    returning = 0 if seen.nodeset.per_node else _returning(seen, roles)
    free = _free_names(seen, max(0, roles.missing - returning))
    names = tuple(name for name in free if _may_create(name, seen))
    return [CreatePods(names)] if names else []


def _returning(seen: NodeSetObservation, roles: PodRoles) -> int:
    """How many pods that go leave a name that one of the missing pods should get."""
    return sum(
        pod_selection.ordinal(pod.metadata.name) < roles.target and not unreachable_pods.is_stuck(pod, seen)
        for pod in roles.going
    )


def _sized(seen: NodeSetObservation) -> list[Action]:
    """The default of replicas is written down: `kubectl scale` and autoscalers read it there. The CRD has no default,
    since placement perNode has no replicas."""
    absent = seen.nodeset.spec.replicas is None and not seen.nodeset.per_node and not deleted(seen.nodeset)
    return [SetReplicas(DEFAULT_REPLICAS)] if absent else []


def _finished(seen: NodeSetObservation) -> list[Action]:
    """The finalizer of a deleted NodeSet goes last."""
    gone = deleted(seen.nodeset) and _all_gone(seen)
    return [SetFinalizer(False, if_empty=_partition_to_empty(seen))] if gone else []


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
        updates = pod_conditions.unknown(shown, now, theirs)
    else:
        updates = pod_conditions.changes(shown, seen.slurm.nodes, seen.free_at, seen.slurm.now, now, theirs, arriving)
    return user_syncs.added(updates, shown, seen.users)


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
