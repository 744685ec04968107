"""The operator may crash behind any of its writes, and any answer may get lost: it all ends as if nothing had happened.

Every write of every scenario is tried, on the fakes (which pass the contract tests of the real ones), in three ways: a
crash right behind it, a crash with its answer lost, an answer lost without a crash. A job runs meanwhile where it could
be killed: its pod stays the same until the job has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from tests.fakes.apiserver.things import NODESETS
from tests.fakes.operator_rig import CLUSTERS, Rig, rigged

pytestmark = pytest.mark.virtual_time

T = TypeVar("T")
Step = Callable[[Rig], Awaitable[None]]
# Each life has a world of its own, and some wait for seconds until a Lease has been silent for long enough.
LIVES_AT_ONCE = 4


@dataclass(frozen=True)
class Scenario:
    """What a user does to a cluster that is well, and what it comes to."""

    name: str
    change: Step
    """What the user does, and when the job (on cpu-0) ends."""
    over: Callable[[Rig], bool]
    """Whether everything is as it should be."""
    replicas: int = 2
    busy: bool = False


def whole(rig: Rig, *names: str) -> bool:
    """These nodes are there and take jobs, no others are, and everything is Ready."""
    return (
        set(rig.pods()) == set(rig.slurm.nodes) == set(names)
        and all("DRAIN" not in node["state"] for node in rig.slurm.nodes.values())
        and rig.ready("nodesets", "cpu")
        and rig.ready("slurmclusters", "demo")
    )


async def job_ends(rig: Rig, draining: bool = True) -> None:
    """When its node is drained and nothing else is left to do, the job is still there on the same pod, and ends."""
    if draining:
        await rig.until("cpu-0 is drained", lambda: "DRAIN" in rig.slurm.nodes["cpu-0"]["state"])
    assert rig.pods()["cpu-0"]["metadata"].get("deletionTimestamp") is None, "a pod was deleted under a job"
    rig.slurm.release("cpu-0")


async def scale_out(rig: Rig) -> None:
    await rig.nodeset(replicas=4)


async def scale_in(rig: Rig) -> None:
    await rig.nodeset(replicas=1)
    await rig.until("only the busy node is left", lambda: set(rig.pods()) == set(rig.slurm.nodes) == {"cpu-0"})
    await job_ends(rig, draining=False)


async def update(rig: Rig) -> None:
    before = {name: pod["metadata"]["uid"] for name, pod in rig.pods().items()}
    await rig.nodeset(replicas=2, features=["fast"], update={"maxUnavailable": 2})
    await rig.until(
        "cpu-1 is new", lambda: rig.pods().get("cpu-1", {}).get("metadata", {}).get("uid") != before["cpu-1"]
    )
    await job_ends(rig)


async def delete_nodeset(rig: Rig) -> None:
    await rig.delete(NODESETS, "cpu")
    await job_ends(rig)


async def delete_cluster(rig: Rig) -> None:
    await rig.delete(CLUSTERS, "demo")
    await rig.delete(NODESETS, "cpu")
    await job_ends(rig)


async def reconfigure(rig: Rig) -> None:
    await rig.cluster(config={"slurm.conf": "MaxJobCount=77\n"})


async def hold(rig: Rig) -> None:
    await rig.cluster(controller={"hold": True})
    await rig.until("slurmctld is held", lambda: rig.phase() == "held")
    await rig.cluster(controller={"hold": False})


def released(rig: Rig) -> bool:
    return rig.phase() == "running" and whole(rig, "cpu-0", "cpu-1")


async def lose_node(rig: Rig) -> None:
    lost = rig.lose_controllers_node()
    await rig.until("the pod that can't end is removed", lambda: lost not in rig.controllers())


def moved(rig: Rig) -> bool:
    return [rig.in_charge()] == rig.controllers() and released(rig)


def fast(rig: Rig) -> bool:
    nodes = rig.slurm.nodes.values()
    return whole(rig, "cpu-0", "cpu-1") and all("fast" in node["features"] for node in nodes)


def configured(rig: Rig) -> bool:
    return "MaxJobCount=77" in rig.config() and whole(rig, "cpu-0", "cpu-1") and not rig.trials()


SCENARIOS = [
    Scenario("scale-out", scale_out, lambda rig: whole(rig, *(f"cpu-{number}" for number in range(4)))),
    Scenario("scale-in", scale_in, lambda rig: whole(rig, "cpu-0"), replicas=3, busy=True),
    Scenario("update", update, fast, busy=True),
    Scenario("reconfigure", reconfigure, configured),
    Scenario("hold and release", hold, released),
    Scenario("lose the controller's node", lose_node, moved),
    Scenario(
        "delete a NodeSet",
        delete_nodeset,
        lambda rig: not any("/cpu" in name for name in rig.kinds()) and not rig.slurm.nodes,
        busy=True,
    ),
    Scenario(
        "delete the cluster",
        delete_cluster,
        lambda rig: rig.kinds() == ["persistentvolumeclaims/demo-slurmctld"],
        busy=True,
    ),
]
WAYS: dict[str, dict[str, Any]] = {
    "crash": {"crash": True, "lost_answer": False},
    "crash and lost answer": {"crash": True, "lost_answer": True},
    "lost answer": {"crash": False, "lost_answer": True},
}


async def each(count: int, play: Callable[[int], Awaitable[T]]) -> list[T]:
    """Play one life for each of `count` writes, some at a time; what they came to, in the order of the writes."""
    room = asyncio.Semaphore(LIVES_AT_ONCE)

    async def one(at: int) -> T:
        async with room:
            return await play(at)

    async with asyncio.TaskGroup() as group:
        lives = [group.create_task(one(at)) for at in range(1, count + 1)]
    return [life.result() for life in lives]


async def live(scenario: Scenario, at: int = 0, **way: Any) -> tuple[int, dict[str, Any], bool]:
    """Play a scenario: how many writes it took, what it came to, and whether the fault was in it."""
    async with rigged() as rig:
        await rig.cluster()
        await rig.nodeset(replicas=scenario.replicas)
        names = [f"cpu-{number}" for number in range(scenario.replicas)]
        await rig.until("the cluster is well", lambda: whole(rig, *names) and rig.is_quiet())
        if scenario.busy:
            rig.slurm.occupy("cpu-0")
        rig.break_at(at, **{"crash": False, "lost_answer": False, **way})
        await scenario.change(rig)
        await rig.until(f"{scenario.name} is over", lambda: scenario.over(rig))
        return len(rig.written()), rig.picture(), rig.was_hit


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_from_nothing_to_ready(way: dict[str, Any]) -> None:
    """The same for the first minute of a cluster, which has the most writes."""

    async def begin(at: int, **way: Any) -> tuple[int, dict[str, Any]]:
        async with rigged() as rig:
            rig.break_at(at, **{"crash": False, "lost_answer": False, **way})
            await rig.cluster()
            await rig.nodeset(replicas=2)
            await rig.until("the cluster is well", lambda: whole(rig, "cpu-0", "cpu-1"))
            return len(rig.written()), rig.picture()

    count, usual = await begin(0)
    for at, (_, picture) in enumerate(await each(count, lambda at: begin(at, **way)), 1):
        assert picture == usual, f"write {at} of {count}"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
async def test_any_write_may_be_the_last(scenario: Scenario, way: dict[str, Any]) -> None:
    count, usual, _ = await live(scenario)
    assert count >= 2
    lives = await each(count, lambda at: live(scenario, at, **way))
    for at, (_, picture, _) in enumerate(lives, 1):
        assert picture == usual, f"write {at} of {count}"
    hits = sum(hit for _, _, hit in lives)
    # How often a status is written on the way depends on what falls into one pass.
    assert hits >= count // 2, "the faults missed what they were meant for"
