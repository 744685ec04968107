"""A small world for a cluster's plan: what the user asks for, what is rolled out, and the trials in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.builders import objects
from tests.builders import slurm as slurm_builders

from seltzer.api.common import PodTemplate
from seltzer.api.core import Lease, Node, ObjectMeta, Pod, PodSpec
from seltzer.api.labels import CONFIG, FINALIZER, TRIAL
from seltzer.api.slurmcluster import Controller, SlurmCluster, SlurmClusterSpec
from seltzer.plan.actions import (
    Action,
    Apply,
    Create,
    Delete,
    Hold,
    Manifest,
    RefreshVolumes,
    RemoveStuckPod,
    SetFinalizer,
)
from seltzer.plan.cluster.cluster_plan import CONTROLLER, Candidate, ClusterObservation, decide
from seltzer.plan.slurm_presence import SlurmState

CONFIG_NAME, CONTROLLER_NAME = "demo-config", "demo-slurmctld"


@dataclass
class TrialPod:
    trial: str
    uid: str
    state: str = "waiting"
    words: str = ""
    deleting: bool = False

    def seen(self) -> Pod:
        pod = objects.pod(f"demo-trial-{self.trial}", state=self.state, uid=self.uid, words=self.words)
        metadata = ObjectMeta(
            name=pod.metadata.name,
            namespace="ns",
            uid=self.uid,
            labels={TRIAL: self.trial},
            deletion_timestamp=objects.time_at(objects.NOW) if self.deleting else None,
        )
        return Pod(metadata=metadata, status=pod.status)


OLD, OLD_NODE = "demo-slurmctld-old", "n1"


def old_pod(deadline: float | None, config: str = "") -> Pod:
    """A pod of the controller that should go, with when its grace is over; None: nobody has deleted it."""
    deleted = objects.time_at(deadline) if deadline is not None else None
    metadata = ObjectMeta(
        name=OLD, namespace="ns", uid=f"uid-{OLD}", deletion_timestamp=deleted, annotations={CONFIG: config}
    )
    return Pod(metadata=metadata, spec=PodSpec(node_name=OLD_NODE))


def machine(ready: str, name: str = OLD_NODE) -> Node:
    """A Kubernetes node with this condition Ready."""
    return objects.machine(name, ready)


def manifest(kind: str, name: str, content: str) -> Manifest:
    return {"kind": kind, "metadata": {"name": name, "namespace": "ns"}, "content": content}


def trial_of(config: str, pod: str) -> str:
    return f"{config}.{pod}"


class ClusterWorld:
    """Configs and images that begin with `bad` don't start. `own` is a config with nothing of the user's in it."""

    def __init__(self) -> None:
        self.config, self.pod = "own", "v1"  # what the user wants
        self.refused = False  # it can't even be written down
        self.active: str | None = None
        self.active_pod: str | None = None
        self.annotation = ""  # what the controller's pod was last told of
        self.trials: dict[str, TrialPod] = {}
        self.config_maps: dict[str, str] = {}  # of trials: uid by trial
        self.finalizer = False
        self.deleted = False
        self.exists = True
        self.slurmds = 0
        self.records = 0  # of nodes, in Slurm
        self.reachable = True
        self.hold = False  # what the user wants
        self.held = False  # what the Lease says
        self.node = "True"  # whether the old pod's node is Ready; empty: it is gone
        self.leaving: float | None = None  # when the grace of an old pod of the controller is over; None: there is none
        self.evicted = True  # the old pod should go; else only its silence can tell
        self.patient = False  # the user says how long it stays on a node that isn't heard of
        self.speaks = True  # the old pod's guard still renews the Lease
        self.passed: set[str] = set()
        self._last = 0

    # --- observe --------------------------------------------------------------------------------------------------

    def observe(self) -> ClusterObservation:
        trial = trial_of(self.config, self.pod)
        name = f"demo-trial-{trial}"
        candidate = Candidate(
            digest=self.config,
            trusted=self.config == "own",
            trial_id=trial,
            config_map=manifest("ConfigMap", CONFIG_NAME, self.config),
            trial=(manifest("ConfigMap", name, trial), manifest("Pod", name, trial)),
        )
        controllers: tuple[Pod, ...] = (
            Pod(metadata=ObjectMeta(name=CONTROLLER_NAME, namespace="ns", annotations={CONFIG: self.annotation})),
        )
        if self.leaving is not None:
            controllers = (*controllers, old_pod(self.leaving if self.evicted else None, self.annotation))
        nodes = {f"cpu-{number}": slurm_builders.node(f"cpu-{number}") for number in range(self.records)}
        slurm = SlurmState(nodes if self.reachable else None)
        metadata = ObjectMeta(
            name="demo",
            namespace="ns",
            finalizers=(FINALIZER,) if self.finalizer else (),
            deletion_timestamp=objects.time_at(objects.NOW) if self.deleted else None,
        )
        return ClusterObservation(
            cluster=SlurmCluster(metadata=metadata, spec=SlurmClusterSpec(controller=self._controller())),
            candidate=None if self.refused else candidate,
            refusal="it can't be written" if self.refused else "",
            active=self.active,
            pod=self.pod,
            active_pod=self.active_pod,
            drifted=() if self.active_pod == self.pod else (manifest("Deployment", CONTROLLER_NAME, self.pod),),
            absent=(),
            deployments={},
            pods={CONTROLLER: controllers if self.active_pod else controllers[1:]},
            trials=tuple(each.seen() for each in self.trials.values()),
            leftovers=tuple(
                Delete("ConfigMap", "ns", f"demo-trial-{each}", uid) for each, uid in self.config_maps.items()
            ),
            claim=None,
            lease=self._lease(),
            slurm=slurm,
            failure="",
            jobs=None,
            slurmds=self.slurmds,
            nodes={OLD_NODE: machine(self.node)} if self.node else {},
            silence=1 if self.speaks else 60,
            now=objects.NOW,
        )

    def _controller(self) -> Controller:
        said: list[dict[str, Any]] = [{"key": "node.kubernetes.io/unreachable"}] if self.patient else []
        return Controller(hold=self.hold, pod_template=PodTemplate(spec={"tolerations": said}))

    def _lease(self) -> Lease:
        hold: dict[str, Any] = {"hold": "true"} if self.held else {}
        return objects.lease(OLD, seconds=5, **hold)

    # --- act, and what must never be ------------------------------------------------------------------------------

    def do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._one(action)

    def _one(self, action: Action) -> None:
        match action:
            case SetFinalizer(present):
                assert present or not self.slurmds, "the control plane goes before the nodes"
                assert present or (self.reachable and not self.records), "the control plane goes before the records"
                self.finalizer = present
                self.exists = present
            case Hold(_, _, held):
                self.held = held
            case RemoveStuckPod(_, name, uid):
                assert (name, uid) == (OLD, f"uid-{OLD}"), "somebody else's pod is removed"
                assert self.leaving is not None, "a pod is removed that isn't there"
                assert self.evicted or not self.patient, "a pod is removed that should stay on a lost node"
                assert self.node != "True", "a pod is removed whose node sees to it"
                over = self.evicted and self.leaving < objects.NOW
                assert over or (self.node != "False" and not self.speaks), "a pod is removed that may be saving"
                self.leaving = None
            case RefreshVolumes(_, _, _, value):
                self.annotation = value
            case Apply(wanted) | Create(wanted):
                self._apply(wanted["kind"], wanted["metadata"]["name"], wanted["content"])
            case Delete(kind, _, name, uid):
                self._delete(kind, name.removeprefix("demo-trial-"), uid)

    def _apply(self, kind: str, name: str, content: str) -> None:
        if name == CONFIG_NAME:
            tried = {trial.partition(".")[0] for trial in self.passed}
            assert content == "own" or content in tried, f"{content} is rolled out, and nobody has tried it"
            self.active = content
        elif name == CONTROLLER_NAME:
            tried = {trial.partition(".")[2] for trial in self.passed}
            assert self.active_pod is None or content in tried, f"{content} replaces a pod, and nobody has tried it"
            assert self.active is not None or self.config == "own" or self.config in tried or self.passed
            self.active_pod = content
        elif kind == "ConfigMap":
            self.config_maps.setdefault(content, f"u{self._next()}")
        elif content not in self.trials:  # one that is there stays as it is
            self.trials[content] = TrialPod(content, f"u{self._next()}")

    def _delete(self, kind: str, trial: str, uid: str) -> None:
        if kind == "ConfigMap" and self.config_maps.get(trial) == uid:
            del self.config_maps[trial]
        if kind == "Pod" and trial in self.trials and self.trials[trial].uid == uid:
            self.trials[trial].deleting = True

    def _next(self) -> int:
        self._last += 1
        return self._last

    # --- what happens by itself -----------------------------------------------------------------------------------

    def run_trial(self, trial: str) -> None:
        """It ends, if it can begin: its ConfigMap has to be there."""
        pod = self.trials[trial]
        if pod.state != "waiting" or trial not in self.config_maps or pod.deleting:
            return
        if "bad" in trial:
            pod.state, pod.words = "Failed", "slurmctld: fatal: Unrecognized key"
        else:
            pod.state = "Succeeded"
            self.passed.add(trial)

    def interrupt_trial(self, trial: str) -> None:
        """Its Kubernetes node goes down under it."""
        pod = self.trials[trial]
        if pod.state == "waiting":
            pod.state = "Failed"

    def vanish(self, trial: str) -> None:
        if self.trials[trial].deleting:
            del self.trials[trial]

    def calm(self) -> None:
        self.slurmds = self.records = 0
        if self.leaving is not None and self.node == "True":
            self.leaving = None  # its kubelet has ended it
        elif self.leaving is not None:
            self.leaving, self.evicted = objects.NOW - 60, True  # as Kubernetes does in the end
        self.reachable = True
        for trial in list(self.trials):
            self.vanish(trial)
        for trial in self.trials:
            self.run_trial(trial)

    def pass_(self) -> bool:
        """A whole pass; whether there was something to do."""
        decision = decide(self.observe())
        self.do(decision.actions)
        return bool(decision.actions)
