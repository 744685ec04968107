"""Kubernetes nodes that exist only as objects, simulated by KWOK: it makes their pods Ready and removes them.

Everything else is real: API server, scheduler, controller manager. Nothing runs on these nodes, so a machine with two
cores can have thousands of pods.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bench.waiting import until

from seltzer import paths
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import AlreadyExists
from seltzer.progress import Progress
from seltzer_sandbox.build import gobuild

KEY = "kwok.x-k8s.io/node"
PODS_ON_A_NODE = 100
CONFIG = Path(__file__).with_suffix(".yaml")

# Places a pod there. The nodes are tainted, so that no other pod is scheduled on them.
PLACE: dict[str, Any] = {
    "nodeSelector": {KEY: "fake"},
    "tolerations": [{"key": KEY, "operator": "Exists", "effect": "NoSchedule"}],
}


def node(name: str) -> dict[str, Any]:
    """A node with room for this many pods, and no more."""
    labels = {KEY: "fake", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    much = {"cpu": "1000", "memory": "4Ti", "pods": str(PODS_ON_A_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {KEY: "fake"}},
        "spec": {"taints": [{"key": KEY, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": much, "capacity": much},
    }


@asynccontextmanager
async def playing(client: Client, kubeconfig: str, count: int) -> AsyncIterator[None]:
    """This many nodes, Ready."""
    with Progress() as progress:
        program = await asyncio.to_thread(gobuild.build_one, progress, gobuild.kwok()) / "kwok"
    names = [f"kwok-{number}" for number in range(count)]
    log = paths.logs() / "kwok.log"
    with log.open("wb") as said:
        process = subprocess.Popen([program, "--kubeconfig", kubeconfig, "--config", CONFIG], stdout=said, stderr=said)

        async def ready() -> bool:
            assert process.poll() is None, f"KWOK ended; see {log}"
            found = {each.metadata.name: each for each in (await client.list_all(kinds.NODES)).items}
            return all(name in found and _is_ready(found[name]) for name in names)

        try:
            for name in names:
                with suppress(AlreadyExists):
                    await client.create(kinds.NODES, node(name))
            await until("all KWOK nodes are Ready", ready)
            yield
        finally:
            process.kill()
            process.wait()


def _is_ready(node: Any) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
