"""A small world for a NodeSet's plan: pods and their kubelets, slurmctld's records and jobs, people, and the clock.

It holds what is true. What the operator sees of it, and what it does to it, is in `operator`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.builders import objects
from tests.fakes.plan_model.machines import ModelMachine
from tests.fakes.plan_model.pods import ModelPod
from tests.fakes.plan_model.records import CPUS, OUTAGE, Record

from seltzer.api.labels import SLURM_READY
from seltzer.api.nodeset import Drain, Update

LATE = 10.0
# Each with how far its clock is ahead.
MACHINES = {"n0": 0.0, "n1": 30.0, "n2": -30.0}


@dataclass
class Wish:
    """What the user wants of the NodeSet, and how the cluster judges it."""

    replicas: int = 2
    # One on each machine that has the label, whatever `replicas` says.
    per_node: bool = False
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


@dataclass(frozen=True)
class Peace:
    """How the world is when nothing happens any more but what should."""

    # Machines that are cordoned, cut off or switched off are mended, and so are slurmds; or they stay so for ever.
    mended: bool = True
    # Jobs end, or they run for ever.
    jobs_end: bool = True
    # slurmctld notices by itself that a slurmd doesn't answer, or is too slow to wait for.
    notices: bool = True


class World:
    """What is true, and everything that can happen without the operator."""

    def __init__(self) -> None:
        self.now = objects.NOW
        self.wish = Wish()
        self.finalizer = False
        self.exists = True  # the NodeSet
        self.machines = {name: ModelMachine(name, skew=skew) for name, skew in MACHINES.items()}
        self.pods: dict[str, ModelPod] = {}
        self.records: dict[str, Record] = {}
        self.broken: set[str] = set()  # templates whose image nobody has
        self.reachable = True
        self.pings = True  # who slurmctld's pod can reach can be asked there
        self.gone = False
        self.controller_started = objects.NOW - 1000
        self.named: set[str] = set()  # nodes that waiting jobs name
        self.queued = 0  # jobs that wait in the NodeSet's partition
        self.protects = ""  # whom the disruption budget protects; empty: there is none
        self._last = 0

    def clock(self) -> float:
        return self.now

    def _next(self) -> int:
        self._last += 1
        return self._last

    # --- what happens to pods -------------------------------------------------------------------------------------

    def create(self, name: str, template: str, pin: str = "") -> None:
        assert name not in self.pods, f"{name} is created although it exists"
        self.pods[name] = ModelPod(name, f"u{self._next()}", template, self.now, pin=pin)

    def machine(self, pod: ModelPod) -> ModelMachine | None:
        return self.machines.get(pod.machine)

    def _clock(self, pod: ModelPod) -> float:
        """What time it is on its machine."""
        machine = self.machine(pod)
        return self.now + (machine.skew if machine else 0.0)

    def _speaks(self, pod: ModelPod) -> bool:
        machine = self.machine(pod)
        return machine is not None and machine.speaks

    def schedule(self, name: str) -> None:
        """Kubernetes finds a machine for it: of those that are well the one with the fewest pods."""
        pod = self.pods[name]
        if pod.machine or pod.deleting:
            return
        load = {each: sum(pod.machine == each for pod in self.pods.values()) for each in self.machines}
        fit = [each for each in self.machines.values() if each.well]
        if pod.pin:
            its = self.machines[pod.pin]
            fit = [its] if its.selected and its.ready == "True" and not its.pressure else []
        if fit:
            pod.machine = min(fit, key=lambda each: (load[each.name], each.name)).name
            pod.show("waiting", self._clock(pod))

    def start(self, name: str) -> None:
        """Its containers start, or start anew; its status doesn't tell yet."""
        self.schedule(name)
        pod = self.pods[name]
        if pod.runs or pod.ended or pod.deleting or not self._speaks(pod) or pod.template in self.broken:
            return
        pod.start(self._clock(pod), f"10.0.0.{self._next()}")

    def report(self, name: str, ready: bool = True) -> None:
        """The kubelet tells how a pod does."""
        pod = self.pods[name]
        if self._speaks(pod):
            pod.report(ready, self._clock(pod), no_image=pod.template in self.broken)

    def evict(self, name: str) -> None:
        """Its containers end for good."""
        pod = self.pods[name]
        if pod.machine and self._speaks(pod) and not pod.deleting:
            pod.runs, pod.ended = False, True
            self.report(name)

    def crash(self, name: str) -> None:
        """Its container ends, and will be started again."""
        pod = self.pods[name]
        pod.crash(self._clock(pod))

    def crash_and_start(self, name: str) -> None:
        """So fast that its kubelet has told only the half of it."""
        self.crash(name)
        self.report(name)
        self.start(name)
        self.register(name)

    def go_deaf(self, name: str) -> None:
        """Its slurmd hangs: nobody gets an answer, but its jobs run."""
        self.pods[name].deaf = True

    def hear_again(self, name: str) -> None:
        self.pods[name].deaf = False

    def delete(self, name: str) -> None:
        """Somebody deletes it: it is given time to end, unless it has or never began."""
        pod = self.pods[name]
        if pod.shown == "Failed" or not pod.machine:
            del self.pods[name]
        elif not pod.deleting:
            pod.deleting = self.now
            pod.version += 1

    def vanish(self, name: str) -> None:
        """Its kubelet has ended it, or there is no machine on which it could run."""
        pod = self.pods[name]
        machine = self.machine(pod)
        if machine and (not machine.there or (machine.speaks and pod.deleting)):
            del self.pods[name]

    def is_lost(self, pod: ModelPod) -> bool:
        """Kubernetes doesn't hear of its machine, and nobody of its slurmd."""
        machine = self.machine(pod)
        return machine is not None and machine.silent and not self.answers(pod)

    def is_going(self, pod: ModelPod) -> bool:
        """It will be gone soon."""
        machine = self.machine(pod)
        return pod.deleting is not None and machine is not None and (machine.speaks or not machine.there)

    # --- what happens to machines ---------------------------------------------------------------------------------

    def switch_off(self, name: str) -> None:
        self.machines[name].power = False
        for pod in self.pods.values():
            if pod.machine == name:
                pod.crash(self._clock(pod))

    def drive_out(self, name: str) -> None:
        """A taint that its pods don't tolerate: Kubernetes deletes them."""
        self.machines[name].gets_a_taint_that_drives_out()
        for pod in [pod.name for pod in self.pods.values() if pod.machine == name]:
            self.delete(pod)

    def mend(self, name: str) -> None:
        """It is back, and all is well with it. What it was told to end ends now."""
        machine = self.machines[name]
        machine.power = machine.cable = machine.kubelet = True
        machine.tell(ready=True)
        machine.is_relieved()

    # --- what happens in Slurm ------------------------------------------------------------------------------------

    def answers(self, pod: ModelPod) -> bool:
        """Whether its slurmd does."""
        machine = self.machine(pod)
        return pod.runs and not pod.deaf and machine is not None and machine.reachable

    def register(self, name: str) -> None:
        """A slurmd that has just started tells of itself. What an earlier slurmd of that name ran is over."""
        pod = self.pods[name]
        if not self.answers(pod) or pod.registered or self.gone:
            return
        pod.registered = True
        record = self.records.setdefault(name, Record(name))
        record.take(pod.life, pod.address, pod.changed)

    def hear(self, name: str) -> None:
        """slurmctld hears again of a slurmd that it had given up: ReturnToService=2."""
        record, pod = self.records[name], self.pods.get(name)
        if pod and record.life == pod.life and self.answers(pod):
            record.take(pod.life, record.address, record.started)

    def run_job(self, name: str) -> None:
        """slurmctld puts a job onto a node, also if its slurmd is dead and slurmctld doesn't know yet."""
        record = self.records[name]
        if not record.drained and not record.down and len(record.jobs) + len(record.completing) < CPUS:
            record.jobs[self._next()] = record.life

    def end_job(self, name: str) -> None:
        """The oldest job on a node ends by itself."""
        self.records[name].end_one(self.now)

    def notice(self, name: str) -> None:
        """slurmctld notices that a slurmd doesn't answer, and puts its jobs back into the queue."""
        record = self.records[name]
        pod = self.pods.get(name)
        if not record.down and (pod is None or pod.life != record.life or not self.answers(pod)):
            record.go_down(record.with_words(OUTAGE), self.now)

    def forget(self, name: str) -> None:
        """slurmctld crashes before it has saved a record; the jobs on that node are lost with it."""
        self.controller_started = self.now
        if not self.records[name].comment:
            del self.records[name]

    def delete_record(self, name: str) -> None:
        """Somebody does; Slurm refuses while jobs are on it."""
        if not self.records[name].busy:
            del self.records[name]

    def move(self, name: str) -> None:
        """slurmctld has an address of it that isn't true any more."""
        self.records[name].address = "10.9.9.9"

    def person_drains(self, name: str) -> None:
        self.records[name].drain("disk is full", self.now)

    def person_drains_and_says_nothing(self, name: str) -> None:
        """slurmrestd takes that."""
        self.records[name].drain("", self.now)

    def person_downs(self, name: str) -> None:
        self.records[name].go_down("fan is loud", self.now)

    def person_resumes(self, name: str) -> None:
        self.records[name].resume()

    def jobs_of(self, pod: ModelPod) -> set[int]:
        """The jobs that would die with this pod."""
        record = self.records.get(pod.name)
        if record is None or not pod.runs:
            return set()
        return {job for job, life in (*record.jobs.items(), *record.completing.items()) if life == pod.life}

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
        for machine in self.machines.values():
            machine.pass_time(seconds)
        for name, pod in self.pods.items():
            if not pod.is_told and self._clock(pod) - pod.changed >= LATE:
                self.report(name)

    # --- peace ----------------------------------------------------------------------------------------------------

    def calm(self, peace: Peace, seconds: float) -> None:
        """Time passes in which everything goes as it should, and nobody does anything."""
        self.pass_time(seconds)
        self.reachable = self.pings = not self.gone
        self.broken.clear()
        self.named.clear()
        self.queued = 0
        for machine in self.machines.values():
            if peace.mended:
                machine.uncordon()
                machine.loses_its_taint()
                self.mend(machine.name)
            machine.go_unheard()
        for name in list(self.pods):
            self.vanish(name)
        for name, pod in self.pods.items():
            pod.deaf = pod.deaf and not peace.mended
            self.start(name)
            self.report(name, ready=peace.mended or pod.shown != "unready")
            # One that the plan can't know to have been known is restarted by a person, some day.
            pod.registered = pod.registered and (name in self.records or _was_known(pod, self.controller_started))
            self.register(name)
        for record in self.records.values():
            if peace.jobs_end:
                record.jobs.clear()
            record.completing.clear()
            if peace.notices:
                self.notice(record.name)


def _was_known(pod: ModelPod, controller_started: float) -> bool:
    """Whether it can be told that Slurm has forgotten it: it says so, or was there before slurmctld was."""
    told = pod.told.get(SLURM_READY)
    # A pod that tells that nobody knows tells with it what it told before.
    knew = told is not None and "NotRegistered" not in (told.reason, told.message.rpartition("before that: ")[2][:13])
    return knew or max(pod.created, pod.since) < controller_started
