"""Thousands of nodes, compared to a bare client that does the same work at once. Run it with `make bench`.

API server, scheduler, controller manager, slurmctld and slurmrestd are real, and the operator runs in its pod. The
Kubernetes nodes are KWOK's, so pods are Ready at once and nothing runs in them; their Slurm nodes are records of
slurmctld that need no slurmd (`bench/slurmds.py`). The bare client runs while the operator is away.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import uvloop
from bench import agreement, process, rest, scene
from bench.kwok import PODS_ON_A_NODE
from bench.rows import Row, report
from bench.scene import Scene
from bench.waiting import until
from tests.harness import Sandbox, succeed

from seltzer.api.core import Pod

NAME = "kwok"
SIZES = (100, 300, 1_000, 3_000)
WHOLE_ROWS_FROM = 1_000  # pods; below that, rows show only the cost per pod
DRAINED = 1_000
WHERE = "on KWOK, real Slurm"
"""Pods and Kubernetes nodes are KWOK's; slurmctld and slurmrestd are real."""
TRIPS = 3  # out and back; the rows show the median. Above WHOLE_ROWS_FROM there is one trip, which takes long enough.
SETTLE_SECONDS = 10.0  # enough for everything in progress to finish


@dataclass(frozen=True)
class Trip:
    """From no node to many and back: in seconds, and in CPU seconds of the process that did it."""

    exist: float
    idle: float
    told: float
    cpu_out: float
    gone: float
    cpu_in: float


def middle(trips: Sequence[Trip]) -> Trip:
    """The median of each number."""

    def of(what: Callable[[Trip], float]) -> float:
        return statistics.median(map(what, trips))

    return Trip(
        exist=of(lambda trip: trip.exist),
        idle=of(lambda trip: trip.idle),
        told=of(lambda trip: trip.told),
        cpu_out=of(lambda trip: trip.cpu_out),
        gone=of(lambda trip: trip.gone),
        cpu_in=of(lambda trip: trip.cpu_in),
    )


async def grow(here: Scene, count: int, begin: Awaitable[None]) -> tuple[float, float]:
    """When all pods existed, and when all were idle in Slurm, by the monotonic clock."""
    existed = 0.0

    def look(_: Pod | None) -> None:
        nonlocal existed
        if not existed and len(here.pods) == count:
            existed = time.monotonic()

    with here.watching(look):
        working = asyncio.ensure_future(begin)
        idle = await until(f"{count} nodes are idle in Slurm", lambda: here.idle(count))
        await working
    return existed, idle


async def shrink(here: Scene, begin: Awaitable[None]) -> float:
    """When no pod and no record was left."""
    await begin
    return await until("all is gone", here.gone)


async def barely(here: Scene, count: int) -> Trip:
    """The floor. Its CPU time includes the client, its watch, and the simulated slurmds."""
    names = here.names(count)

    async def no_pods() -> bool:
        return not len(here.pods)

    async def remove() -> None:
        await here.slurm.drain(names, "bench")
        await here.bare.delete(names)
        await until("all pods are gone", no_pods, pause=0.02)
        await here.slurm.delete(names)

    begun, cpu = time.monotonic(), time.process_time()
    exist, idle = await grow(here, count, here.bare.create(names, here.pod))
    cpu_out = time.process_time() - cpu
    told = await agreement.agreed_barely(here, names)
    turned, cpu = time.monotonic(), time.process_time()
    gone = await shrink(here, remove())
    return Trip(exist - begun, idle - begun, told - begun, cpu_out, gone - turned, time.process_time() - cpu)


async def operated(here: Scene, count: int, peak_rows: list[Row] | None = None) -> Trip:
    """The same by the operator. If `peak_rows` is given, it receives what is measured while all nodes are there."""
    pid = await here.operator_on()
    begun, cpu = time.monotonic(), process.cpu_seconds(pid)
    exist, idle = await grow(here, count, here.replicas(count))
    told = await agreement.agreed(here, here.names(count))
    cpu_out = process.cpu_seconds(pid) - cpu
    if peak_rows is not None:
        peak_rows += await at_full_size(here, count)
        pid = await here.operator_on()
        await asyncio.sleep(SETTLE_SECONDS)
    turned, cpu = time.monotonic(), process.cpu_seconds(pid)
    gone = await shrink(here, here.replicas(0))
    cpu_in = process.cpu_seconds(pid) - cpu
    return Trip(exist - begun, idle - begun, told - begun, cpu_out, gone - turned, cpu_in)


