"""A small world for a NodeSet's plan: pods and their kubelet, slurmctld's records and jobs, people, and the clock.

It holds what is true. What the operator sees of it, and what it does to it, is in `plan_operator`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.fakes import plan_things as things

from seltzer.api.core import Pod
from seltzer.api.nodeset import Drain, Update
from seltzer.plan.nodes import OURS
from seltzer.slurm.models import Node

CPUS = 4
LATE = 10.0


@dataclass
class ModelPod:
    """A pod. `runs`: its slurmd does. `shown` is what its status says, which comes a moment later."""

    name: str
    uid: str
    template: str
    since: float
    runs: bool = False
    ended: bool = False
    deleting: bool = False
    shown: str = "created"
    version: int = 1
    # slurmd registers once, when it starts.
    registered: bool = False
    started: float = 0.0

    def show(self, state: str, now: float) -> None:
        if self.shown != state:
            self.shown, self.since = state, now
            self.version += 1

    def seen(self) -> Pod:
        return things.pod(
            self.name,
            state=self.shown,
            template=self.template,
            deleting=self.deleting,
            since=self.since,
            uid=self.uid,
            version=str(self.version),
        )


@dataclass
class Record:
    """slurmctld's record of a node, and the jobs on it: of each, whose slurmd runs it."""

    name: str
    uid: str
    drained: bool = False
    down: bool = False
    reason: str = ""
    reasoned: float = 0.0
    comment: str = ""
    jobs: dict[int, str] = field(default_factory=dict)
    # Jobs that were told to end, and are being cleaned up.
    completing: dict[int, str] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        return bool(self.jobs or self.completing)

    @property
    def held(self) -> bool:
        """By a person."""
        return self.drained and not self.reason.startswith(OURS)

    def seen(self) -> Node:
        used = len(self.jobs) + len(self.completing)
        base = "DOWN" if self.down else "ALLOCATED" if used >= CPUS else "MIXED" if used else "IDLE"
        flags = [
            flag
            for flag, holds in (
                ("NOT_RESPONDING", self.down),
                ("DRAIN", self.drained),
                ("COMPLETING", bool(self.completing)),
            )
            if holds
        ]
        return things.node(
            self.name,
            " ".join([base, *flags]),
            reason=self.reason,
            since=int(self.reasoned),
            comment=self.comment,
            alloc_cpus=used,
        )


@dataclass
class Wish:
    """What the user wants of the NodeSet, and how the cluster judges it."""

    replicas: int = 2
    template: int = 0
    max_unavailable: int | str = 1
    paused: bool = False
    drain: Drain = field(default_factory=Drain)
    deleted: float | None = None
    closing: bool = False
    refused: bool = False
    crowded: bool = False

    @property
    def update(self) -> Update:
        return Update(max_unavailable=self.max_unavailable, paused=self.paused)


