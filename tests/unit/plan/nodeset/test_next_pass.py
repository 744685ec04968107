"""When the next pass comes, and what it needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.objects import nodeset, pod
from tests.builders.plan import machine, seen, slurm
from tests.builders.slurm import node

from seltzer.api.core import Pod
from seltzer.api.nodeset import NodeSetStatus
from seltzer.plan.actions import Action, CreatePods, DownNodes, DrainNodes, KillJobs
from seltzer.plan.nodeset import next_pass
from seltzer.plan.nodeset.nodeset_plan import decide
from seltzer.plan.nodeset.removal import RemovalSteps
from seltzer.plan.wakeup import Wakeup, earliest

SEEN = seen(nodeset(1), pod(), slurm=slurm(node()), machines={"worker": machine()})
WELL = decide(SEEN)
SLOW = replace(WELL, wakeups=(Wakeup("the drain timeout runs"),))
DRAIN, DOWN, KILL = DrainNodes(("a",), "seltzer: x"), DownNodes(("a",), "seltzer: x"), KillJobs(("a",))


@pytest.mark.parametrize(
    ("done", "unfinished", "read_back", "after"),
    [
        ((), False, False, 1.0),
        ((CreatePods(("a",)),), False, False, 1.0),
        ((CreatePods(("a",)),), True, False, next_pass.AT_ONCE),
        ((DRAIN,), False, True, next_pass.AT_ONCE),
        ((DRAIN,), False, False, next_pass.SOON),
        ((DRAIN, DOWN), False, True, next_pass.SOON),
        ((KILL,), False, True, next_pass.SOON),
    ],
)
def test_what_was_written_is_looked_at_soon(
    done: tuple[Action, ...], unfinished: bool, read_back: bool, after: float
) -> None:
    found = earliest(next_pass.wakeups(SEEN, SLOW, done, unfinished=unfinished, read_back=read_back))
    assert found and found.after == after


def test_nothing_wakes_a_nodeset_that_is_well() -> None:
    assert next_pass.wakeups(SEEN, WELL, (), unfinished=False, read_back=False) == ()


def test_a_nodeset_looks_again_when_its_pods_need_not_wait_for_home_directories_any_more() -> None:
    waits = Wakeup("a new cluster waits for its home directories", 21.0)
    new = replace(SEEN, home_wakeup=waits)
    assert next_pass.wakeups(new, WELL, (), unfinished=False, read_back=False) == (waits,)


@pytest.mark.parametrize(
    ("why", "replicas", "pods", "fresh"),
    [
        ("all stay", 2, (pod("cpu-0"), pod("cpu-1")), False),
        ("the idle one of these goes", 1, (pod("cpu-0"), pod("cpu-1")), True),
        ("all go", 0, (pod("cpu-0"),), False),
        ("its container may run again", 1, (pod(state="ended"),), True),
    ],
)
def test_slurm_is_asked_before_a_pass_if(why: str, replicas: int, pods: tuple[Pod, ...], fresh: bool) -> None:
    assert next_pass.needs_fresh_nodes(nodeset(replicas), pods) is fresh, why


def test_slurm_is_watched_closely_while_something_happens_there() -> None:
    assert next_pass.in_flight(WELL, NodeSetStatus(ready_replicas=0)), "a node is about to register"
    assert not next_pass.in_flight(WELL, NodeSetStatus(ready_replicas=1))
    assert next_pass.in_flight(replace(WELL, removal=RemovalSteps(busy=("a",))), NodeSetStatus(ready_replicas=1))
    assert next_pass.in_flight(replace(WELL, replacing=(pod(),)), NodeSetStatus(ready_replicas=1))
