"""What to do about a NodeSet: pods that are missing, too many, out of date or ended, and their records in Slurm.

Guarantees, whatever the observation:

- A pod is deleted only if no job can be on it: it never started, it has ended, its node is drained and empty, its node
  isn't registered and isn't about to be, there is no Slurm any more, or the user allowed jobs to be killed.
- A drain that we didn't set is neither undone nor overwritten.
- No more than `update.maxUnavailable` nodes are taken away for an update.
- With nothing changing any more, it comes to rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from seltzer.api.common import seconds
from seltzer.api.core import Pod
from seltzer.api.labels import FINALIZER
from seltzer.api.nodeset import NodeSet
from seltzer.plan import choice
from seltzer.plan import nodes as slurm_nodes
from seltzer.plan import pods as kube_pods
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DownNodes,
    Goner,
    MarkNodes,
    ResumeNodes,
    SetFinalizer,
)
from seltzer.plan.choice import Pool
from seltzer.plan.membership import Verdict
from seltzer.plan.nodes import MARK, OURS
from seltzer.plan.removal import Slurm, Steps, steps
from seltzer.slurm.models import Node

# A pod is gone soon after its grace is over, unless nobody is there to end it.
STUCK_SECONDS = 60.0
# Every slurmd registers with a new slurmctld within a second or two.
FORGOTTEN_SECONDS = 15.0


@dataclass(frozen=True)
class Observation:
    """Everything that a plan looks at."""

    nodeset: NodeSet
    verdict: Verdict
    pods: tuple[Pod, ...]
    # The hash of the pods that are wanted; None where they can't be built, and `refusal` says why.
    template: str | None
    slurm: Slurm
    now: float
    refusal: str = ""
    # The cluster is being deleted: its nodes go first.
    closing: bool = False
    free_in: Mapping[str, int] = field(default_factory=dict)
    # Nodes that waiting jobs name. A job whose node's record is deleted is lost with the next reconfigure.
    named: frozenset[str] | None = None
    # How many jobs wait in a partition that ends with this NodeSet, and are lost with it. None: unknown.
    queued: int | None = None
    # Since when this slurmctld runs, by the clock of its machine.
    controller_started: float | None = None


@dataclass(frozen=True)
class Decision:
    """What is to be done, and what the status is made from."""

    actions: tuple[Action, ...]
    # Pods that stay; of them, those that have to be replaced.
    staying: tuple[Pod, ...]
    replacing: tuple[Pod, ...]
    removal: Steps
    target: int
    # How many pods there are too few.
    missing: int
    # Look again after a second even if nothing changes: something depends on the time.
    timed: bool


def deleted(nodeset: NodeSet) -> bool:
    return nodeset.metadata.deletion_timestamp is not None


def decide(seen: Observation) -> Decision:
    """The plan."""
    nodeset, spec = seen.nodeset, seen.nodeset.spec
    if FINALIZER not in nodeset.metadata.finalizers:
        # Before the first pod: nothing may run that a deletion wouldn't drain.
        begins = seen.verdict.member and not deleted(nodeset)
        return _idle(seen, (SetFinalizer(True),) if begins else ())
    if not seen.verdict.member and not deleted(nodeset) and not seen.closing:
        return _idle(seen, ())  # whatever runs stays as it is
    target = 0 if deleted(nodeset) or seen.closing else spec.replicas
    alive = [pod for pod in seen.pods if not kube_pods.deleting(pod)]
    ended = [pod for pod in alive if kube_pods.finished(pod)]
    pool = _pool(seen, [pod for pod in alive if not kube_pods.finished(pod)])
    victims = choice.surplus(pool, len(pool.pods) - target, seen.template)
    pool = _pool(seen, [pod for pod in pool.pods if pod not in victims])
    going = [pod for pod in seen.pods if kube_pods.deleting(pod) or kube_pods.finished(pod)]
    returning = sum(choice.ordinal(pod.metadata.name) < target and not _is_stuck(pod, seen.now) for pod in going)
    missing = max(0, target - len(pool.pods))
    replacing: list[Pod] = []
    if not spec.update.paused and seen.verdict.accepted:
        budget = choice.max_unavailable(spec.update.max_unavailable, spec.replicas)
        replacing = choice.outdated(pool, seen.template, budget, missing)
    removal = _removal(seen, victims, replacing)
    forgotten = _forgotten([pod for pod in pool.pods if pod not in replacing], seen)
    wanted = _free_names(seen, max(0, missing - returning))
    actions = [*_ended(ended), *removal.actions, *forgotten, *_records(seen, _free_names(seen, missing))]
    leaving = {pod.metadata.name for pod in (*victims, *replacing)}
    actions += _nodes([pod for pod in pool.pods if pod.metadata.name not in leaving], seen)
    if names := tuple(name for name in wanted if _may_create(name, seen)):
        actions.append(CreatePods(names))
    if deleted(nodeset) and _all_gone(seen):
        actions.append(SetFinalizer(False))
    timed = bool(removal.unknown) or (bool(removal.busy) and spec.drain.timeout is not None) or _waits_to_end(seen)
    timed = timed or bool(missing and going) or bool(_unregistered(pool.pods, seen))
    staying = tuple(pool.pods)
    return Decision(tuple(actions), staying, tuple(replacing), removal, target, missing, timed)


def _idle(seen: Observation, actions: tuple[Action, ...]) -> Decision:
    staying = tuple(pod for pod in seen.pods if not kube_pods.deleting(pod) and not kube_pods.finished(pod))
    target = seen.nodeset.spec.replicas
    return Decision(actions, staying, (), Steps(), target, max(0, target - len(staying)), timed=False)


def _pool(seen: Observation, pods: Sequence[Pod]) -> Pool:
    return Pool(pods, seen.slurm.nodes or {}, seen.free_in)


def _removal(seen: Observation, victims: Sequence[Pod], replacing: Sequence[Pod]) -> Steps:
    drain = seen.nodeset.spec.drain
    consent = _consent(seen)
    why = "deleted" if deleted(seen.nodeset) else "cluster deleted" if seen.closing else choice.SCALE_IN
    one = steps(victims, seen.slurm, drain, why, seen.now, consent=consent)
    two = steps(replacing, seen.slurm, drain, choice.UPDATE, seen.now, consent=False)
    return Steps(one.actions + two.actions, one.busy + two.busy, one.overdue + two.overdue, one.unknown + two.unknown)


def _consent(seen: Observation) -> bool:
    """The user deleted the NodeSet, said how long jobs may take and that they are then killed; that time is over."""
    drain, since = seen.nodeset.spec.drain, seen.nodeset.metadata.deletion_timestamp
    if since is None or drain.on_timeout != "kill" or not drain.timeout:
        return False
    return seen.now - datetime.fromisoformat(since).timestamp() >= seconds(drain.timeout)


def _ended(pods: Sequence[Pod]) -> list[Action]:
    """Pods that won't run again make room for new ones."""
    goners = tuple(Goner(pod.metadata.name, pod.metadata.uid) for pod in pods)
    return [DeletePods(goners, ask=False)] if goners else []


