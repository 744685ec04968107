"""The cluster that the faults hit: where its pods are, who leads, and how it is made whole again.

Only slurmctld's pods are on n2 and n3, the nodes that die. Everything else that a measurement needs is on n1: login,
slurmd, slurmrestd, the operator and DNS. So a row tells what a fault costs slurmctld, not what it costs the observer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness import Cluster, Sandbox, claim, until

from seltzer.sandbox import commands

from . import processes
from .load import EVIDENCE, Load
from .processes import Process

STEADY, MORTAL = "n1", ("n2", "n3")
SYSTEM = "seltzer-system"
HOSTNAME = "kubernetes.io/hostname"
WHOLE_DEADLINE = 120.0
_NODES = "Slurm's nodes are"
_CROWDED = "a standby is on the leader's node"
STATE_SIZE = "512Mi"


class Gone(AssertionError):
    """What a fault was meant for isn't there."""


@dataclass(frozen=True)
class Target:
    """The pod of slurmctld that leads, as it was before the fault: no API server is needed to hit it."""

    pod: str
    uid: str
    node: str
    guard: Process
    slurmctld: Process


class Rig:
    """A cluster in a sandbox that is up and has the operator installed."""

    def __init__(self, sandbox: Sandbox, in_flight: int = 200, namespace: str = "faults") -> None:
        self.sandbox = sandbox
        self.cluster = Cluster(sandbox, namespace, "demo")
        self.machine = commands.find(sandbox.name)
        self._in_flight = in_flight
        self._login = 0
        self._finding = threading.Lock()
        self._load: Load | None = None

    @property
    def load(self) -> Load:
        """Those who use the cluster."""
        assert self._load, "there is no load before there is a cluster"
        return self._load

    # --- set-up ---------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the cluster, and begin the load. Slurm's nodes claim more CPUs than there are, since the jobs sleep."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.cluster.namespace}}
        self.sandbox.apply(namespace)
        self.cluster.apply(claim("evidence"))
        storage = {"className": "limited", "accessMode": "ReadWriteMany", "size": STATE_SIZE}
        mortal = {"key": HOSTNAME, "operator": "In", "values": list(MORTAL)}
        required = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [mortal]}]}
        }
        spec = {
            "controller": {"storage": storage, "podTemplate": {"spec": {"affinity": {"nodeAffinity": required}}}},
            "rest": {"podTemplate": {"spec": _steady()}},
            "login": {"podTemplate": {"spec": {**_steady(), **_with_evidence("login")}}},
        }
        # Slurm looks at the first hundred waiting jobs only; those that measure have to be among them.
        probe = {**self._nodes(1, 40), "partition": {"options": "PriorityTier=10"}}
        self.cluster.create(spec, cpu=self._nodes(2, 15), probe=probe)
        self.cluster.wait_ready(WHOLE_DEADLINE)
        self._load = Load(self.login, self._folder("evidence"), self._in_flight)
        self._load.start()

    def _nodes(self, replicas: int, cpus: int) -> dict[str, Any]:
        resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": str(cpus), "memory": "2Gi"}}
        template = {"spec": {**_steady(), **_with_evidence("slurmd")}}
        return {"replicas": replicas, "resources": resources, "podTemplate": template}

    def settle_operator(self) -> None:
        """Move the operator and DNS to the node that stays."""
        patch = json.dumps({"spec": {"template": {"spec": _steady()}}})
        for name, namespace in (("seltzer-operator", SYSTEM), ("coredns", "kube-system")):
            self.sandbox.kubectl("patch", f"deployment/{name}", "--namespace", namespace, "--patch", patch)
            words = ("rollout", "status", f"deployment/{name}", "--namespace", namespace, "--timeout=90s")
            self.sandbox.kubectl(*words)

    def end(self) -> None:
        if self._load:
            self._load.end()

    # --- who is where ---------------------------------------------------------------------------------------------

    def lease(self) -> dict[str, Any]:
        return self.cluster.get(f"lease/{self.cluster.name}-slurmctld")

    def annotation(self, name: str) -> str:
        return str(self.lease()["metadata"].get("annotations", {}).get(f"seltzer.dev/{name}", ""))

    def target(self) -> Target:
        """The pod that leads now."""
        name = self.lease()["spec"].get("holderIdentity") or ""
        pod = self.cluster.get(f"pod/{name}") if name else {}
        if not pod:
            raise Gone(f"nobody leads (the Lease says {name!r})")
        uid = pod["metadata"]["uid"]
        found = processes.of_pod(uid)
        guard = next((one for one in found if one.first and one.name != "pause"), None)
        slurmctld = processes.slurmctld(uid)
        if not guard or not slurmctld:
            raise Gone(f"{name} has no guard or no slurmctld: {[one.name for one in found]}")
        return Target(name, uid, pod["spec"]["nodeName"], guard, slurmctld)

    def login(self) -> int:
        """A process of the login container, looked for again when it has gone."""
        with self._finding:
            pid = self._login
            if pid and Path(f"/proc/{pid}").exists():
                return pid
            (pod,) = self.sandbox.pods(
                f"app.kubernetes.io/component=login,seltzer.dev/cluster={self.cluster.name}", self.cluster.namespace
            )
            found = [one for one in processes.named(pod["metadata"]["uid"], "sshd") if one.first]
            if not found:
                raise Gone("no sshd runs in the login pod")
            self._login = found[0].pid
            return self._login

    def component(self, name: str) -> list[dict[str, Any]]:
        words = f"app.kubernetes.io/component={name},seltzer.dev/cluster={self.cluster.name}"
        return self.sandbox.pods(words, self.cluster.namespace)

    def operators(self) -> list[dict[str, Any]]:
        return self.sandbox.pods("app.kubernetes.io/name=seltzer-operator", SYSTEM)

    def state(self) -> Path:
        """slurmctld's volume; it is mounted in the sandbox's hub."""
        inside = self._folder(f"{self.cluster.name}-slurmctld")
        return Path(f"/proc/{self.machine.hub().pid}/root") / inside.relative_to("/")

    def _folder(self, name: str) -> Path:
        volume = self.cluster.get(f"pvc/{name}")["spec"]["volumeName"]
        return Path(self.sandbox.get("pv", volume)["spec"]["local"]["path"])

    # --- whole again ----------------------------------------------------------------------------------------------

    def make_whole(self, standby: int) -> list[str]:
        """All nodes are Ready, so many pods of slurmctld are, one of them leads and answers, and jobs find nodes.

        What Slurm had drained is resumed, and told: each node with why.
        """
        drained: list[str] = []
        self.machine.start_api_server()
        self.machine.wait_for_api_server()
        for node in MORTAL:
            if self.node_state(node) != "running":
                commands.node_fault(self.sandbox.name, "heal", node)
        if self._spec_standby() != standby:
            self.cluster.patch("slurmcluster", self.cluster.name, {"spec": {"controller": {"standby": standby}}})
        why = ""

        def whole() -> bool:
            nonlocal why
            why = self._missing(standby)
            if why.startswith(_NODES):
                drained.extend(self._resume())
            if why == _CROWDED:
                self._spread()
            return not why

        with suppress(AssertionError):
            until("all is well", whole, WHOLE_DEADLINE)
        assert not why, f"not whole again after {WHOLE_DEADLINE:.0f} s: {why}"
        return drained

    def _spec_standby(self) -> int:
        return int(
            self.cluster.get(f"slurmcluster/{self.cluster.name}")["spec"].get("controller", {}).get("standby", 0)
        )

    def _missing(self, standby: int) -> str:
        """What isn't well, if anything."""
        for node in (STEADY, *MORTAL):
            if self.sandbox.ready(node) != "True":
                return f"{node} isn't Ready"
        words = ("pods", "--namespace", self.cluster.namespace, "--selector")
        selector = f"seltzer.dev/cluster={self.cluster.name}"
        pods = self.sandbox.get(*words, selector)["items"]
        leaving = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]
        if leaving:
            return f"{leaving} are still leaving"
        controllers = [
            pod for pod in pods if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "slurmctld"
        ]
        if len(controllers) != 1 + standby:
            return f"{len(controllers)} pods of slurmctld"
        if len({pod["spec"].get("nodeName") for pod in controllers}) != len(controllers):
            return _CROWDED
        for pod in pods:
            if not _ready(pod):
                return f"{pod['metadata']['name']} isn't Ready"
        try:
            self.target()
        except Gone as error:
            return str(error)
        if self.annotation("phase") != "running":
            return f"slurmctld is {self.annotation('phase')}: {self.annotation('message')}"
        code, said, error_text = self.load.command("sinfo", "--noheader", "--format=%T")
        states = set(said.split())
        if (
            code
            or not states
            or any(state.startswith(("down", "drain", "unknown")) or state.endswith("*") for state in states)
        ):
            return f"{_NODES} {states or error_text}"
        return ""

    def _spread(self) -> None:
        """Have another standby made: this one was made while the other node was away, and would die with the leader."""
        leader = self.lease()["spec"].get("holderIdentity")
        for pod in self.component("slurmctld"):
            if pod["metadata"]["name"] != leader:
                self.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")

    def _resume(self) -> list[str]:
        """Resume the nodes that Slurm has drained; each with why it did."""
        _, said, _ = self.load.command("sinfo", "--noheader", "--Node", "--states=drain,draining", "--format=%N %E")
        drained = sorted(set(said.splitlines()))
        for line in drained:
            words = ("scontrol", "update", f"NodeName={line.split()[0]}", "State=RESUME")
            processes.run_inside(self.login(), 0, words, 10.0)
        return drained

    def node_state(self, node: str) -> str:
        return next(each.state for each in commands.status(self.sandbox.name).nodes if each.name == node)

    @contextmanager
    def without_operator(self, absent: bool) -> Iterator[None]:
        """While the operator isn't there, if it is to be absent."""
        operator = ("deployment/seltzer-operator", "--namespace", SYSTEM)
        if not absent:
            yield
            return
        self.sandbox.kubectl("scale", *operator, "--replicas=0")
        until("the operator is gone", lambda: not self.operators())
        try:
            yield
        finally:
            self.sandbox.kubectl("scale", *operator, "--replicas=2")
            self.sandbox.kubectl("rollout", "status", *operator, "--timeout=90s", check=False)


def _ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def _steady() -> dict[str, Any]:
    return {"nodeSelector": {HOSTNAME: STEADY}}


def _with_evidence(container: str) -> dict[str, Any]:
    return {
        "volumes": [{"name": "evidence", "persistentVolumeClaim": {"claimName": "evidence"}}],
        "containers": [{"name": container, "volumeMounts": [{"name": "evidence", "mountPath": EVIDENCE}]}],
    }
