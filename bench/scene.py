"""The environment of the scale bench: a sandbox with KWOK nodes, the operator in its pod, one real Slurm cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import kwok
from bench.bare import Bare
from bench.slurmds import Slurmds, counted
from bench.waiting import until
from tests.harness import Cluster, Sandbox

from seltzer.api.core import Pod
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import nodeset as build_nodeset
from seltzer.build.components.slurmctld import PORT as SLURMCTLD_PORT
from seltzer.build.components.slurmrestd import PORT as SLURMRESTD_PORT
from seltzer.build.images import Images
from seltzer.build.names import OPERATOR
from seltzer.controllers.slurm_connection import Route
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.config import Config, from_kubeconfig
from seltzer.kube.reflector import Reflector
from seltzer.kube.store import Store
from seltzer.plan import pod_state
from seltzer.slurm.client import SlurmClient
from seltzer.slurm.http import Http
from seltzer.slurm.token import TokenSource

SYSTEM = "seltzer-system"
NAMESPACE, CLUSTER, NODESET = "bench-scale", "demo", "cpu"
SELECTOR = {"labelSelector": "app.kubernetes.io/component=slurmd"}


@dataclass(frozen=True)
class Scene:
    """All participants."""

    sandbox: Sandbox
    client: Client
    slurm: SlurmClient
    slurmctld: Http
    pods: Store[Pod]
    slurmds: Slurmds
    bare: Bare
    nodeset: NodeSet
    cluster: SlurmCluster
    _lookers: list[Callable[[Pod | None], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pods.watch(self._on_pod)

    def _on_pod(self, _: Pod | None, after: Pod | None) -> None:
        for look in self._lookers:
            look(after)

    @contextmanager
    def watching(self, look: Callable[[Pod | None], None]) -> Iterator[None]:
        """Call `look` with every new or changed pod, and with None when one is gone."""
        self._lookers.append(look)
        try:
            yield
        finally:
            self._lookers.remove(look)

    def names(self, count: int) -> list[str]:
        return [f"{NODESET}-{number}" for number in range(count)]

    def pod(self, name: str) -> dict[str, Any]:
        """The pod that the operator would make, without an owner: the operator ignores it."""
        made: dict[str, Any] = build_nodeset.pod(self.nodeset, self.cluster, Images(), name)
        made["metadata"].pop("ownerReferences")
        return made

    async def replicas(self, count: int) -> None:
        await self.client.patch(kinds.NODESETS, NODESET, NAMESPACE, patch={"spec": {"replicas": count}})

    async def idle(self, count: int) -> bool:
        """This many pods are Ready, and as many nodes are idle in Slurm."""
        if len(self.slurmds.registered) != count or sum(map(pod_state.ready, self.pods)) != count:
            return False
        return (await self.counts())["idle"] == count

    async def gone(self) -> bool:
        """No pod, and no record in Slurm."""
        return not len(self.pods) and (await self.counts())["dyn_normal"] == 0

    async def counts(self) -> dict[str, int]:
        """Slurm's nodes by state."""
        return await counted(self.slurmctld, NODESET)

    # --- the operator ---------------------------------------------------------------------------------------------

    async def operator_off(self) -> None:
        """Only the floor's client is at work."""
        await self._operators(0)

        async def away() -> bool:
            return not await self._operator_pods()

        await until("the operator is gone", away)

    async def operator_on(self) -> int:
        """Wait until the operator leads and has done something. Returns its process."""
        await self._operators(1)

        async def leads() -> bool:
            lease = await self.client.get(kinds.LEASES, OPERATOR, SYSTEM)
            holders = [pod.metadata.name for pod in await self._operator_pods() if pod_state.ready(pod)]
            return len(holders) == 1 and lease.spec.holder_identity == holders[0]

        await until("the operator leads", leads)
        name = (await self._operator_pods())[0].metadata.name
        return self.sandbox.processes_of(name, SYSTEM, "operator")[-1]

    async def _operators(self, count: int) -> None:
        await self.client.patch(kinds.DEPLOYMENTS, OPERATOR, SYSTEM, patch={"spec": {"replicas": count}})

    async def _operator_pods(self) -> list[Pod]:
        params = {"labelSelector": f"app.kubernetes.io/name={OPERATOR}"}
        return (await self.client.list_all(kinds.PODS, SYSTEM, params=params)).items


def slurm_client(config: Config, key: bytes) -> SlurmClient:
    """The cluster's Slurm, reached through the API server."""
    http = Route(config.server, config.tls).http(NAMESPACE, f"{CLUSTER}-slurmrestd", SLURMRESTD_PORT, deadline=60)
    return SlurmClient(http, TokenSource(lambda: key), deadline=60)


@asynccontextmanager
async def set_up(sandbox: Sandbox, nodes: int) -> AsyncIterator[Scene]:
    """A cluster with an empty NodeSet, ready, and as many KWOK nodes."""
    here = Cluster(sandbox, NAMESPACE, CLUSTER)
    here.create(**{NODESET: {"replicas": 0, "podTemplate": {"spec": kwok.PLACE}}})
    here.wait_ready()
    config = from_kubeconfig([Path(sandbox.kubeconfig)])
    slurm = slurm_client(config, here.key())
    controller = next(name for name in here.pods() if "-slurmctld-" in name)
    slurmctld = Route(config.server, config.tls).http(NAMESPACE, "", SLURMCTLD_PORT, pod=controller)
    pods: Store[Pod] = Store()
    slurmds = Slurmds(pods, slurm, NODESET)
    async with (
        Client(config) as client,
        Bare(config, NAMESPACE) as bare,
        kwok.playing(client, sandbox.kubeconfig, nodes),
        asyncio.TaskGroup() as group,
    ):
        reflector = Reflector(client, kinds.PODS, pods, namespace=NAMESPACE, selector=SELECTOR)
        tasks = [group.create_task(reflector.run()), group.create_task(slurmds.run())]
        await reflector.synced.wait()
        nodeset = await client.get(kinds.NODESETS, NODESET, NAMESPACE)
        cluster = await client.get(kinds.CLUSTERS, CLUSTER, NAMESPACE)
        yield Scene(sandbox, client, slurm, slurmctld, pods, slurmds, bare, nodeset, cluster)
        for task in tasks:
            task.cancel()
