"""What to do about a NodeSet: pods that are missing, too many, out of date or ended, and their records in Slurm.

Guarantees, whatever the observation:

- A pod is deleted only if no job can be on it: it never started, it has ended, its node is drained and empty, its node
  isn't registered and isn't about to be, there is no Slurm any more, or the user allowed jobs to be killed.
- A drain that we didn't set is neither undone nor overwritten.
- A node whose machine or pod is unwell or about to go takes no new jobs, and takes them again when that is over.
- A pod is given up for lost only if neither its kubelet nor its slurmd is heard of. Its jobs go back to the queue, and
  its name isn't used again before Kubernetes knows that it has ended.
- No more than `update.maxUnavailable` nodes are taken away for an update.
- With nothing changing any more, it comes to rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from seltzer.api.common import seconds
from seltzer.api.core import Pod
from seltzer.api.labels import FINALIZER
from seltzer.api.nodeset import NodeSet
from seltzer.plan import causes, choice, mirror
from seltzer.plan import nodes as slurm_nodes
from seltzer.plan import pods as kube_pods
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    Goner,
    MarkNodes,
    MirrorPods,
    ResumeNodes,
    SetAddress,
    SetFinalizer,
)
from seltzer.plan.causes import Machine
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
    # The Kubernetes nodes that the pods are on, by name. Of one that isn't among them nothing is known.
    machines: Mapping[str, Machine] = field(default_factory=dict)
    # Which of the nodes that `doubtful` names don't answer slurmctld's pod. None: that can't be told.
    silent: frozenset[str] | None = None
    # When the last job on a node reaches its limit, in seconds; None where one has no limit.
    free_at: Mapping[str, float | None] = field(default_factory=dict)


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
    # What the pods don't tell yet.
    told: tuple[MirrorPods, ...] = ()


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
    doubts = doubtful(seen)
    lost = [pod for pod in seen.pods if not kube_pods.finished(pod) and _is_lost(pod, seen, doubts)]
    pool = _pool(seen, _without([pod for pod in alive if not kube_pods.finished(pod)], lost))
    victims = choice.surplus(pool, len(pool.pods) - target, seen.template)
    pool = _pool(seen, _without(pool.pods, victims))
    going = [pod for pod in seen.pods if kube_pods.deleting(pod) or kube_pods.finished(pod)]
    returning = sum(choice.ordinal(pod.metadata.name) < target and not _is_stuck(pod, seen) for pod in going)
    missing = max(0, target - len(pool.pods))
    replacing: list[Pod] = []
    if not spec.update.paused and seen.verdict.accepted:
        budget = choice.max_unavailable(spec.update.max_unavailable, spec.replicas)
        replacing = choice.outdated(pool, seen.template, budget, missing)
    removal = _removal(seen, victims, replacing)
    forgotten = _forgotten(_without(pool.pods, replacing), seen)
    wanted = _free_names(seen, max(0, missing - returning))
    actions = [*_ended(ended), *_lost(lost, seen), *removal.actions, *forgotten]
    actions += _records(seen, _free_names(seen, missing))
    found = _nodes(_without(pool.pods, replacing), seen)
    actions += [*found.actions, *_deleted_by_others(seen)]
    if names := tuple(name for name in wanted if _may_create(name, seen)):
        actions.append(CreatePods(names))
    if deleted(nodeset) and _all_gone(seen):
        actions.append(SetFinalizer(False))
    timed = bool(removal.unknown) or (bool(removal.busy) and spec.drain.timeout is not None) or _waits_to_end(seen)
    timed = timed or bool(missing and going) or bool(_unregistered(pool.pods, seen)) or found.waits or bool(lost)
    timed = timed or mirror.lingers(alive, seen.slurm.nodes or {}, seen.slurm.now) or bool(doubts)
    # Not on those that go now, or are about to: nobody would read it.
    going_now = {goner.name for action in actions if isinstance(action, DeletePods) for goner in action.pods}
    tellers = [pod for pod in alive if pod.metadata.name not in going_now]
    theirs = spec.pod_template.metadata.annotations
    told = mirror.changes(tellers, seen.slurm.nodes, seen.free_at, seen.slurm.now, _text(seen.now), theirs)
    return Decision(tuple(actions), tuple(pool.pods), tuple(replacing), removal, target, missing, timed, told)


def _without(pods: Sequence[Pod], others: Sequence[Pod]) -> list[Pod]:
    """Those that aren't among the others, told by their names: to compare thousands of whole pods takes seconds."""
    names = {pod.metadata.name for pod in others}
    return [pod for pod in pods if pod.metadata.name not in names]


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
    unheard = {pod.metadata.name for pod in (*victims, *replacing) if not _is_heard(pod, seen)}
    one = steps(victims, seen.slurm, drain, why, seen.now, consent=consent, unheard=unheard)
    two = steps(replacing, seen.slurm, drain, choice.UPDATE, seen.now, consent=False, unheard=unheard)
    return Steps(one.actions + two.actions, one.busy + two.busy, one.overdue + two.overdue, one.unknown + two.unknown)


