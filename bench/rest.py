"""The cost of managing thousands of nodes while nothing happens, compared to a process that only observes.

`python -m bench.rest KUBECONFIG` is that process: it watches all pods and nodes, and polls Slurm as often.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from bench import process, scene
from tests.harness import Sandbox

from seltzer.controllers.slurm_connection import PACE
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.config import from_kubeconfig
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import Resource
from seltzer.kube.store import Store

SECONDS = 60.0
WATCHED: tuple[Resource[Any], ...] = (kinds.PODS, kinds.NODES)


@dataclass(frozen=True)
class Rest:
    """The resources that a process uses while nothing happens."""

    cpu_percent: float
    megabytes: float
    peak_megabytes: float


async def resting(pid: int, *, settle: float = 0.0) -> Rest:
    await asyncio.sleep(settle)
    before = process.cpu_seconds(pid)
    await asyncio.sleep(SECONDS)
    spent = process.cpu_seconds(pid) - before
    return Rest(100 * spent / SECONDS, process.megabytes(pid), process.megabytes(pid, "VmHWM"))


async def resting_barely(sandbox: Sandbox) -> Rest:
    """The floor."""
    words = [sys.executable, "-m", "bench.rest", sandbox.kubeconfig]
    child = subprocess.Popen(words, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        assert await asyncio.to_thread(child.stdout.readline), "the process that only observes did not start"
        return await resting(child.pid)
    finally:
        child.kill()
        child.wait()


async def look(kubeconfig: str) -> None:
    """Runs until killed; prints a line once it has everything."""
    config = from_kubeconfig([Path(kubeconfig)])
    async with Client(config) as client, asyncio.TaskGroup() as group:
        for resource in WATCHED:
            reflector = Reflector(client, resource, Store[Any]())
            group.create_task(reflector.run())
            await reflector.synced.wait()
        secret = await client.get(kinds.SECRETS, f"{scene.CLUSTER}-keys", scene.NAMESPACE)
        slurm = scene.slurm_client(config, base64.b64decode(secret.data["jwt_hs256.key"]))
        listed = await slurm.nodes()
        assert listed
        print(len(listed.nodes), flush=True)
        while True:
            await asyncio.sleep(PACE.idle)
            listed = await slurm.nodes(listed.update_time) or listed


if __name__ == "__main__":
    uvloop.run(look(sys.argv[1]))
