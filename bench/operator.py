"""How long the operator takes, compared to a bare client that does the same work at once. Run it with `make bench`.

The bare client knows everything in advance: it applies all objects of a cluster together, or creates and deletes pods
with 32 requests in flight and one call to Slurm. Both wait for Kubernetes to start containers and for Slurm to register
nodes, on the same sandbox, one after the other.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop
from bench.rows import Row, report
from msgspec import convert
from tests.harness import Cluster, Sandbox, succeed

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import cluster as build
from seltzer.build import config as build_config
from seltzer.build import nodeset as build_nodeset
from seltzer.build.components import login
from seltzer.build.images import Images
from seltzer.controllers.cluster import new_host_key
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.config import from_kubeconfig
from seltzer.slurm.client import SlurmClient
from seltzer.slurm.http import Http
from seltzer.slurm.token import TokenSource

NAME = "bench"
NODES = 10
DEADLINE = 180.0
SRUN = ("srun", "--nodes=2", "hostname")


async def until(true: Callable[[], Awaitable[bool]], pause: float = 0.05) -> float:
    """How long it took until this was true."""
    started = time.monotonic()
    while not await true():
        if time.monotonic() - started > DEADLINE:
            raise SystemExit("bench: waited in vain; see 'seltzer sandbox logs --name bench'")
        await asyncio.sleep(pause)
    return time.monotonic() - started


class Bare:
    """A client that does what the operator does, without observing, deciding or reporting."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        metadata = {"name": "demo", "namespace": namespace, "uid": "none"}
        self.cluster = convert({"metadata": metadata, "spec": {}}, SlurmCluster)
        reference = {"clusterRef": {"name": "demo"}, "replicas": 2}
        self.nodeset = convert({"metadata": {**metadata, "name": "cpu"}, "spec": reference}, NodeSet)

    def objects(self) -> list[dict[str, Any]]:
        """All objects of the cluster, in two waves: what pods need, then what creates pods."""
        images = Images()
        made = [
            *build.applied(self.cluster, images),
            *build.created_once(self.cluster),
            build.keys(self.cluster, os.urandom(1024), os.urandom(32)),
            build.secret(self.cluster, login.COMPONENT, {"ssh_host_ed25519_key": new_host_key()}),
            build.config_map(self.cluster, build_config.render(self.cluster, [self.nodeset])),
            *(build_nodeset.pod(self.nodeset, self.cluster, images, f"cpu-{number}") for number in range(2)),
        ]
        for each in made:
            each["metadata"].pop("ownerReferences", None)  # their owner doesn't exist
        return made

    async def apply(self) -> None:
        later = ("Deployment", "Pod", "RoleBinding")
        made = self.objects()
        for wave in (
            [each for each in made if each["kind"] not in later],
            [each for each in made if each["kind"] in later],
        ):
            await asyncio.gather(*(self._client.apply(kinds.BY_KIND[each["kind"]], each) for each in wave))

    async def make_pods(self, numbers: range) -> None:
        async def one(number: int) -> None:
            pod = build_nodeset.pod(self.nodeset, self.cluster, Images(), f"cpu-{number}")
            pod["metadata"].pop("ownerReferences")
            await self._client.create(kinds.PODS, pod, self._namespace)

        await asyncio.gather(*map(one, numbers))

    async def delete_pods(self, numbers: range) -> None:
        await asyncio.gather(*(self._client.delete(kinds.PODS, f"cpu-{number}", self._namespace) for number in numbers))


async def first_job(cluster: Cluster) -> bool:
    """Whether a job runs on two nodes."""
    answer = await asyncio.to_thread(cluster.run, *SRUN)
    return answer.code == 0


async def pods(client: Client, namespace: str, component: str) -> list[Any]:
    selector = {"labelSelector": f"app.kubernetes.io/component={component}"}
    return (await client.list_all(kinds.PODS, namespace, params=selector)).items


def all_ready(found: list[Any], count: int) -> bool:
    ready = [pod for pod in found if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)]
    return len(ready) >= count


