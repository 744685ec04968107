"""The operator in the model world: it sees (perhaps late), decides, and does (perhaps only a part of it).

`do` is to the model what `controllers/act.py` is to the real thing, and is where every promise is checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes import plan_things as things
from tests.fakes.plan_world import ModelPod, World

from seltzer.api.common import seconds
from seltzer.api.core import Pod
from seltzer.plan import choice
from seltzer.plan import nodes as slurm_nodes
from seltzer.plan import pods as kube_pods
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    KillJobs,
    MarkNodes,
    ResumeNodes,
    SetFinalizer,
)
from seltzer.plan.membership import Verdict
from seltzer.plan.nodes import OURS
from seltzer.plan.nodeset import Decision, Observation, decide
from seltzer.plan.removal import Slurm
from seltzer.slurm.models import Node

# Every pass of an update replaces at least one pod, in a handful of steps.
PASSES = 120
CROWDED = Verdict(True, False, "TooManyNodes", "too many")


class Operator:
    """Looks at a world and changes it. What it has seen grows old until it looks again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._pods: tuple[Pod, ...] = ()
        self._nodes: dict[str, Node] | None = None
        self._unread = False
        # Names of nodes that were taken away for an update and aren't back.
        self.away: set[str] = set()
        self._replacing: set[str] = set()
        self._staying: set[str] = set()
        self._available: set[str] = set()
        # Names of pods that were too many.
        self._let_go: set[str] = set()

    # --- observe --------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """The store of pods is up to date."""
        self._pods = tuple(pod.seen() for pod in self.world.pods.values())

    def poll(self) -> None:
        """Slurm is asked. Without an answer nothing is known."""
        self._unread = False
        records = self.world.records
        self._nodes = {name: each.seen() for name, each in records.items()} if self.world.reachable else None

    def observe(self) -> Observation:
        world, wish = self.world, self.world.wish
        if self._unread:
            self.poll()  # a pass waits until it has read its own writes
        return Observation(
            nodeset=things.nodeset(
                wish.replicas,
                deleted=wish.deleted,
                finalizer=world.finalizer,
                drain=wish.drain,
                update=wish.update,
            ),
            verdict=CROWDED if wish.crowded else things.MEMBER,
            pods=self._pods,
            template=None if wish.refused else world.template,
            refusal="no" if wish.refused else "",
            slurm=Slurm(self._nodes, int(world.now), gone=world.gone),
            now=world.now,
            closing=wish.closing,
            named=frozenset(world.named) if world.reachable else None,
            queued=world.queued if world.reachable else None,
        )

    def decide(self) -> tuple[Observation, Decision]:
        seen = self.observe()
        return seen, decide(seen)

    # --- act ------------------------------------------------------------------------------------------------------

    def do(self, actions: Sequence[Action], seen: Observation, decision: Decision) -> None:
        """In this order. After a write to Slurm its nodes are unknown until it is asked again."""
        self._replacing = {pod.metadata.uid for pod in decision.replacing}
        self._staying = {pod.metadata.name for pod in decision.staying}
        self.away -= _alive(seen) - self._staying  # they are too many
        self._count_who_is_back(len(_alive(seen)))
        pool = choice.Pool(decision.staying, seen.slurm.nodes or {}, {})
        self._available = {pod.metadata.name for pod in decision.staying if pool.available(pod)}
        for action in actions:
            self._one(action, seen)

    def _one(self, action: Action, seen: Observation) -> None:
        if not self.world.exists:
            return
        match action:
            case SetFinalizer(present):
                self._set_finalizer(present, seen)
            case CreatePods(names):
                for name in names:
                    self.world.create(name, self.world.template)
                self.watch()  # a pass waits until it has read its own writes
            case DeletePods(pods, ask):
                for goner in pods:
                    self._delete_pod(goner.name, goner.uid, goner.resource_version, ask, seen)
            case _:
                self._unread = True
                if self.world.reachable:
                    self._on_slurm(action, seen)

    def _on_slurm(self, action: Action, seen: Observation) -> None:
        known = seen.slurm.nodes or {}
        match action:
            case DrainNodes(names, reason):
                assert reason.startswith(OURS)
                wish = self.world.wish
                assert not wish.crowded or not set(names) & self._staying, "who isn't accepted isn't updated"
                for name in names:
                    assert not known[name].drained, f"{name} is drained once more"
                    self._drain(name, reason)
            case ResumeNodes(names):
                for name in names:
                    assert slurm_nodes.drained_by_us(known[name]), f"{name} is resumed, but we didn't drain it"
                    if record := self.world.records.get(name):
                        record.drained, record.down, record.reason = False, False, ""
            case DownNodes(names, reason):
                for name in names:
                    self._down(name, reason, seen)
            case KillJobs(names):
                for name in names:
                    assert self._overdue(known[name], "kill"), f"jobs on {name} are killed, which nobody allowed"
                    if record := self.world.records.get(name):
                        record.completing |= record.jobs
                        record.jobs.clear()
            case MarkNodes(names, comment):
                for name in names:
                    if record := self.world.records.get(name):
                        record.comment = comment
            case DeleteRecords(names):
                for name in names:
                    assert name not in self.world.pods, f"the record of {name} is deleted, but its pod is there"
                    self._may_delete_record(name, seen)
                    record = self.world.records.get(name)
                    if record and not record.busy:  # Slurm refuses otherwise
                        del self.world.records[name]

    def _drain(self, name: str, reason: str) -> None:
        record = self.world.records.get(name)
        if record is None:
            return
        if reason != record.reason:
            record.reasoned = self.world.now
        if reason == f"{OURS}{choice.UPDATE}":
            self._take(name)
        record.drained, record.reason = True, reason

    def _down(self, name: str, reason: str, seen: Observation) -> None:
        node = (seen.slurm.nodes or {})[name]
        pod = self.world.pods.get(name)
        record = self.world.records.get(name)
        if pod and record and self.world.jobs_of(pod.uid):
            assert self._overdue(node, "requeue"), f"{name} is set down under its jobs, which nobody allowed"
        if slurm_nodes.drained_by_others(node):
            assert reason == node.reason, f"{name} was drained for {node.reason!r}, which is overwritten"
        if record:
            record.down, record.reason = True, reason
            record.jobs.clear()
            record.completing.clear()

    def _overdue(self, node: Node, policy: str) -> bool:
        drain, since = self.world.wish.drain, node.reason_time
        if drain.on_timeout != policy or not drain.timeout or since is None or not slurm_nodes.drained_by_us(node):
            return False
        return self.world.now - since >= seconds(drain.timeout)

    def _delete_pod(self, name: str, uid: str, version: str, ask: bool, seen: Observation) -> None:
        """As the API server does it: this very pod, and if a version is given only in that."""
        world = self.world
        pod = world.pods.get(name)
        if pod is None or pod.uid != uid or (version and str(pod.version) != version):
            return
        if ask:
            record = world.records.get(name)
            if not world.reachable or (record and not slurm_nodes.is_empty(record.seen())):
                return
        if not pod.deleting:
            self._may_delete(pod, seen)
        node = (seen.slurm.nodes or {}).get(name)
        started = any(each.metadata.uid == uid and not kube_pods.never_started(each) for each in seen.pods)
        if uid in self._replacing and started and node:
            assert not slurm_nodes.drained_by_others(node), f"{name} is replaced, but a person holds it"
        if uid not in self._replacing and not pod.ended:
            assert name not in self._staying, f"{name} is deleted, although it stays"
            self._let_go.add(name)
        world.delete(name)

    def _may_delete(self, pod: ModelPod, seen: Observation) -> None:
        """The promise of all promises."""
        if self._consent() and seen.slurm.nodes is None:
            return
        jobs = self.world.jobs_of(pod.uid)
        assert not jobs, f"{pod.name} is deleted with jobs {jobs} on it"
        visibly = pod.shown in ("ready", "unready")
        unknown = seen.slurm.nodes is None and not seen.slurm.gone
        assert not (visibly and unknown), f"{pod.name} is deleted, although nobody knows whether a job is on it"

    def _consent(self) -> bool:
        """The user deleted the NodeSet, and allowed that jobs are killed after a time, which is over."""
        wish = self.world.wish
        if wish.deleted is None or wish.drain.on_timeout != "kill" or not wish.drain.timeout:
            return False
        return self.world.now - wish.deleted >= seconds(wish.drain.timeout)

    def _may_delete_record(self, name: str, seen: Observation) -> None:
        world = self.world
        waits = name in world.named and not world.wish.closing and not self._consent()
        assert not waits, f"the record of {name} is deleted, which a waiting job names"
        if name in self._let_go:
            self._let_go.discard(name)
        elif slurm_nodes.drained_by_others((seen.slurm.nodes or {})[name]) and world.records[name].held:
            assert name not in self._missing(seen), (
                f"a person's drain of {name} is forgotten, although {name} comes back"
            )

    def _missing(self, seen: Observation) -> list[str]:
        """The names of the pods that come next."""
        alive = _alive(seen)
        count = max(0, self._target() - len(alive))
        names = (f"cpu-{number}" for number in range(len(alive) + count))
        return [name for name in names if name not in alive][:count]

    def _target(self) -> int:
        wish = self.world.wish
        return 0 if wish.closing or wish.deleted is not None else wish.replicas

    def _set_finalizer(self, present: bool, seen: Observation) -> None:
        world = self.world
        world.finalizer = present
        if not present:
            assert world.wish.deleted is not None, "a NodeSet that stays loses its finalizer"
            assert not world.pods, "a NodeSet goes before its pods"
            if seen.slurm.nodes is None:
                assert world.gone or self._consent(), "a NodeSet goes, and nobody knows whether its records did"
                world.records.clear()
            else:
                assert not world.records, "a NodeSet goes before its records"
                assert not world.queued or world.wish.closing or self._consent(), "jobs that wait lose their partition"
            world.exists = False

    # --- peace ----------------------------------------------------------------------------------------------------

    def work(self) -> bool:
        """A pass that sees and does everything; whether there was something to do."""
        if not self.world.exists:
            return False
        self.watch()
        self.poll()
        seen, decision = self.decide()
        self.do(decision.actions, seen, decision)
        return bool(decision.actions) or decision.timed

    def settle(self) -> None:
        """Nothing happens any more but what should: everything comes to rest, as it is wanted."""
        world = self.world
        world.want(refused=False, crowded=False)
        for _ in range(PASSES):
            world.calm()
            if not self.work() and not any(pod.deleting for pod in world.pods.values()):
                break
        else:
            raise AssertionError("it doesn't come to rest")
        self._is_as_wanted()

    def _is_as_wanted(self) -> None:
        world, wish = self.world, self.world.wish
        if wish.deleted is not None:
            assert not world.exists
            assert not world.pods
            assert not world.records
            return
        target = 0 if wish.closing else wish.replicas
        assert len(world.pods) == target
        assert world.gone or world.records.keys() == world.pods.keys()
        held = [record for record in world.records.values() if record.held]
        for name, pod in world.pods.items():
            record = world.records[name]
            assert pod.shown == "ready"
            assert record.held or not (record.drained or record.down)
            assert pod.template == world.template or wish.paused or held

    # --- the budget of updates ------------------------------------------------------------------------------------

    def _take(self, name: str) -> None:
        """A node that takes jobs is taken away for an update. Who isn't available isn't taken from anybody."""
        wish = self.world.wish
        if name in self.away or not self._is_available(name):
            return
        self.away.add(name)
        budget = choice.max_unavailable(wish.max_unavailable, wish.replicas)
        assert len(self.away) <= budget, f"{sorted(self.away)} are away for an update, and only {budget} may be"
        if name in self._available:
            self._available.discard(name)
            unavailable = self._target() - len(self._available)
            assert unavailable <= budget, f"{name} is taken away, so that {unavailable} are, and only {budget} may be"

    def _count_who_is_back(self, alive: int) -> None:
        """Who is resumed, and whose successor is available."""
        world = self.world
        for name in sorted(self.away):
            if self._is_alive(name):
                record, pod = world.records.get(name), world.pods[name]
                drained = record is not None and record.drained
                away = drained if pod.template != world.template else not self._is_available(name)
                if not away:
                    self.away.discard(name)
        lost = [name for name in sorted(self.away) if not self._is_alive(name)]
        self.away -= set(lost[max(0, self._target() - alive) :])

    def _is_alive(self, name: str) -> bool:
        pod = self.world.pods.get(name)
        return pod is not None and not pod.deleting and not pod.ended

    def _is_available(self, name: str) -> bool:
        pod, record = self.world.pods.get(name), self.world.records.get(name)
        if pod is None or record is None or not self._is_alive(name):
            return False
        return pod.shown == "ready" and not record.drained and not record.down


def _alive(seen: Observation) -> set[str]:
    return {pod.metadata.name for pod in seen.pods if not kube_pods.deleting(pod) and not kube_pods.finished(pod)}
