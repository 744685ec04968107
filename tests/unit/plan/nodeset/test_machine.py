"""A NodeSet's plan in a world where anything happens in any order: no promise is broken, and it comes to rest.

The promises are checked by `Promises`, whatever is done. SELTZER_MODEL=600 looks for ten minutes,
SELTZER_MODEL_SEED=1 elsewhere. What breaks a promise is a tape; `walk` walks it again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.plan_model.mutants import MUTANTS, PER_NODE, SELDOM
from tests.fakes.plan_model.walk import NodeSetMachine, PerNodeMachine, noise, shortened, walk

LONG = float(os.environ.get("SELTZER_MODEL", "0"))
SEED = int(os.environ.get("SELTZER_MODEL_SEED", "0"))
TAPES = 200

TestNodeSet = pytest.mark.timeout(300 + 10 * LONG)(NodeSetMachine.TestCase)
TestNodeSet.settings = settings(max_examples=20 + int(4 * LONG), stateful_step_count=40)


TestPerNode = pytest.mark.timeout(300 + 10 * LONG)(PerNodeMachine.TestCase)
TestPerNode.settings = settings(max_examples=20 + int(4 * LONG), stateful_step_count=40)


@pytest.mark.timeout(300 + 10 * LONG)
@settings(max_examples=60 + int(20 * LONG))
@given(tape=st.binary(min_size=100, max_size=100))
def test_no_promise_is_broken_on_any_tape_of_events(tape: bytes) -> None:
    walk(tape)


@pytest.mark.timeout(300 + LONG)
@pytest.mark.parametrize("per_node", [False, True])
def test_nor_on_hundreds_of_tapes_of_noise(per_node: bool) -> None:
    """Hypothesis is thorough, and slow: this gets to where it would need hours to get."""
    number, end = SEED * 1_000_000, time.monotonic() + LONG
    while number < SEED * 1_000_000 + TAPES or time.monotonic() < end:
        tape = noise(number)
        try:
            walk(tape, per_node)
        except Exception as broken:
            raise AssertionError(f"tape {number}, {shortened(tape, per_node).hex()}: {broken}") from broken
        number += 1


# The tapes on which they are found, so that others needn't be walked first.
FOUND = {
    "overwrites what people say": 7,
    "doesn't look again before it writes": 161,
    "doesn't respect who set a node down": 13,
    "takes a silent slurmd for a dead pod": 31,
    "believes a kubelet that is late": 377,
    "takes a deletion for consent": 5,
    "forgets the jobs of who is lost": 87,
    "takes the name of a pod that is going": 1,
    "doesn't look at machines": 4,
    "takes an unknown machine for a well one": 11,
    "leaves a reason that isn't true any more": 686,
    "never gives a node back": 57,
    "takes an unready pod for a well one until it has seen it for long": 1352,
    "drains again and again": 6,
    "never looks again": 89,
    "leaves down what an outage set down": 386,
    "leaves pods that slurmctld forgot": 89,
    "takes one too many away for an update": 1,
    "protects only those that were busy when Slurm was last heard of": 41,
    "goes on telling what nobody knows": 42,
    "doesn't tell who is busy": 4,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mistake", MUTANTS)
def test_tapes_find_the_plan_that(mistake: str) -> None:
    with MUTANTS[mistake](), pytest.raises(AssertionError):
        for number in (FOUND.get(mistake, 0), *range(2000)):
            walk(noise(number))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mistake", PER_NODE)
def test_tapes_find_the_plan_with_placement_per_node_that(mistake: str) -> None:
    with PER_NODE[mistake](), pytest.raises(AssertionError):
        for number in range(2000):
            walk(noise(number), per_node=True)


def a_person_is_faster() -> None:
    """A node is drained and empty, and its pod about to go, when somebody resumes it and a job starts."""
    machine = NodeSetMachine()
    machine.begin(1, 3)
    machine.scale(0)
    machine.operate_well()
    machine.think(7)
    machine.world.person_resumes("cpu-0")
    machine.world.run_job("cpu-0")
    machine.act_late(6, 0)
    machine.teardown()


def test_slurm_is_asked_once_more_before_a_pod_is_deleted() -> None:
    a_person_is_faster()
    with SELDOM["asks nobody before it deletes"](), pytest.raises(AssertionError, match="is deleted with jobs"):
        a_person_is_faster()


def a_job_is_faster(waits: Callable[[NodeSetMachine], None]) -> None:
    """The last pod is gone, and its record or the whole NodeSet is about to go, when a job is submitted."""
    machine = NodeSetMachine()
    machine.begin(1, 3)
    machine.delete_nodeset()
    machine.operate_well()
    machine.world.pods.clear()
    for _ in range(3):
        machine.think(7)
        waits(machine)
        machine.act_late(6, 0)
        machine.queue("cpu-0", waits=False, queued=0)
    machine.teardown()


def test_slurm_is_asked_for_waiting_jobs_before_a_record_or_a_partition_goes() -> None:
    def named(machine: NodeSetMachine) -> None:
        machine.queue("cpu-0", waits=True, queued=0)

    def queued(machine: NodeSetMachine) -> None:
        machine.queue("cpu-0", waits=False, queued=1)

    a_job_is_faster(named)
    a_job_is_faster(queued)
    with SELDOM["trusts an old answer on waiting jobs"]():
        with pytest.raises(AssertionError, match="which a waiting job names"):
            a_job_is_faster(named)
        with pytest.raises(AssertionError, match="jobs that wait lose their partition"):
            a_job_is_faster(queued)
