"""How fast a real API server and a real slurmrestd answer us, compared to a minimal client. Run it with `make bench`.

Both are reached from the host, through the sandbox's forwarder and kubectl's port-forward: the floor includes those.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import aiohttp
import uvloop
from bench.rows import Row, report
from msgspec import field
from tests.harness import Cluster, Sandbox, succeed

from seltzer.api.core import View
from seltzer.kube.client import Client
from seltzer.kube.config import Config, from_kubeconfig
from seltzer.kube.resource import Resource
from seltzer.slurm.client import SlurmClient
from seltzer.slurm.http import Http
from seltzer.slurm.token import TokenSource, sign

NAME = "bench"
NODES = [f"bench-{number}" for number in range(5_000)]
IN_FLIGHT = 32
REQUESTS = 2_000
RUNS = 3


class Anything(View, frozen=True):
    """Keeps nothing of an object."""

    metadata: Mapping[str, object] = field(default_factory=dict)


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", Anything)


async def fastest(work: Callable[[], Awaitable[object]]) -> float:
    """The best of a few runs: disturbances of the others aren't ours."""
    seconds = []
    for _ in range(RUNS):
        started = time.monotonic()
        await work()
        seconds.append(time.monotonic() - started)
    return min(seconds)


async def flood(request: Callable[[], Awaitable[object]]) -> float:
    """Requests per second with this many in flight."""
    left = iter(range(REQUESTS))

    async def worker() -> None:
        for _ in left:
            await request()

    started = time.monotonic()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return REQUESTS / (time.monotonic() - started)


async def kube(config: Config) -> list[Row]:
    url = f"{config.server}/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
    connector = aiohttp.TCPConnector(ssl=config.tls, limit=IN_FLIGHT)
    async with Client(config) as client, aiohttp.ClientSession(connector=connector) as bare:

        async def barely() -> None:
            async with bare.get(url) as answer:
                await answer.read()

        await flood(barely)  # warms up the server for both
        ours = await flood(lambda: client.get(CONFIG_MAPS, "kube-root-ca.crt", "default"))
        return [Row(f"requests, {IN_FLIGHT} in flight", ours, "requests/s", await flood(barely))]


async def slurm(url: str, key: bytes) -> list[Row]:
    http = Http(url, deadline=60)
    client = SlurmClient(http, TokenSource(lambda: key), deadline=60)
    path = f"/slurm/{await client.version()}"
    headers = {"X-SLURM-USER-TOKEN": sign(key, "slurm")}
    drain = json.dumps({"name": ["bench-[0-4999]"], "state": ["DRAIN"], "reason": "bench"}).encode()
    posted = {**headers, "Content-Type": "application/json"}
    await client.create(NODES, {"CPUs": "1", "State": "CLOUD"})
    try:
        listed = await client.nodes()
        assert listed and len(listed.nodes) >= len(NODES)
        since = listed.update_time + 5  # later than any change
        return [
            Row(
                "drain 5,000 nodes",
                await fastest(lambda: client.drain(NODES, "bench")),
                "s",
                await fastest(lambda: http.exchange("POST", f"{path}/nodes/", headers=posted, body=drain)),
            ),
            Row(
                "list 5,000 nodes",
                await fastest(client.nodes),
                "s",
                await fastest(lambda: http.exchange("GET", f"{path}/nodes/", headers=headers)),
            ),
            Row(
                "list 5,000 nodes, nothing new",
                await fastest(lambda: client.nodes(since)),
                "s",
                await fastest(lambda: http.exchange("GET", f"{path}/nodes/?update_time={since}", headers=headers)),
            ),
        ]
    finally:
        await client.delete(NODES)


def main() -> None:
    try:
        succeed("sandbox", "up", "--name", NAME)
        sandbox = Sandbox(NAME)
        rows = uvloop.run(kube(from_kubeconfig([Path(sandbox.kubeconfig)])))
        sandbox.seltzer("install")
        cluster = Cluster(sandbox, "bench", "demo")
        cluster.create()
        cluster.wait_ready()
        with sandbox.forward(f"service/{cluster.name}-slurmrestd", 6820, cluster.namespace) as address:
            rows += uvloop.run(slurm(f"http://{address}", cluster.key()))
    finally:
        succeed("sandbox", "down", "--name", NAME)
    report(rows)


if __name__ == "__main__":
    main()
