"""An operator on the fakes that can crash behind any of its writes and is then started again, as Kubernetes would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.fakes.apiserver.server import FakeApiServer
from tests.fakes.apiserver.state import Id, Object
from tests.fakes.apiserver.things import NODESETS, Item, until
from tests.fakes.apiserver.writes import Write, Writes, changes
from tests.fakes.kubelet.cluster import FakeCluster
from tests.fakes.slurmrestd import FakeSlurmrestd

from seltzer.build.images import Images
from seltzer.controllers.operator import Operator
from seltzer.controllers.slurm_connection import Route
from seltzer.kube.client import Client
from seltzer.kube.resource import Resource

CLUSTERS = Resource("seltzer.dev", "v1alpha1", "slurmclusters", "SlurmCluster", Item)
PORTS = (6816, 6817, 6820)
# Longer than anything takes that the operator waits for. In virtual time that is soon over.
DEADLINE = 600.0


class Rig:
    """A user, an operator, and everything around them."""

    def __init__(
        self, server: FakeApiServer, slurm: FakeSlurmrestd, machines: FakeCluster, user: Client, writes: Writes
    ) -> None:
        self._server = server
        self._machines = machines
        self.slurm = slurm
        self._user = user
        self._writes = writes
        self._term: asyncio.Task[None] | None = None
        self.starts = 0

    # --- the operator ---------------------------------------------------------------------------------------------

    async def operate(self) -> None:
        """Run the operator, again whenever it has crashed."""
        while True:
            self.starts += 1
            self._term = asyncio.create_task(self._lead())
            try:
                await asyncio.wait([self._term])
            finally:
                self._term.cancel()
                await asyncio.gather(self._term, return_exceptions=True)
            self._writes.restarted()

    async def _lead(self) -> None:
        route = Route(fixed=dict.fromkeys(PORTS, self.slurm.url))
        async with Client(self._server.config()) as client:
            await Operator(client, route, lambda: None, Images(), settle=0.0).run()

    def break_at(self, number: int, *, crash: bool, lost_answer: bool) -> None:
        """Behind the number-th write from now the operator crashes, or the answer is lost, or both."""
        self._writes.all.clear()
        if number and crash:
            self._writes.crash_after(number, self._crash, lost_answer=lost_answer)
        elif number:
            self._writes.lose_answer(number)

    def _crash(self, _: Write) -> None:
        assert self._term
        self._term.cancel()

    @property
    def was_hit(self) -> bool:
        return not self._writes.pending

    def written(self) -> list[Write]:
        return [write for write in self._writes.all if changes(write)]

    # --- the user -------------------------------------------------------------------------------------------------

    async def apply(self, resource: Resource[Any], name: str, spec: dict[str, Any]) -> None:
        await self.apply_in("ns", resource, name, spec)

    async def apply_in(self, namespace: str, resource: Resource[Any], name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": namespace}
        await self._user.apply(resource, {"metadata": metadata, "spec": spec}, manager="user")

    async def create(self, resource: Resource[Any], manifest: dict[str, Any]) -> None:
        await self._user.create(resource, manifest, manifest["metadata"]["namespace"])

    async def cluster(self, **spec: Any) -> None:
        await self.apply(CLUSTERS, "demo", spec)

    async def nodeset(self, **spec: Any) -> None:
        await self.apply(NODESETS, "cpu", {"clusterRef": {"name": "demo"}, **spec})

    async def delete(self, resource: Resource[Any], name: str) -> None:
        await self._user.delete(resource, name, "ns")

    def lose_controllers_node(self) -> str:
        """Its Kubernetes node dies, and Kubernetes evicts its pod, which can't end there; the pod's name."""
        state, (name,) = self._server.state, self.controllers()
        pod = Id("", "pods", "ns", name)
        node = Id("", "nodes", "", state.get(pod)["spec"]["nodeName"])
        state.patch_status(node, conditions=[{"type": "Ready", "status": "Unknown"}])
        state.patch(node, spec={"unschedulable": True})
        self._machines.stuck_ending.add(name)
        state.delete(pod)
        return name

    def label(self, machine: str, **labels: str | None) -> None:
        """Set labels of a Kubernetes node; None removes one."""
        id_ = Id("", "nodes", "", machine)
        found = {**self._server.state.get(id_)["metadata"].get("labels", {}), **labels}
        kept = {key: value for key, value in found.items() if value is not None}
        self._server.state.patch(id_, metadata={**self._server.state.get(id_)["metadata"], "labels": kept})

    def remove_machine(self, machine: str) -> None:
        """A Kubernetes node is removed, and then the pods that were on it."""
        self._server.state.delete(Id("", "nodes", "", machine))
        for name, pod in self.pods().items():
            if pod["spec"].get("nodeName") == machine:
                self._server.state.delete(Id("", "pods", pod["metadata"]["namespace"], name), grace=0)

    def cordon(self, pod: str) -> None:
        """The Kubernetes node that a slurmd pod is on."""
        self._server.state.patch(
            Id("", "nodes", "", self.pods()[pod]["spec"]["nodeName"]), spec={"unschedulable": True}
        )

    def lose_slurmds_node(self) -> None:
        """The Kubernetes node of all slurmds dies, and with it they; new pods find another one."""
        state = self._server.state
        for name, pod in self.pods().items():
            node = Id("", "nodes", "", pod["spec"]["nodeName"])
            state.patch_status(node, conditions=[{"type": "Ready", "status": "Unknown"}])
            state.patch(node, spec={"unschedulable": True})
            self.slurm.silent.add(pod["status"]["podIP"])
            self._machines.stuck_ending.add(name)

    def controllers(self) -> list[str]:
        """The names of slurmctld's pods."""
        found = (id_.name for id_, _ in self._server.state.items("", "pods"))
        return sorted(name for name in found if name.startswith("demo-slurmctld-"))

    def in_charge(self) -> str:
        """Who the cluster's status says is its controller."""
        for id_, item in self._server.state.items("seltzer.dev", "slurmclusters"):
            if id_.name == "demo":
                return str(item.get("status", {}).get("controller", {}).get("pod", ""))
        return ""

    # --- what there is --------------------------------------------------------------------------------------------

    def pods(self) -> dict[str, Object]:
        """The slurmd pods by name."""
        found = self._server.state.items("", "pods")
        return {id_.name: pod for id_, pod in found if "seltzer.dev/nodeset" in pod["metadata"].get("labels", {})}

    def protected(self) -> set[str]:
        """The slurmd pods that the NodeSet's disruption budget selects."""
        budget = self._server.state.get(Id("policy", "poddisruptionbudgets", "ns", "cpu-busy"))
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        return {name for name, pod in self.pods().items() if wanted <= pod["metadata"]["labels"].items()}

    def told(self, pod: str) -> dict[str, str]:
        """The pod's conditions that are ours."""
        found = self.pods()[pod]["status"].get("conditions", [])
        return {each["type"]: each["status"] for each in found if each["type"].startswith("seltzer.dev/")}

    def ready(self, plural: str, name: str) -> bool:
        for id_, item in self._server.state.items("seltzer.dev", plural):
            if id_.name == name:
                status, generation = item.get("status", {}), item["metadata"].get("generation")
                told = {each["type"]: each for each in status.get("conditions", [])}
                ready = told.get("Ready", {})
                return bool(ready.get("status") == "True" and ready.get("observedGeneration") == generation)
        return False

    def why_refused(self) -> str:
        """What the NodeSet says could not be done."""
        (item,) = (item for _, item in self._server.state.items("seltzer.dev", "nodesets"))
        (ready,) = (each for each in item["status"]["conditions"] if each["type"] == "Ready")
        return str(ready["message"]) if ready["reason"] == "Refused" else ""

    def config(self) -> str:
        """The slurm.conf that is rolled out."""
        for id_, item in self._server.state.items("", "configmaps"):
            if id_.name == "demo-config":
                return str(item["data"]["slurm.conf"])
        return ""

    def phase(self) -> str:
        """What the guard reports of slurmctld."""
        for id_, item in self._server.state.items("coordination.k8s.io", "leases"):
            if id_.name == "demo-slurmctld":
                return str((item["metadata"].get("annotations") or {}).get("seltzer.dev/phase", ""))
        return ""

    def trials(self) -> list[str]:
        return [name for name in self.kinds() if "/demo-trial-" in name]

    def is_quiet(self) -> bool:
        """The records are marked, so nothing of the beginning is left to be written."""
        return all(node.get("comment") for node in self.slurm.nodes.values())

    def everything(self) -> list[Id]:
        return [id_ for id_, _ in self._server.state.everything()]

    def kinds(self) -> list[str]:
        """Everything that there is, by kind and name, without what Kubernetes makes by itself."""
        found = [f"{id_.plural}/{id_.name}" for id_ in self.everything()]
        return sorted(name for name in found if name.split("/")[0] not in ("events", "nodes"))

    def picture(self) -> dict[str, Any]:
        """What a person would compare: objects, pods and what they are made from, nodes and their states."""
        return {
            "objects": [name for name in self.kinds() if not name.startswith("pods/demo-")],
            "templates": {name: pod["metadata"]["labels"]["seltzer.dev/template"] for name, pod in self.pods().items()},
            "nodes": {name: sorted(node["state"]) for name, node in self.slurm.nodes.items()},
            "ready": [self.ready("slurmclusters", "demo"), self.ready("nodesets", "cpu")],
        }

    async def until(self, what: str, ask: Callable[[], bool]) -> None:
        async def asked() -> bool:
            return ask()

        try:
            await until(what, asked, deadline=DEADLINE)
        except AssertionError as error:
            told = "\n".join(map(str, self.written()))
            raise AssertionError(f"{error}; {self.picture()}; written:\n{told}") from None


@asynccontextmanager
async def rigged() -> AsyncIterator[Rig]:
    """A rig whose operator runs."""
    writes = Writes()
    async with (
        FakeApiServer(writes=writes) as server,
        FakeSlurmrestd(writes=writes) as slurm,
        FakeCluster(server.state, slurm) as machines,
        Client(server.config("user")) as user,
    ):
        machines.apart = True  # whoever loses slurmctld's node loses only that
        rig = Rig(server, slurm, machines, user, writes)
        operating = asyncio.create_task(rig.operate())
        try:
            yield rig
        finally:
            operating.cancel()
            await asyncio.gather(operating, return_exceptions=True)