def _is_heard(pod: Pod, seen: Observation) -> bool:
    """Whether its kubelet is there, as far as Kubernetes knows."""
    machine = seen.machines.get(pod.spec.node_name)
    return machine is not None and not machine.is_silent


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


def _is_stuck(pod: Pod, seen: Observation) -> bool:
    """It should be gone for a while, or nobody is there to end it. Its name isn't free, and isn't waited for."""
    until = pod.metadata.deletion_timestamp
    if until is None:
        return False
    machine = seen.machines.get(pod.spec.node_name)
    late = seen.now - datetime.fromisoformat(until).timestamp()
    return late > STUCK_SECONDS or (machine is not None and machine.is_silent)


def doubtful(seen: Observation) -> dict[str, str]:
    """The nodes, with their addresses, that have to be asked whether they are there: Kubernetes doesn't hear of their
    machine, or slurmctld of them."""
    nodes = seen.slurm.nodes or {}
    found: dict[str, str] = {}
    for pod in seen.pods:
        name, address = pod.metadata.name, pod.status.pod_ip
        machine = seen.machines.get(pod.spec.node_name)
        node = nodes.get(name)
        address = address or (node.address if node else "")
        if kube_pods.finished(pod) or not address or (kube_pods.deleting(pod) and not _has_jobs_to_lose(node)):
            continue
        if (machine is not None and machine.is_silent) or (node is not None and slurm_nodes.down_by_outage(node)):
            found[name] = address
    return found


def _has_jobs_to_lose(node: Node | None) -> bool:
    """Whether something is to be done about it when its pod, which is being deleted, is lost."""
    return node is not None and node.occupied and node.base != "DOWN"


def _is_lost(pod: Pod, seen: Observation, doubts: Mapping[str, str]) -> bool:
    """Neither its kubelet nor its slurmd is heard of; nor was it ever, of a pod that nobody can ask."""
    machine, name = seen.machines.get(pod.spec.node_name), pod.metadata.name
    if not pod.spec.node_name or machine is None or not machine.is_silent:
        return False
    if name in doubts:
        return seen.silent is not None and name in seen.silent
    return seen.slurm.nodes is not None and not kube_pods.deleting(pod)


def _lost(pods: Sequence[Pod], seen: Observation) -> list[Action]:
    """Their jobs go back into the queue; then no new ones may come; then the pods go, whenever their machine is back.

    Nothing of a pod ends by its deletion while its kubelet is away. Its object stays until then, and so does its name.
    """
    if seen.slurm.nodes is None:
        return []
    down: dict[str, list[str]] = {}
    drain: dict[str, list[str]] = {}
    goners: list[Goner] = []
    for pod in pods:
        name, node = pod.metadata.name, seen.slurm.nodes.get(pod.metadata.name)
        why = _cause(pod, seen)
        if node is not None and node.base != "DOWN":
            if _may_go_down(node):
                down.setdefault(_kept_reason(node, why), []).append(name)
        elif node is not None and not node.drained:
            drain.setdefault(_kept_reason(node, why), []).append(name)
        elif not kube_pods.deleting(pod) and (node is None or not node.occupied):
            goners.append(Goner(name, pod.metadata.uid))
    actions: list[Action] = [DownNodes(tuple(sorted(names)), why) for why, names in sorted(down.items())]
    actions += [DrainNodes(tuple(sorted(names)), why) for why, names in sorted(drain.items())]
    return [*actions, DeletePods(tuple(goners), ask=True)] if goners else actions


def _cause(pod: Pod, seen: Observation) -> str:
    """Why no new job should come to it, if there is a reason."""
    machine = seen.machines.get(pod.spec.node_name)
    tolerations = seen.nodeset.spec.pod_template.spec.get("tolerations") or ()
    why = causes.of_machine(pod.spec.node_name, machine, tolerations) if machine is not None else ""
    node = (seen.slurm.nodes or {}).get(pod.metadata.name)
    return why or causes.of_pod(pod, seen.now, (node.slurmd_started if node else None) or 0.0)


def _deleted_by_others(seen: Observation) -> list[Action]:
    """Pods that somebody deletes without asking: no new job may come for as long as their grace lasts."""
    nodes = seen.slurm.nodes or {}
    names = tuple(
        sorted(
            pod.metadata.name
            for pod in seen.pods
            if kube_pods.deleting(pod) and not kube_pods.finished(pod)
            if (node := nodes.get(pod.metadata.name)) and not node.drained and node.base != "DOWN"
        )
    )
    return [DrainNodes(names, f"{OURS}its pod is being deleted")] if names else []


def _unregistered(pods: Sequence[Pod], seen: Observation) -> list[Pod]:
    """Pods whose slurmd runs and whom Slurm doesn't know."""
    if seen.slurm.nodes is None:
        return []
    return [pod for pod in pods if kube_pods.ready(pod) and pod.metadata.name not in seen.slurm.nodes]


