"""What a NodeSet's plan promises, checked against what is true whenever the model's operator does something."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tests.fakes.plan_model.budget import Budget
from tests.fakes.plan_model.pods import ModelPod
from tests.fakes.plan_model.records import Record
from tests.fakes.plan_model.world import Peace, World

from seltzer.api.common import seconds
from seltzer.api.labels import BUSY, FREE_AT, SAFE_TO_EVICT, SLURM_BUSY, SLURM_READY
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import DeleteRecords, OnSlurm
from seltzer.plan.nodeset import unreachable_pods
from seltzer.plan.nodeset.deletion import deleted
from seltzer.plan.nodeset.drain_causes import Machine, is_cause, of_machine, tells, turns_unready
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.places import node_name
from seltzer.plan.nodeset.pod_selection import UPDATE
from seltzer.plan.slurm_state import OURS
from seltzer.slurm.models import Node


@dataclass(frozen=True)
class Held:
    """What a person has decided about a node."""

    drained: bool
    down: bool
    reason: str


class Promises:
    """Looks on. What breaks a promise is an AssertionError."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.budget = Budget(world)
        self._replacing: set[str] = set()
        self._staying: set[str] = set()
        # Names of pods that were too many, or lost.
        self._let_go: set[str] = set()
        # When the operator looked: the jobs that ran, of whom neither kubelet nor slurmd was heard, and who was alive.
        self._running: dict[str, set[int]] = {}
        self._lost: set[str] = set()
        self._alive: set[str] = set()
        # The names of the pods that come next.
        self._next: list[str] = []

    def looked(self, seen: NodeSetObservation) -> None:
        """It looks now."""
        world = self.world
        self._running = {pod.uid: world.jobs_of(pod) for pod in world.pods.values()}
        silent = {name for name, machine in seen.machines.items() if machine.is_silent}
        shown = {pod.metadata.name: pod.spec.node_name for pod in seen.pods}
        doubts = unreachable_pods.suspects(seen)
        self._lost = {
            pod.uid
            for name, pod in world.pods.items()
            if world.reachable and shown.get(name) in silent
            if name not in doubts or (world.pings and not world.answers(pod))
        }

    def begin(self, seen: NodeSetObservation, decision: NodeSetDecision) -> None:
        """It is about to do what it decided."""
        self._replacing = {pod.metadata.uid for pod in decision.replacing}
        self._staying = {pod.metadata.name for pod in decision.staying}
        alive = [pod for pod in seen.pods if not pod_state.deleting(pod) and not pod_state.finished(pod)]
        self._alive = {pod.metadata.name for pod in alive if pod.metadata.uid not in self._lost}
        self.budget.begin(seen, decision, self._alive)
        used = {pod.metadata.name for pod in seen.pods}
        count = max(0, self.budget.target - len(self._alive))
        names = [f"cpu-{number}" for number in range(len(used) + count)]
        self._next = [name for name in names if name not in used][:count]

    # --- Slurm ----------------------------------------------------------------------------------------------------

    def may_write(self, action: OnSlurm, seen: NodeSetObservation) -> None:
        assert seen.slurm.nodes is not None, f"{action} is done, although nothing is known of Slurm"
        if not isinstance(action, DeleteRecords):
            unknown = set(action.names) - seen.slurm.nodes.keys()
            assert not unknown, f"{action} is for nodes that Slurm doesn't have: {unknown}"

    def before(self, name: str) -> Held | None:
        record = self.world.records.get(name)
        return Held(record.drained, record.down, record.reason) if record and record.held else None

    def still_held(self, name: str, before: Held | None) -> None:
        """What a person has drained or set down stays so, with their reason, as long as there is a record."""
        record = self.world.records.get(name)
        if before is None or record is None:
            return
        assert record.reason == before.reason, f"{name} was {before}, which became {record.reason!r}"
        assert record.drained or not before.drained, f"{name} was drained by a person, and is resumed"
        assert record.down or not before.down or before.drained, f"{name} was set down by a person, and is resumed"

    def drains(self, name: str, reason: str, seen: NodeSetObservation) -> None:
        node = (seen.slurm.nodes or {})[name]
        self._is_honest(name, reason)
        if node.drained:
            other = is_cause(node.reason) != is_cause(reason) or (is_cause(reason) and not tells(node.reason, reason))
            assert slurm_state.drained_by_us(node) and other, f"{name} ({node.reason!r}) is drained once more: {reason}"
        update = reason == f"{OURS}{UPDATE}"
        assert not (update and self.world.wish.crowded), "who isn't accepted isn't updated"
        if update:
            self.budget.take(name)

    def resumes(self, name: str, seen: NodeSetObservation) -> None:
        node = (seen.slurm.nodes or {})[name]
        ours = slurm_state.drained_by_us(node) or slurm_state.down_by_us(node) or slurm_state.down_by_outage(node)
        assert ours, f"{name} is resumed, but neither we nor an outage did that"
        assert name in self._staying, f"{name} is resumed, but it leaves"
        pod = next(pod for pod in seen.pods if pod.metadata.name == name)
        assert not turns_unready(pod), f"{name} is resumed, but its pod is not ready"
        machine = pod.spec.node_name
        known = machine in seen.machines or not node.reason.startswith(f"{OURS}Kubernetes node")
        assert known, f"{name} is resumed, but nothing is known of {machine}"

    def _is_honest(self, name: str, reason: str) -> None:
        """A reason of somebody else is there already: nothing is put into anybody's mouth."""
        theirs = self.before(name)
        assert reason.startswith(OURS) or (theirs and reason == theirs.reason), f"nobody said {reason!r} of {name}"

    def downs(self, name: str, reason: str, seen: NodeSetObservation) -> None:
        """Only if no job that ran then is on it, it was lost, or its jobs took longer than the user allows."""
        self._is_honest(name, reason)
        pod = self.world.pods.get(name)
        if pod is None or pod.uid in self._lost:
            return
        jobs = self.world.jobs_of(pod) & self._running.get(pod.uid, set())
        overdue = self._overdue((seen.slurm.nodes or {})[name], "requeue")
        assert overdue or not jobs, f"{name} is set down under jobs {jobs}, which nobody allowed"

    def kills(self, name: str, seen: NodeSetObservation) -> None:
        overdue = self._overdue((seen.slurm.nodes or {})[name], "kill")
        assert overdue, f"jobs on {name} are killed, which nobody allowed"

    def _overdue(self, node: Node, policy: str) -> bool:
        drain, since = self.world.wish.drain, node.reason_time
        if drain.on_timeout != policy or not drain.timeout or since is None or not slurm_state.drained_by_us(node):
            return False
        return self.world.now - since >= seconds(drain.timeout)

    def deletes_record(self, name: str, seen: NodeSetObservation) -> None:
        world = self.world
        assert name not in world.pods, f"the record of {name} is deleted, but its pod is there"
        waits = name in world.named and not world.wish.closing and not self._consent()
        assert not waits, f"the record of {name} is deleted, which a waiting job names"
        if world.wish.per_node:
            self._forgets_no_drain(name, seen)
        elif name in self._let_go:
            self._let_go.discard(name)
        elif slurm_state.drained_by_others((seen.slurm.nodes or {})[name]) and self.before(name):
            assert name not in self._next, f"a person's drain of {name} is forgotten, although {name} comes back"

    def _forgets_no_drain(self, name: str, seen: NodeSetObservation) -> None:
        """A node that is named after its machine comes back with it, and so does what a person said of it."""
        ends = self.world.wish.closing or deleted(seen.nodeset) or not seen.places
        lasts = not ends and seen.places and name in seen.places.existing
        held = slurm_state.drained_by_others((seen.slurm.nodes or {})[name]) and self.before(name)
        assert not (lasts and held), f"a person's drain of {name} is forgotten, although its machine is there"

    # --- Kubernetes -----------------------------------------------------------------------------------------------

    def deletes_pod(self, pod: ModelPod, seen: NodeSetObservation) -> None:
        if not pod.deleting:
            self._may_delete(pod, seen)
        node = (seen.slurm.nodes or {}).get(pod.name)
        started = any(each.metadata.uid == pod.uid and not pod_state.never_started(each) for each in seen.pods)
        if pod.uid in self._replacing and started and node:
            assert not slurm_state.drained_by_others(node), f"{pod.name} is replaced, but a person holds it"
        if pod.uid not in self._replacing and not pod.ended:
            stays = pod.name in self._staying and node is not None
            assert not stays, f"{pod.name} is deleted, although it stays"
            self._let_go.add(pod.name)

    def _may_delete(self, pod: ModelPod, seen: NodeSetObservation) -> None:
        """The promise of all promises."""
        if self._consent() and seen.slurm.nodes is None:
            return
        jobs = self.world.jobs_of(pod)
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

    def ends(self, seen: NodeSetObservation) -> None:
        """The NodeSet loses its finalizer."""
        world = self.world
        assert world.wish.deleted is not None, "a NodeSet that stays loses its finalizer"
        assert not world.pods, "a NodeSet goes before its pods"
        if seen.slurm.nodes is None:
            assert world.gone or self._consent(), "a NodeSet goes, and nobody knows whether its records did"
        else:
            assert not world.records, "a NodeSet goes before its records"
            assert not world.queued or world.wish.closing or self._consent(), "jobs that wait lose their partition"

    # --- peace ----------------------------------------------------------------------------------------------------

    def may_wait_for_ever(self, seen: NodeSetObservation, decision: NodeSetDecision) -> bool:
        """What is looked at every second although nothing happens: who isn't heard of, jobs that take too long, who is
        ready but hasn't registered, and a NodeSet without pods that waits for its end."""
        known = seen.slurm.nodes or {}
        absent = any(pod_state.ready(pod) and pod.metadata.name not in known for pod in seen.pods)
        late = decision.removal.busy and seen.nodeset.spec.drain.timeout
        return bool(unreachable_pods.suspects(seen) or absent or late or (deleted(seen.nodeset) and not seen.pods))

    def admits_ignorance(self, seen: NodeSetObservation) -> None:
        """Whoever told what Slurm knew tells when nobody knows it any more; before the first pod there is nobody."""
        if not seen.slurm.unreachable or not self.world.finalizer:
            return
        waits = seen.pods and not deleted(seen.nodeset) and not seen.closing
        assert not waits or self.world.protects == "everyone", "pods may have jobs, and nothing protects them"
        for pod in self.world.pods.values():
            said = {each.status for each in pod.told.values()}
            if pod.alive and pod.shown != "Failed" and said:
                assert said == {"Unknown"}, f"{pod.name} says {said}, but nobody knows"
                assert pod.annotations[SAFE_TO_EVICT] == "false", f"{pod.name} may have jobs, and says that it may go"

    def is_as_wanted(self, peace: Peace) -> None:
        world, wish = self.world, self.world.wish
        everything_ends = peace.mended and peace.jobs_end
        if wish.deleted is not None:
            assert not everything_ends or not (world.exists or world.pods or world.records)
            return
        for name, record in world.records.items():
            if record.drained and not record.reason and record.busy and not peace.notices:
                continue  # who drained it would be forgotten: Slurm itself has to see to its jobs
            if wish.per_node and record.held and record.drained and name not in world.pods:
                continue  # its machine may get its label back
            assert name in world.pods, f"{record} has no pod"
            hangs = world.is_lost(world.pods[name]) and record.jobs
            assert not hangs, f"the jobs of {record} hang, whose pod is lost"
        live = {name: pod for name, pod in world.pods.items() if pod.alive and not world.is_lost(pod)}
        busy = {name for name in live if name in world.records and world.records[name].busy}
        if wish.per_node:
            self._is_where_it_should_be(live, busy)
        else:
            target = self.budget.target
            count = f"{sorted(live)} are there, {target} are wanted"
            assert len(live) >= target if busy else len(live) == target, count
            assert not everything_ends or len(world.pods) == target
        for name, pod in live.items():
            self._is_well(pod, world.records.get(name), leaves=name not in self._staying or pod.uid in self._replacing)
            held = any(record.held for record in world.records.values())
            unmended = not everything_ends or wish.paused or held
            assert pod.template == world.template or unmended, f"{name} isn't up to date"

    def _is_where_it_should_be(self, live: Collection[str], busy: Collection[str]) -> None:
        """There is a pod for each machine that has the label, and no other without jobs."""
        world, ends = self.world, self.world.wish.closing
        named = {node_name("cpu", machine.name): machine for machine in world.machines.values()}
        for name, machine in named.items():
            assert ends or not machine.selected or name in world.pods, f"{machine} should have a node"
        for name in live:
            has_place = not ends and named[name].there and named[name].label
            assert has_place or name in busy, f"{name} should be gone from {named[name]}"

    def _is_well(self, pod: ModelPod, record: Record | None, *, leaves: bool) -> None:
        world = self.world
        machine = world.machine(pod)
        if machine is None or world.gone:
            return
        self._tells_the_truth(pod, record)
        if not machine.well or pod.shown == "unready":
            closed = record is None or record.drained or record.down
            assert closed, f"{pod.name} takes jobs, but {machine} or {pod} is not well"
            if record and record.drained and not record.held and not leaves and pod.shown in ("ready", "unready"):
                why = of_machine(machine.name, Machine(machine.seen()), ()) or f"{OURS}its pod is not ready"
                assert tells(record.reason, why), f"{record} says so, but the matter is: {why}"
        elif world.answers(pod):
            assert record is not None, f"Slurm doesn't know {pod.name}"
            assert leaves or record.address == pod.address, f"Slurm looks for {pod.name} at {record.address}"
            takes = not record.drained and not record.down
            assert takes or record.held or leaves, f"{record} takes no jobs, but all is well"

    def _tells_the_truth(self, pod: ModelPod, record: Record | None) -> None:
        """What Slurm knows of it is on the pod, in the words that people, autoscalers and budgets read.

        One that Slurm doesn't know and never did is only told of when it should have registered.
        """
        if record is None and not pod.told and (pod.shown != "ready" or self.world.now - pod.since <= 5):
            return
        busy = record is not None and record.busy
        told = {each.type: each.status for each in pod.told.values()}
        takes = record is not None and not record.drained and not record.down
        said = (pod.labels.get(BUSY), pod.annotations.get(SAFE_TO_EVICT), told.get(SLURM_BUSY), told.get(SLURM_READY))
        true = ("true" if busy else None, "false" if busy else "true", str(busy), str(takes))
        assert said == true, f"{pod.name} says {said}, but {true} is true of {record}"
        assert (FREE_AT in pod.annotations) == busy, f"{pod.name} is free at {pod.annotations}, and has jobs: {busy}"
