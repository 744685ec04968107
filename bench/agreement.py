"""How soon Slurm learns what happened in Kubernetes, and Kubernetes what happened in Slurm, at any size."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable

from bench.scene import Scene
from bench.waiting import until

from seltzer.api.core import Pod
from seltzer.api.labels import SLURM_READY
from seltzer.kube import kinds

RUNS = 5
DEADLINE = 120.0
FLOOR_CONDITION = "bench.seltzer.dev/Floor"
CALM_SECONDS = 3.0  # between two runs, so that no work of the last one is left


def fullest(here: Scene) -> list[tuple[str, list[str]]]:
    """The Kubernetes nodes with the most pods, as many as are to be cordoned, and the names of their pods."""
    on = defaultdict[str, list[str]](list)
    for pod in here.pods:
        on[pod.spec.node_name].append(pod.metadata.name)
    return sorted(on.items(), key=lambda item: -len(item[1]))[:RUNS]


async def cordon(here: Scene) -> list[float]:
    """Seconds from the cordon of a Kubernetes node until all its pods are DRAIN in Slurm, for some nodes in turn."""
    seconds, count = [], 0
    for node, names in fullest(here):
        await asyncio.sleep(CALM_SECONDS)
        count += len(names)
        started = time.monotonic()
        await _cordon(here, node, True)
        seconds.append(await _drained(here, count) - started)
    for node, _ in fullest(here):
        await _cordon(here, node, False)
    await _drained(here, 0)
    return seconds


async def cordon_barely(here: Scene) -> list[float]:
    """One write to the Kubernetes node, one call to Slurm."""
    seconds, count = [], 0
    for node, names in fullest(here):
        count += len(names)
        started = time.monotonic()
        await _cordon(here, node, True)
        await here.slurm.drain(names, "bench")
        seconds.append(await _drained(here, count) - started)
    for node, names in fullest(here):
        await _cordon(here, node, False)
        await here.slurm.resume(names)
    await _drained(here, 0)
    return seconds


async def _cordon(here: Scene, node: str, shut: bool) -> None:
    await here.client.patch(kinds.NODES, node, patch={"spec": {"unschedulable": shut or None}})


async def _drained(here: Scene, count: int) -> float:
    async def so_many() -> bool:
        return (await here.counts())["drain"] == count

    return await until(f"{count} nodes are drained", so_many, pause=0.01)


async def agreed(here: Scene, names: list[str]) -> float:
    """When the last of these pods reported that Slurm accepts jobs for it, by the monotonic clock."""
    return (await _told(here, names, SLURM_READY, "True"))[-1]


async def agreed_barely(here: Scene, names: list[str]) -> float:
    """The same for a condition that is written directly."""
    await here.bare.set_condition(names, {"type": FLOOR_CONDITION, "status": "True"})
    return (await _told(here, names, FLOOR_CONDITION, "True"))[-1]


async def drain(here: Scene, names: list[str]) -> list[float]:
    """Seconds from a drain in Slurm until each pod's condition shows it, the fastest pod first."""
    await agreed(here, names)
    await asyncio.sleep(CALM_SECONDS)
    started = time.monotonic()
    waiting = asyncio.ensure_future(_told(here, names, SLURM_READY, "False"))
    await here.slurm.drain(names, "bench")
    seconds = [moment - started for moment in await waiting]
    await here.slurm.resume(names)
    await agreed(here, names)
    return seconds


async def drain_barely(here: Scene, names: list[str]) -> list[float]:
    """One call to Slurm, then a write for each pod."""
    started = time.monotonic()
    waiting = asyncio.ensure_future(_told(here, names, FLOOR_CONDITION, "False"))
    await here.slurm.drain(names, "bench")
    await here.bare.set_condition(names, {"type": FLOOR_CONDITION, "status": "False"})
    seconds = [moment - started for moment in await waiting]
    await here.slurm.resume(names)
    await here.bare.set_condition(names, {"type": FLOOR_CONDITION, "status": "True"})
    await _told(here, names, FLOOR_CONDITION, "True")
    return seconds


async def _told(here: Scene, names: Iterable[str], condition: str, status: str) -> list[float]:
    """When each of these pods had this condition, by the monotonic clock, the earliest first."""
    left, times, done = set(names), list[float](), asyncio.Event()

    def look(pod: Pod | None) -> None:
        if pod is not None and pod.metadata.name in left and _says(pod, condition, status):
            left.discard(pod.metadata.name)
            times.append(time.monotonic())
            if not left:
                done.set()

    with here.watching(look):
        for pod in here.pods:
            look(pod)
        try:
            async with asyncio.timeout(DEADLINE):
                await done.wait()
        except TimeoutError:
            raise SystemExit(f"bench: {len(left)} pods' {condition} isn't {status} after {DEADLINE:.0f} s") from None
    return times


def _says(pod: Pod, condition: str, status: str) -> bool:
    return any(each.type == condition and each.status == status for each in pod.status.conditions)
