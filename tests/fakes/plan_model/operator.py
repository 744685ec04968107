"""The operator in the model world: it sees (perhaps late), decides, and acts (perhaps on a part of it, or later).

What it thinks is production code: all of `plan`, and the memory of `Ages` and `Machines`. Only the API server and
slurmctld are replaced here. `Promises` checks whatever it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
from tests.builders import objects
from tests.builders import plan as plan_builders
from tests.fakes.plan_model.machines import SELECTED
from tests.fakes.plan_model.promises import Promises
from tests.fakes.plan_model.world import Peace, Wish, World

from seltzer.api.core import Deployment, Lease, LeaseSpec, ObjectMeta, Pod
from seltzer.api.core import Node as KubeNode
from seltzer.api.nodeset import NodeSet
from seltzer.controllers.ages import Ages
from seltzer.controllers.machines import Machines
from seltzer.errors import SeltzerError
from seltzer.kube.resource import key_of
from seltzer.kube.store import Store
from seltzer.plan import recheck, slurm_presence
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    KillJobs,
    MarkNodes,
    OnSlurm,
    PatchPods,
    PodRef,
    ResumeNodes,
    SetAddress,
    SetFinalizer,
)
from seltzer.plan.nodeset import aging, next_pass, places, support, unreachable_pods
from seltzer.plan.nodeset import nodeset_plan as plan
from seltzer.plan.nodeset.membership import Membership
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.places import Places
from seltzer.plan.recheck import Facts
from seltzer.plan.slurm_presence import Contact, ControlPlane, SlurmState
from seltzer.slurm.models import Node

# Every pass of an update replaces at least one pod, in a handful of steps.
PASSES = 120
PAUSES = (1.0, 2.0, 20.0, 60.0)
# Of who is looked at for ever something may still come, but not after so many passes.
PATIENCE = 4
CROWDED = Membership(True, False, "TooManyNodes", "too many")
# How long Slurm may be silent before what it told counts no more.
STALE = 60.0


class Operator:
    """Looks at a world and changes it. What it has seen grows old until it looks again."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.promises = Promises(world)
        # How many calls to Slurm it has made.
        self.calls: list[OnSlurm] = []
        self.restart()

    def restart(self) -> None:
        """Another one takes over, who remembers nothing."""
        self._pods: tuple[Pod, ...] = tuple(pod.seen() for pod in self.world.pods.values())
        self._nodes: Mapping[str, Node] | None = None
        self._named: frozenset[str] | None = None
        self._queued: int | None = None
        self._answered = self.world.now
        self._kube_nodes: Store[KubeNode] = Store()
        self._machines = Machines(self._kube_nodes, self._following, self.world.clock)
        self._surveyed: float | None = None
        self._ages = Ages()
        self._unread = False
        self._thought: tuple[NodeSetObservation, NodeSetDecision, Wish] | None = None
        self._idle = 0

    # --- observe --------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """The store of pods is up to date."""
        self._pods = tuple(pod.seen() for pod in self.world.pods.values())

    def survey(self) -> None:
        """The store of machines is up to date."""
        now, version = self.world.now, str(self._kube_nodes.resource_version + 1)
        nodes = [node for machine in self.world.machines.values() if (node := machine.seen())]
        self._surveyed = now if self._surveyed is None else self._surveyed
        self._kube_nodes.replace([_with_version(node, version) for node in nodes], version)

    def _following(self) -> float:
        return 0.0 if self._surveyed is None else self.world.now - self._surveyed

    def poll(self) -> None:
        """Slurm is asked, and so are the feeds. Without an answer nothing is known."""
        self._unread = False
        records = self.world.records
        self._nodes = {name: each.seen() for name, each in records.items()} if self.world.reachable else None
        if self.world.reachable:
            self._answered = self.world.now
        self._named, self._queued = self._waiting_jobs()

    def _waiting_jobs(self) -> tuple[frozenset[str], int] | tuple[None, None]:
        return (frozenset(self.world.named), self.world.queued) if self.world.reachable else (None, None)

    def observe(self) -> NodeSetObservation:
        world, wish = self.world, self.world.wish
        spec = {"placement": "perNode"} if wish.per_node else {"replicas": wish.replicas}
        nodeset = objects.nodeset(
            spec, deleted=wish.deleted, finalizer=world.finalizer, drain=wish.drain, update=wish.update
        )
        if self._unread or next_pass.needs_fresh_nodes(nodeset, self._pods):
            # A pass waits until it has read its own writes.
            self.poll()
        seen = NodeSetObservation(
            nodeset=nodeset,
            membership=CROWDED if wish.crowded else plan_builders.MEMBER,
            pods=self._pods,
            template=None if wish.refused else world.template,
            refusal="no" if wish.refused else "",
            slurm=self._slurm(),
            now=world.now,
            closing=wish.closing,
            named=self._named,
            ending_partition="cpu" if wish.deleted is not None else "",
            queued=self._queued,
            deadlines_age=float("inf") if self._named is None else 0.0,
            controller_started=world.controller_started,
            machines=self._machines.of({places.machine_of(pod) for pod in self._pods}),
            places=self._places(nodeset),
        )
        seen = replace(seen, ages=self._ages.of(key_of(seen.nodeset), aging.things(seen), world.now))
        return replace(seen, answers=self._ask(unreachable_pods.suspects(seen)), free_at=self._deadlines())

    def _places(self, nodeset: NodeSet) -> Places | None:
        """Unknown before the first look at the machines, and while the pods can't be built."""
        if not nodeset.per_node or self._surveyed is None or self.world.wish.refused:
            return None
        return places.find(nodeset, {"nodeSelector": SELECTED}, self._kube_nodes, self._pods)

    def _slurm(self) -> SlurmState:
        """A cluster that is being deleted has been so for a moment only: when a silent one is gone is in a table."""
        world = self.world
        plane = ControlPlane(
            objects.cluster(deleted=world.now if world.wish.closing else None),
            None if world.gone else Deployment(metadata=ObjectMeta(name="demo-slurmctld")),
            Lease(metadata=ObjectMeta(), spec=LeaseSpec(holder_identity="demo-slurmctld-x")),
        )
        contact = Contact(self._nodes, int(world.now), world.now - self._answered, STALE)
        return slurm_presence.slurm(plane, contact, world.now)

    def _ask(self, suspects: Mapping[str, str]) -> dict[str, bool]:
        """Whether they answer slurmctld's pod; nothing where that can't be asked."""
        if not self.world.reachable or not self.world.pings:
            return {}
        there = {pod.address for pod in self.world.pods.values() if self.world.answers(pod)}
        return {name: address in there for name, address in suspects.items()}

    def _deadlines(self) -> dict[str, float | None]:
        """Every job has an hour from its start, but those with odd numbers, which have no limit."""
        found: dict[str, float | None] = {}
        for name, record in self.world.records.items():
            if record.jobs:
                found[name] = None if any(job % 2 for job in record.jobs) else objects.NOW + 3600 + max(record.jobs)
        return found

    def decide(self) -> tuple[NodeSetObservation, NodeSetDecision]:
        seen = self.observe()
        decision = plan.decide(seen)
        self.promises.looked(seen)
        return seen, decision

    # --- act ------------------------------------------------------------------------------------------------------

    def do(self, actions: Sequence[Action], seen: NodeSetObservation, decision: NodeSetDecision) -> None:
        """In this order. After a write to Slurm its nodes are unknown until it is asked again."""
        self._thought = None
        self.promises.begin(seen, decision)
        self._support(seen, decision)
        facts = self._read(actions)
        for action in actions:
            try:
                due = recheck.still_due(action, facts)
            except SeltzerError:
                continue  # Slurm doesn't answer
            if due and self.world.exists:
                self._one(due, seen)

    def _read(self, actions: Sequence[Action]) -> Facts:
        """What the plan wants to know right before it acts."""
        needs = recheck.needs(actions, self._nodes or {})
        records = self.world.records if self.world.reachable else None
        nodes = {name: each.seen() for name, each in records.items()} if records is not None else None
        named, queued = self._waiting_jobs()
        return Facts(nodes if needs.nodes else None, self._ask(needs.silent), named, queued)

    def _support(self, seen: NodeSetObservation, decision: NodeSetDecision) -> None:
        needs = support.needs(seen, decision)
        if needs and not (needs.only_create and self.world.protects):
            self.world.protects = needs.protects

    def think(self) -> None:
        """Decide something that isn't done yet."""
        self._thought = (*self.decide(), self.world.wish)

    def act_late(self, order: int, count: int) -> None:
        """Do it now, whatever but the user's wish has changed: as far as Slurm is asked once more before."""
        if self._thought is None or self._thought[2] != self.world.wish or not self.world.exists:
            return
        seen, decision, _ = self._thought
        late = DrainNodes | ResumeNodes | DownNodes | DeletePods | PatchPods | DeleteRecords | SetFinalizer
        actions = [each for each in (*decision.actions, *decision.pod_updates) if isinstance(each, late)]
        self.do(plan_builders.part_of(actions, order, count), seen, decision)

    def _one(self, action: Action, seen: NodeSetObservation) -> None:
        world = self.world
        match action:
            case SetFinalizer(present):
                world.finalizer = present
                if not present:
                    self.promises.ends(seen)
                    world.records.clear()
                    world.exists = False
            case CreatePods(names):
                for name in names:
                    world.create(name, world.template, seen.places.wanted[name] if seen.places else "")
                self.watch()  # a pass waits until it has read its own writes
            case DeletePods(pods):
                for pod in pods:
                    self._delete_pod(pod, seen)
            case PatchPods(patches):
                for patch in patches:
                    if patch.name in world.pods:
                        world.pods[patch.name].patch(patch)
                self.watch()
            case DrainNodes() | ResumeNodes() | DownNodes() | KillJobs() | MarkNodes() | SetAddress() | DeleteRecords():
                self.promises.may_write(action, seen)
                self._unread = True
                if world.reachable:
                    self._on_slurm(action, seen)
            case _:
                raise AssertionError(f"{action} isn't for a NodeSet")

    def _on_slurm(self, action: OnSlurm, seen: NodeSetObservation) -> None:
        """As slurmctld does it."""
        records, now, names = self.world.records, self.world.now, action.names
        self.calls.append(action)
        before = {name: self.promises.before(name) for name in names}
        for name in names:
            record = records.get(name)
            match action:
                case DeleteRecords():
                    self.promises.deletes_record(name, seen)
                    if record and not record.busy:  # Slurm refuses otherwise
                        del records[name]
                case _ if record is None:
                    continue
                case DrainNodes(_, reason):
                    self.promises.drains(name, reason, seen)
                    record.drain(reason, now)
                case ResumeNodes():
                    self.promises.resumes(name, seen)
                    record.resume()
                case DownNodes(_, reason):
                    self.promises.downs(name, reason, seen)
                    record.go_down(reason, now)
                case KillJobs():
                    self.promises.kills(name, seen)
                    record.kill_jobs()
                case MarkNodes(_, comment):
                    record.comment = comment
                case SetAddress(_, address):
                    record.address = address
        for name in names:
            self.promises.still_held(name, before[name])

    def _delete_pod(self, ref: PodRef, seen: NodeSetObservation) -> None:
        """As the API server does it: this very pod, and if a version is given only in that."""
        pod = self.world.pods.get(ref.name)
        if pod and pod.uid == ref.uid and ref.resource_version in ("", str(pod.version)):
            self.promises.deletes_pod(pod, seen)
            self.world.delete(ref.name)

    # --- peace ----------------------------------------------------------------------------------------------------

    def work(self) -> bool:
        """A pass that sees and does everything; whether there was something to do, or will be soon."""
        if not self.world.exists:
            return False
        self.watch()
        self.survey()
        self.poll()
        seen, decision = self.decide()
        actions = (*decision.actions, *decision.pod_updates)
        self.do(actions, seen, decision)
        self.promises.admits_ignorance(seen)
        waits = bool(decision.wakeups) and not self.promises.may_wait_for_ever(seen, decision)
        self._idle = 0 if actions or waits else self._idle + 1
        return self._idle <= (PATIENCE if decision.wakeups else 0)

    def settle(self, peace: Peace | None = None) -> None:
        """Nothing happens any more but what should: everything comes to rest, as it is wanted, and stays so."""
        peace = peace or Peace()
        world = self.world
        world.want(refused=False, crowded=False)
        self._idle = 0
        for number in range(PASSES):
            world.calm(peace, PAUSES[number % len(PAUSES)])
            if not self.work() and not any(world.is_going(pod) for pod in world.pods.values()):
                break
        else:
            raise AssertionError("it doesn't come to rest")
        self.promises.is_as_wanted(peace)
        self._stays_so()

    def _stays_so(self) -> None:
        """Who doesn't look again because it isn't told to has nothing to do, whatever time it is."""
        for seconds in (1.0, 10.0, 100.0, 10_000.0):
            self.world.now += seconds
            if self.world.exists:
                _, decision = self.decide()
                if not decision.wakeups:
                    assert not decision.actions, f"nobody would look again, but this is to be done: {decision.actions}"
                    assert not decision.pod_updates, (
                        f"nobody would look again, but this isn't told: {decision.pod_updates}"
                    )


def _with_version(node: KubeNode, version: str) -> KubeNode:
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, resource_version=version))