async def to_first_job(client: Client, ours: Cluster, floor: Cluster) -> list[Row]:
    """From `kubectl apply` to the end of a first job, with a breakdown of the time."""
    parts: dict[str, float] = {}
    started = time.monotonic()
    ours.create(cpu={"replicas": 2})
    parts["kubectl apply"] = time.monotonic() - started

    async def note(name: str, true: Callable[[], Awaitable[bool]]) -> None:
        await until(true)
        parts[name] = time.monotonic() - started

    async def ready(component: str, count: int) -> bool:
        return all_ready(await pods(client, ours.namespace, component), count)

    await asyncio.gather(
        note("slurmctld is ready", lambda: ready("slurmctld", 1)),
        note("slurmrestd is ready", lambda: ready("slurmrestd", 1)),
        note("login is ready", lambda: ready("login", 1)),
        note("both slurmd are ready", lambda: ready("slurmd", 2)),
    )
    await until(lambda: first_job(ours))
    total = time.monotonic() - started
    bare = Bare(client, floor.namespace)
    floor.sandbox.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": floor.namespace}})
    begun = time.monotonic()
    await bare.apply()
    await until(lambda: first_job(floor))
    least = time.monotonic() - begun
    return [
        Row("apply to first srun done", total, "s", least),
        *(Row(f"apply to first srun: {name}", seconds, "s") for name, seconds in parts.items()),
    ]


async def scale(
    client: Client, slurm: SlurmClient, bare_slurm: SlurmClient, ours: Cluster, floor: Cluster
) -> list[Row]:
    """0 -> 10 -> 0 nodes: idle in Slurm, then gone from Kubernetes and from Slurm."""

    async def idle(of: SlurmClient, count: int) -> bool:
        listed = await of.nodes()
        return listed is not None and sum(node.base == "IDLE" for node in listed.nodes) == len(listed.nodes) == count

    async def gone(namespace: str, of: SlurmClient) -> bool:
        listed = await of.nodes()
        return not await pods(client, namespace, "slurmd") and listed is not None and not listed.nodes

    async def replicas(count: int) -> None:
        patch: Mapping[str, Any] = {"spec": {"replicas": count}}
        await client.patch(kinds.NODESETS, "cpu", ours.namespace, patch=patch)

    async def timed(begin: Awaitable[None], over: Callable[[], Awaitable[bool]]) -> float:
        started = time.monotonic()
        await begin
        await until(over)
        return time.monotonic() - started

    bare = Bare(client, floor.namespace)
    names = [f"cpu-{number}" for number in range(NODES)]

    async def shrink() -> None:
        await bare_slurm.drain(names, "bench")
        await bare.delete_pods(range(NODES))
        await until(lambda: _none(client, floor.namespace))
        await bare_slurm.delete(names)

    await timed(replicas(0), lambda: gone(ours.namespace, slurm))
    await bare.delete_pods(range(2))
    await until(lambda: _none(client, floor.namespace))
    await bare_slurm.delete(names)
    out = await timed(replicas(NODES), lambda: idle(slurm, NODES))
    back = await timed(replicas(0), lambda: gone(ours.namespace, slurm))
    floor_out = await timed(bare.make_pods(range(NODES)), lambda: idle(bare_slurm, NODES))
    floor_back = await timed(shrink(), lambda: gone(floor.namespace, bare_slurm))
    return [
        Row(f"scale 0 -> {NODES}, all idle in Slurm", out, "s", floor_out),
        Row(f"scale {NODES} -> 0, drained and gone", back, "s", floor_back),
    ]


async def _none(client: Client, namespace: str) -> bool:
    return not await pods(client, namespace, "slurmd")


async def measure(sandbox: Sandbox) -> list[Row]:
    ours, floor = Cluster(sandbox, "bench-operator", "demo"), Cluster(sandbox, "bench-floor", "demo")
    async with Client(from_kubeconfig([Path(sandbox.kubeconfig)])) as client:
        rows = await to_first_job(client, ours, floor)
        with ExitStack() as stack:
            slurms = []
            for cluster in (ours, floor):
                forward = sandbox.forward(f"service/{cluster.name}-slurmrestd", 6820, cluster.namespace)
                http = Http(f"http://{stack.enter_context(forward)}", deadline=30)
                slurms.append(SlurmClient(http, TokenSource(cluster.key)))
            rows += await scale(client, slurms[0], slurms[1], ours, floor)
    return rows


def main() -> None:
    try:
        succeed("sandbox", "up", "--name", NAME)
        sandbox = Sandbox(NAME)
        sandbox.seltzer("install")
        rows = uvloop.run(measure(sandbox))
    finally:
        succeed("sandbox", "down", "--name", NAME)
    report(rows)


if __name__ == "__main__":
    main()
