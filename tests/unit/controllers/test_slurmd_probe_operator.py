"""The whole operator, on the fakes, while slurmctld's guard still listens to whom nobody hears of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.fakes.operator_rig import Rig, rigged


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with rigged() as made:
        await made.cluster()
        await made.nodeset(replicas=2)
        await made.until("the cluster is well", lambda: made.ready("nodesets", "cpu") and made.is_quiet())
        made.slurm.listened = asyncio.Event()
        try:
            yield made
        finally:
            made.slurm.listened.set()  # a fake with a question that isn't answered doesn't end


def state(rig: Rig, name: str) -> set[str]:
    return set(rig.slurm.nodes.get(name, {}).get("state", ()))


def questions(rig: Rig) -> int:
    return sum("/alive/" in each for each in rig.slurm.requests)


async def test_nobody_waits_for_a_node_that_doesnt_answer(rig: Rig) -> None:
    rig.slurm.lost("cpu-0")
    rig.slurm.change("cpu-0", reason="Not responding")
    await rig.until("it is asked", lambda: questions(rig) == 1)
    await rig.nodeset(replicas=3)
    await rig.until("another one comes", lambda: "IDLE" in state(rig, "cpu-2"))
    assert questions(rig) == 1, "that one wasn't waited for"
    assert "DOWN" in state(rig, "cpu-0")
    assert rig.slurm.listened
    rig.slurm.listened.set()
    await rig.until("it is back", lambda: "IDLE" in state(rig, "cpu-0"))


async def test_nodes_of_a_dead_machine_are_replaced_when_the_guard_has_listened_to_them(rig: Rig) -> None:
    rig.lose_slurmds_node()
    await rig.until("they are asked", lambda: questions(rig) == 1)
    await rig.until("they take no jobs", lambda: all("DRAIN" in state(rig, name) for name in ("cpu-0", "cpu-1")))
    await rig.nodeset(replicas=3)
    await rig.until("a pass is over", lambda: "IDLE" in state(rig, "cpu-2"))
    assert not any("DOWN" in state(rig, name) for name in ("cpu-0", "cpu-1")), "their slurmds may be well"
    assert rig.slurm.listened
    rig.slurm.listened.set()
    await rig.until("both are given up", lambda: all("DOWN" in state(rig, name) for name in ("cpu-0", "cpu-1")))
    await rig.until("others come", lambda: all("IDLE" in state(rig, name) for name in ("cpu-3", "cpu-4")))