def _is_stuck(pod: Pod, now: float) -> bool:
    """It should be gone for a while: its Kubernetes node doesn't answer. Its name isn't free, and isn't waited for."""
    until = pod.metadata.deletion_timestamp
    return until is not None and now - datetime.fromisoformat(until).timestamp() > STUCK_SECONDS


def _unregistered(pods: Sequence[Pod], seen: Observation) -> list[Pod]:
    """Pods whose slurmd runs and whom Slurm doesn't know."""
    if seen.slurm.nodes is None:
        return []
    return [pod for pod in pods if kube_pods.ready(pod) and pod.metadata.name not in seen.slurm.nodes]


def _forgotten(pods: Sequence[Pod], seen: Observation) -> list[Action]:
    """slurmctld was killed before it had saved these nodes' records, and a slurmd doesn't register twice: start anew.

    Only pods that were ready before slurmctld started: one that it didn't take for another reason isn't made again and
    again.
    """
    started = seen.controller_started
    if started is None or seen.now - started < FORGOTTEN_SECONDS:
        return []
    lost = [pod for pod in _unregistered(pods, seen) if kube_pods.ready_since(pod) < started]
    goners = tuple(Goner(pod.metadata.name, pod.metadata.uid) for pod in lost)
    return [DeletePods(goners, ask=True)] if goners else []


def _free_names(seen: Observation, count: int) -> list[str]:
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