class World:
    """What is true, and everything that can happen without the operator."""

    def __init__(self) -> None:
        self.now = things.NOW
        self.wish = Wish()
        self.finalizer = False
        self.exists = True  # the NodeSet
        self.pods: dict[str, ModelPod] = {}
        self.records: dict[str, Record] = {}
        self.broken: set[str] = set()  # templates whose image nobody has
        self.reachable = True
        self.gone = False
        self.named: set[str] = set()  # nodes that waiting jobs name
        self.queued = 0  # jobs that wait in the NodeSet's partition
        self._last = 0

    def _next(self) -> int:
        self._last += 1
        return self._last

    # --- what happens to pods -------------------------------------------------------------------------------------

    def create(self, name: str, template: str) -> None:
        assert name not in self.pods, f"{name} is created although it exists"
        self.pods[name] = ModelPod(name, f"u{self._next()}", template, self.now)

    def start(self, name: str) -> None:
        """Its containers start; its status doesn't tell yet."""
        pod = self.pods[name]
        if pod.runs or pod.ended or pod.deleting:
            return
        if pod.shown == "created":  # where it runs is known before it does
            pod.show("waiting", self.now)
        if pod.template not in self.broken:
            pod.runs, pod.started = True, self.now

    def report(self, name: str, ready: bool = True) -> None:
        """The kubelet tells how a pod does."""
        pod = self.pods[name]
        if pod.ended:
            pod.show("Failed", self.now)
        elif pod.runs:
            pod.show("ready" if ready else "unready", self.now)
        else:
            pod.show("ImagePullBackOff" if pod.template in self.broken else "waiting", self.now)

    def evict(self, name: str) -> None:
        """Its containers end for good."""
        pod = self.pods[name]
        if not pod.deleting:
            pod.runs, pod.ended = False, True
            self.report(name)

    def delete(self, name: str) -> None:
        """Somebody deletes it: it is given time to end."""
        pod = self.pods[name]
        pod.deleting = True
        pod.version += 1

    def vanish(self, name: str) -> None:
        if self.pods[name].deleting:
            del self.pods[name]

    # --- what happens in Slurm ------------------------------------------------------------------------------------

    def register(self, name: str) -> None:
        """A slurmd that has just started tells of itself. What an earlier slurmd of that name ran is over."""
        pod = self.pods[name]
        if not pod.runs or pod.registered or self.gone:
            return
        pod.registered = True
        record = self.records.setdefault(name, Record(name, pod.uid))
        record.uid, record.down = pod.uid, False
        record.jobs = {job: uid for job, uid in record.jobs.items() if uid == pod.uid}
        record.completing = {job: uid for job, uid in record.completing.items() if uid == pod.uid}

    def run_job(self, name: str) -> None:
        """slurmctld puts a job onto a node, also if its slurmd is dead and slurmctld doesn't know yet."""
        record = self.records[name]
        if not record.drained and not record.down and len(record.jobs) + len(record.completing) < CPUS:
            record.jobs[self._next()] = record.uid

    def end_job(self, name: str) -> None:
        """The oldest job on a node ends by itself."""
        jobs = self.records[name].completing or self.records[name].jobs
        if jobs:
            del jobs[min(jobs)]

    def notice(self, name: str) -> None:
        """slurmctld notices that a slurmd is dead, and puts its jobs back into the queue."""
        record = self.records[name]
        pod = self.pods.get(name)
        if pod is None or not pod.runs or pod.uid != record.uid:
            record.down = True
            record.jobs.clear()
            record.completing.clear()

    def forget(self, name: str) -> None:
        """slurmctld crashes before it has saved a record; the jobs on that node are lost with it."""
        if not self.records[name].comment:
            del self.records[name]

    def person_drains(self, name: str) -> None:
        record = self.records[name]
        record.drained, record.reason, record.reasoned = True, "disk is full", self.now

    def person_resumes(self, name: str) -> None:
        record = self.records[name]
        record.drained, record.down, record.reason = False, False, ""

    def jobs_of(self, uid: str) -> set[int]:
        """The jobs that would die with this pod."""
        alive = any(pod.uid == uid and pod.runs for pod in self.pods.values())
        found = [
            job
            for record in self.records.values()
            for job, owner in (*record.jobs.items(), *record.completing.items())
            if owner == uid
        ]
        return set(found) if alive else set()

    # --- what people want -----------------------------------------------------------------------------------------

    def want(self, **changes: object) -> None:
        self.wish = replace(self.wish, **changes)  # type: ignore[arg-type]

    def delete_nodeset(self) -> None:
        if self.wish.deleted is None:
            self.want(deleted=self.now)
            self.exists = self.finalizer

    @property
    def template(self) -> str:
        return f"t{self.wish.template}"

    def lose_slurm(self) -> None:
        """The cluster's controller is gone for good: only while the cluster goes."""
        self.gone, self.reachable = True, False
        self.records.clear()

    def pass_time(self, seconds: float) -> None:
        """A kubelet is late to tell, but not for ever."""
        self.now += seconds
        for name, pod in self.pods.items():
            if pod.runs and pod.shown not in ("ready", "unready") and self.now - pod.started >= LATE:
                self.report(name)

    # --- peace ----------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """Time passes in which everything goes as it should, and nobody does anything."""
        self.pass_time(20.0)
        self.reachable = not self.gone
        self.broken.clear()
        self.named.clear()
        self.queued = 0
        for name in list(self.pods):
            self.vanish(name)
        for name, pod in self.pods.items():
            self.start(name)
            self.report(name)
            # One that slurmctld has forgotten needs a restart. Nobody does that yet, so it happens by itself here.
            pod.registered = pod.registered and name in self.records
            self.register(name)
        for record in self.records.values():
            record.jobs.clear()
            record.completing.clear()
            self.notice(record.name)
