"""The cluster that the faults hit: where its pods are (`shape`), who leads, and how it is made whole again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.harness import Cluster, Sandbox, claim, until

from seltzer_sandbox import commands

from . import account, processes, shape, state
from .account import Away
from .load import Load
from .processes import Process
from .shape import HOSTNAME, POOL_NAME, STEADY, Shape

CLUSTER = "demo"
SYSTEM = "seltzer-system"
WHOLE_DEADLINE = 240.0
_NODES = "Slurm's nodes are"
_CROWDED = "a standby is on the leader's node"
_UNEVEN = "the pool's pods aren't spread evenly"
_OURS = "seltzer: "  # how the operator's own drains begin: to resume these is its business


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

    def __init__(
        self, sandbox: Sandbox, its: Shape = shape.SLURMCTLD, in_flight: int = 200, namespace: str | None = None
    ) -> None:
        self.sandbox = sandbox
        self.shape = its
        self.cluster = Cluster(sandbox, namespace or its.name, CLUSTER)
        self.machine = commands.find(sandbox.name)
        self.mortal = its.mortal(self.machine.spec.nodes)
        self.away: list[Away] = []
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
        """Make the cluster, and begin the load."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.cluster.namespace}}
        self.sandbox.apply(namespace)
        self.cluster.apply(claim("evidence"))
        self.cluster.create(shape.cluster(self.shape, self.mortal), **shape.nodesets(self.shape, self.mortal))
        self.cluster.wait_ready(WHOLE_DEADLINE)
        self._load = Load(self.login, self._folder("evidence"), self._in_flight)
        self._load.start()

    def settle_operator(self, where: str | None = STEADY) -> None:
        """Move the operator and DNS to the node that stays; with None they may be anywhere again."""
        patch = json.dumps({"spec": {"template": {"spec": {"nodeSelector": {HOSTNAME: where}}}}})
        for name, namespace in (("seltzer-operator", SYSTEM), ("coredns", "kube-system")):
            self.sandbox.kubectl("patch", f"deployment/{name}", "--namespace", namespace, "--patch", patch)
            words = ("rollout", "status", f"deployment/{name}", "--namespace", namespace, "--timeout=180s")
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

    def pool(self) -> dict[str, str]:
        """The nodes of the pool, each with the Kubernetes node that it is on."""
        return {name: str(pod["spec"].get("nodeName", "")) for name, pod in self.cluster.pods(POOL_NAME).items()}

    def namesakes(self) -> list[str]:
        """The names under which two slurmds are alive."""
        server = f"{self.cluster.name}-slurmctld.{self.cluster.namespace}.svc:6817"
        found = processes.slurmds(self.machine.layout.cgroup, server)
        return sorted(name for name, pods in found.items() if len(pods) > 1)

    def state(self) -> Path:
        """slurmctld's volume; it is mounted in the sandbox's hub."""
        inside = self._folder(f"{self.cluster.name}-slurmctld")
        return Path(f"/proc/{self.machine.hub().pid}/root") / inside.relative_to("/")

    def ended(self) -> list[account.Ended]:
        """The runs that slurmctld has ended because it had forgotten them."""
        folder = state.epoch(self.state())
        logs = sorted(folder.glob("slurmctld.log*")) if folder else []
        return [each for log in logs for each in account.read_ended(log.read_text(errors="replace"))]

    def _folder(self, name: str) -> Path:
        volume = self.cluster.get(f"pvc/{name}")["spec"]["volumeName"]
        return Path(self.sandbox.get("pv", volume)["spec"]["local"]["path"])

    # --- broken ---------------------------------------------------------------------------------------------------

    def strike(self, fault: str, machine: str, nodes: Iterable[str]) -> None:
        """kill, cut or freeze a Kubernetes node on which these nodes of Slurm are."""
        self.away.append(Away(machine, frozenset(nodes), time.time()))
        commands.node_fault(self.sandbox.name, fault, machine)

    def heal(self, machine: str) -> None:
        commands.node_fault(self.sandbox.name, "heal", machine)
        self.away = [
            replace(each, until=min(each.until, time.time())) if each.machine == machine else each for each in self.away
        ]

    def start_api_server(self) -> None:
        """And those who act for Kubernetes, as far as they don't run."""
        self.machine.start_api_server()
        self.machine.wait_for_api_server()
        self.machine.start_managers()

    # --- whole again ----------------------------------------------------------------------------------------------

    def make_whole(self, standby: int, evenly: bool = False) -> list[str]:
        """All nodes are Ready, so many pods of slurmctld are, one of them leads and answers, and jobs find nodes; if
        asked, the pool's pods are spread evenly.

        What Slurm had drained is resumed, and told: each node with why.
        """
        drained: list[str] = []
        self.start_api_server()
        for node in self.mortal:
            if self.node_state(node) != "running":
                self.heal(node)
        if self._spec_standby() != standby:
            self.cluster.patch("slurmcluster", self.cluster.name, {"spec": {"controller": {"standby": standby}}})
        why = ""

        def whole() -> bool:
            nonlocal why
            why = self._missing(standby) or (self._uneven() if evenly else "")
            if why.startswith(_NODES):
                drained.extend(self._resume())
            if why == _CROWDED:
                self._spread()
            if why == _UNEVEN:
                self._make_anew()
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
        for node in (STEADY, *self.mortal):
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
        crowded = len({pod["spec"].get("nodeName") for pod in controllers}) != len(controllers)
        if crowded and not self.shape.pool_dies:
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
        nodesets = [pod["metadata"]["labels"].get("seltzer.dev/nodeset") for pod in pods]
        return self._missing_nodes(nodesets.count(POOL_NAME))

    def _missing_nodes(self, pods: int) -> str:
        """What isn't well with Slurm's nodes, where there are so many pods of the pool."""
        if pods != self.shape.replicas:
            return f"{pods} pods of the pool"
        code, said, error = self.load.command(
            "sinfo", "--noheader", "--Node", f"--partition={POOL_NAME},probe", "--format=%N %T"
        )
        states = dict(line.split() for line in said.splitlines())
        if code or any(
            state.startswith(("down", "drain", "unknown")) or state.endswith("*") for state in states.values()
        ):
            return f"{_NODES} {states or error}"
        if len(states) != self.shape.replicas + 1:
            return f"Slurm knows of {sorted(states)}"
        return ""

    def _uneven(self) -> str:
        """Whether a fault would hit more of the pool on one Kubernetes node than on another."""
        if not self.shape.pool_dies:
            return ""
        where = list(self.pool().values())
        share = self.shape.replicas // len(self.mortal)
        return _UNEVEN if any(where.count(node) < share for node in self.mortal) else ""

    def _make_anew(self) -> None:
        """Replacements stay where they were made. All go as their jobs end, and all come again."""
        self.cluster.scale(POOL_NAME, 0)
        until("the pool is empty", lambda: not self.cluster.pods(POOL_NAME))
        self.cluster.scale(POOL_NAME, self.shape.replicas)
        until("the pool is made", lambda: len(self.pool()) == self.shape.replicas and all(self.pool().values()))

    def _spread(self) -> None:
        """Have another standby made: this one was made while the other node was away, and would die with the leader."""
        leader = self.lease()["spec"].get("holderIdentity")
        for pod in self.component("slurmctld"):
            if pod["metadata"]["name"] != leader:
                self.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")

    def _resume(self) -> list[str]:
        """Resume the nodes that Slurm has drained; each with why it did."""
        _, said, _ = self.load.command("sinfo", "--noheader", "--Node", "--states=drain,draining", "--format=%N %E")
        drained = sorted(line for line in set(said.splitlines()) if not line.partition(" ")[2].startswith(_OURS))
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
            self.sandbox.kubectl("rollout", "status", *operator, "--timeout=180s", check=False)


def _ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