def _may_create(name: str, seen: Observation) -> bool:
    """Not while Slurm has a record of its predecessor that is about to be deleted: the new slurmd would lose its own.

    A record that others drained stays, and so does their drain; one that waiting jobs name stays for them.
    """
    if not seen.verdict.accepted or seen.template is None:
        return False
    if seen.slurm.nodes is None:
        return seen.slurm.gone  # no slurmctld has ever run, so it has no records
    node = seen.slurm.nodes.get(name)
    return node is None or slurm_nodes.drained_by_others(node) or name in (seen.named or ())


def records(seen: Observation) -> list[Node]:
    """Slurm's records of this NodeSet's nodes, with or without a pod."""
    ours = re.compile(rf"{re.escape(seen.nodeset.metadata.name)}-(0|[1-9][0-9]*)")
    return [
        node
        for name, node in (seen.slurm.nodes or {}).items()
        if ours.fullmatch(name) and slurm_nodes.is_dynamic(node) and _is_ours(node, seen)
    ]


def _is_ours(node: Node, seen: Observation) -> bool:
    """Another NodeSet of this name may have had the nodes, or have them now: the mark tells whose they are."""
    if node.comment == mark(seen.nodeset):
        return True
    return seen.verdict.member and not node.comment.startswith(MARK)


def orphaned(seen: Observation) -> list[Node]:
    """Records whose pods are gone."""
    pods = {pod.metadata.name for pod in seen.pods}
    return [node for node in records(seen) if node.name not in pods]


def _may_lose_jobs(seen: Observation) -> bool:
    """Waiting jobs keep nothing when their whole cluster goes, or when the user has said that they may be killed."""
    return seen.closing or _consent(seen)


def _records(seen: Observation, wanted: Sequence[str]) -> list[Action]:
    """Records whose pods are gone: their jobs go back to the queue, then they go too."""
    orphans = orphaned(seen)
    lost = [node for node in orphans if node.occupied and node.base != "DOWN"]
    kept = {node.name for node in orphans if node.name in wanted and slurm_nodes.drained_by_others(node)}
    named = frozenset[str]() if _may_lose_jobs(seen) else seen.named
    over = sorted(node.name for node in orphans if not node.occupied and node.name not in kept)
    over = [] if named is None else [name for name in over if name not in named]
    actions: list[Action] = []
    for reason in sorted({_why_lost(node) for node in lost}):
        actions.append(DownNodes(tuple(sorted(each.name for each in lost if _why_lost(each) == reason)), reason))
    if over:
        actions.append(DeleteRecords(tuple(over)))
    return actions


def _why_lost(node: Node) -> str:
    """Who drained it has told a reason, which stays."""
    return node.reason if slurm_nodes.drained_by_others(node) and node.reason else f"{OURS}its pod is gone"


def mark(nodeset: NodeSet) -> str:
    """What the records of a NodeSet's nodes say."""
    return f"{MARK}{nodeset.metadata.namespace}/{nodeset.metadata.name}"


def _nodes(staying: Sequence[Pod], seen: Observation) -> list[Action]:
    """Nodes of pods that stay: undo our own drains, and have their records saved."""
    known = [(pod, node) for pod in staying if (node := (seen.slurm.nodes or {}).get(pod.metadata.name))]
    resume = sorted(node.name for _, node in known if slurm_nodes.drained_by_us(node))
    comment = mark(seen.nodeset)
    # A comment of somebody else stays: setting it has had the record saved as well.
    unmarked = [node.name for pod, node in known if kube_pods.ready(pod) and _needs_mark(node, comment)]
    new = sorted(unmarked)
    actions: list[Action] = []
    if resume:
        actions.append(ResumeNodes(tuple(resume)))
    if new:
        actions.append(MarkNodes(tuple(new), comment))
    return actions


def _needs_mark(node: Node, mark: str) -> bool:
    return not node.comment or (node.comment.startswith(MARK) and node.comment != mark)


def _waits_to_end(seen: Observation) -> bool:
    """Jobs that wait come and go without a change in any node, and a time that was allowed is over without any."""
    return deleted(seen.nodeset) and not seen.pods


def _all_gone(seen: Observation) -> bool:
    """No pod, and no record: those that can't be asked for don't keep a NodeSet whose Slurm is gone."""
    if seen.pods:
        return False
    if seen.slurm.gone or seen.verdict.reason == "NameTaken":
        return True
    if seen.slurm.nodes is None:
        return _consent(seen)
    if records(seen):
        return False
    return seen.queued == 0 or _may_lose_jobs(seen)