def scale_rows(count: int, ours: Trip, floor: Trip) -> list[Row]:
    out, back = f"scale 0 -> {count:,} {WHERE}", f"scale {count:,} -> 0 {WHERE}"
    whole = [
        Row(f"{out}: all pods exist", ours.exist, "s", floor.exist),
        Row(f"{out}: all idle in Slurm", ours.idle, "s", floor.idle),
        Row(f"{out}: all pods' conditions say so", ours.told, "s", floor.told),
        Row(f"{back}: drained in Slurm and gone", ours.gone, "s", floor.gone),
    ]
    costs = [
        ("scale out, time", ours.idle, floor.idle),
        ("scale out, CPU of the operator", ours.cpu_out, floor.cpu_out),
        ("scale in, time", ours.gone, floor.gone),
        ("scale in, CPU of the operator", ours.cpu_in, floor.cpu_in),
    ]
    each = [
        Row(f"{what} per pod of {count:,} {WHERE}", 1000 * one / count, "ms", 1000 * two / count)
        for what, one, two in costs
    ]
    return [*(whole if count >= WHOLE_ROWS_FROM else []), *each]


async def at_full_size(here: Scene, count: int) -> list[Row]:
    """Measurements while all nodes are there: with an operator, then without."""
    some = here.names(min(DRAINED, count))
    ours = await rest.resting(await here.operator_on(), settle=SETTLE_SECONDS)
    cordon = await agreement.cordon(here)
    one = [(await agreement.drain(here, some[:1]))[0] for _ in range(agreement.RUNS)]
    many = await agreement.drain(here, some)
    await here.operator_off()
    least = await rest.resting_barely(here.sandbox)
    least_cordon = await agreement.cordon_barely(here)
    least_one = [(await agreement.drain_barely(here, some[:1]))[0] for _ in range(agreement.RUNS)]
    least_many = await agreement.drain_barely(here, some)
    size, drain = f"{count:,} pods {WHERE}", f"drain of {len(some):,} nodes in Slurm"
    full = f"cordon of a Kubernetes node with {len(agreement.fullest(here)[0][1])} pods"
    return [
        _medians(f"{size}: {full} until all are DRAIN", cordon, least_cordon),
        _medians(f"{size}: drain of a node in Slurm until its pod's condition says so", one, least_one),
        _medians(f"{size}: {drain} until the conditions say so, median pod", many, least_many),
        Row(f"{size}: {drain} until the conditions say so, last pod", many[-1], "s", least_many[-1]),
        Row(f"{size}: CPU of the operator at rest", ours.cpu_percent, "% of a core", least.cpu_percent),
        Row(f"{size}: memory of the operator at rest", ours.megabytes, "MB", least.megabytes),
        Row(f"{size}: memory of the operator, peak", ours.peak_megabytes, "MB", least.peak_megabytes),
    ]


def _medians(name: str, seconds: list[float], floor: list[float]) -> Row:
    return Row(name, statistics.median(seconds), "s", statistics.median(floor))


async def measure(sandbox: Sandbox, sizes: tuple[int, ...]) -> list[Row]:
    rows: list[Row] = []
    async with scene.set_up(sandbox, -(-max(sizes) // PODS_ON_A_NODE)) as here:
        for count in sizes:
            full: list[Row] = []
            trips: list[tuple[Trip, Trip]] = []
            for number in range(TRIPS if count <= WHOLE_ROWS_FROM else 1):
                await here.operator_off()
                floor = await barely(here, count)
                await operated(here, 1)  # a first trip, so that the operator has synced and done everything once
                peak_rows = full if count >= WHOLE_ROWS_FROM and not number else None
                trips.append((await operated(here, count, peak_rows), floor))
            ours, floors = zip(*trips, strict=True)
            rows += [*full, *scale_rows(count, middle(ours), middle(floors))]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, nargs="+", default=SIZES, help="how many pods, from few to many")
    parser.add_argument("--keep", action="store_true", help="leave the sandbox as it is afterwards")
    asked = parser.parse_args()
    try:
        succeed("sandbox", "up", "--name", NAME, "--nodes", "1")
        sandbox = Sandbox(NAME)
        sandbox.seltzer("install")
        rows = uvloop.run(measure(sandbox, tuple(asked.pods)))
    finally:
        if not asked.keep:
            succeed("sandbox", "down", "--name", NAME)
    report(rows)


if __name__ == "__main__":
    main()