def _forgotten(pods: Sequence[Pod], seen: Observation) -> list[Action]:
    """slurmctld was killed before it had saved these nodes' records, or somebody deleted those, and a slurmd doesn't
    register twice: start anew.

    Only pods that Slurm knew, or that were ready before slurmctld started: one that it didn't take for another reason
    isn't made again and again.
    """
    started = seen.controller_started
    if started is None or seen.now - started < FORGOTTEN_SECONDS:
        return []
    lost = [pod for pod in _unregistered(pods, seen) if _is_older(pod, started) or _had_a_record(pod, seen.now)]
    goners = tuple(Goner(pod.metadata.name, pod.metadata.uid) for pod in lost)
    return [DeletePods(goners, ask=True)] if goners else []


def _is_older(pod: Pod, started: float) -> bool:
    """Whether it was ready before slurmctld started. Its machine's clock may be behind: then it would be so in every
    life, but the API server knows that it hadn't been made yet."""
    made = pod.metadata.creation_timestamp
    return made is not None and max(_seconds(made), kube_pods.ready_since(pod)) < started


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _had_a_record(pod: Pod, now: float) -> bool:
    """Whether Slurm knew it until a while ago."""
    told = mirror.was_forgotten(pod)
    since = told.last_transition_time if told else None
    return since is not None and now - _seconds(since) >= FORGOTTEN_SECONDS


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
    lost = [node for node in orphans if node.occupied and node.base != "DOWN" and _may_go_down(node)]
    reused = frozenset(wanted)
    kept = {node.name for node in orphans if node.name in reused and slurm_nodes.drained_by_others(node)}
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
    return _kept_reason(node, f"{OURS}its pod is gone")


def _kept_reason(node: Node, ours: str) -> str:
    """Who drained it or set it down has told a reason, which stays."""
    return node.reason if slurm_nodes.held_by_others(node) and node.reason else ours


def _may_go_down(node: Node) -> bool:
    """Whoever drained it and gave no reason would be taken for us afterwards: Slurm itself has to see to it."""
    return bool(node.reason) or not slurm_nodes.drained_by_others(node)


def mark(nodeset: NodeSet) -> str:
    """What the records of a NodeSet's nodes say."""
    return f"{MARK}{nodeset.metadata.namespace}/{nodeset.metadata.name}"


@dataclass(frozen=True)
class _Nodes:
    actions: tuple[Action, ...]
    # A drain of ours is undone when its machine has been well for a while.
    waits: bool


def _nodes(staying: Sequence[Pod], seen: Observation) -> _Nodes:
    """Nodes of pods that stay: what Kubernetes knows of them is told, what is over is undone, and all are saved."""
    known = [(pod, node) for pod in staying if (node := (seen.slurm.nodes or {}).get(pod.metadata.name))]
    down: dict[str, list[str]] = {}
    drain: dict[str, list[str]] = {}
    resume: list[str] = []
    waits = False
    for pod, node in known:
        over, cause = causes.ended(pod, node), _cause(pod, seen)
        if over:
            if node.base != "DOWN" and _may_go_down(node):
                down.setdefault(_kept_reason(node, over), []).append(node.name)
        elif cause:
            if slurm_nodes.down_by_others(node):
                continue  # it takes no jobs, and somebody has said why
            if not node.drained or (slurm_nodes.drained_by_us(node) and not causes.is_cause(node.reason)):
                drain.setdefault(cause, []).append(node.name)
        elif slurm_nodes.drained_by_us(node) or (slurm_nodes.down_by_us(node) and kube_pods.ready(pod)):
            if causes.is_over(node, seen.machines.get(pod.spec.node_name)):
                resume.append(node.name)
            else:
                waits = waits or bool(pod.spec.node_name)  # before that there is no machine to wait for
        elif kube_pods.ready(pod) and _is_back(node, seen):
            resume.append(node.name)
        waits = waits or (not over and not cause and causes.turns_unready(pod))
    comment = mark(seen.nodeset)
    # A comment of somebody else stays: setting it has had the record saved as well.
    new = sorted(node.name for pod, node in known if kube_pods.ready(pod) and _needs_mark(node, comment))
    actions: list[Action] = [DownNodes(tuple(sorted(names)), why) for why, names in sorted(down.items())]
    actions += [DrainNodes(tuple(sorted(names)), why) for why, names in sorted(drain.items())]
    if resume:
        actions.append(ResumeNodes(tuple(sorted(resume))))
    if new:
        actions.append(MarkNodes(tuple(new), comment))
    for pod, node in known:
        if kube_pods.ready(pod) and pod.status.pod_ip and _is_elsewhere(node, pod.status.pod_ip):
            actions.append(SetAddress((node.name,), pod.status.pod_ip))
    return _Nodes(tuple(actions), waits)


def _is_back(node: Node, seen: Observation) -> bool:
    """slurmctld gave it up in an outage, and its slurmd answers again."""
    return slurm_nodes.down_by_outage(node) and seen.silent is not None and node.name not in seen.silent


def _is_elsewhere(node: Node, address: str) -> bool:
    """slurmctld has an address of it that another pod of its name had; one that isn't an address is its own name."""
    return node.address not in ("", address, node.name, node.hostname)


def _needs_mark(node: Node, mark: str) -> bool:
    return not node.comment or (node.comment.startswith(MARK) and node.comment != mark)


def _text(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
