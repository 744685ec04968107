"""What is read once more before an action, and what is dropped from it then."""

from __future__ import annotations

import pytest
from tests.builders.slurm import node

from seltzer.errors import SeltzerError
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    KillJobs,
    MarkNodes,
    OnSlurm,
    PodRef,
    ResumeNodes,
    SetFinalizer,
)
from seltzer.plan.recheck import Facts, Needs, needs, still_due
from seltzer.slurm.models import Node

THREE = ("cpu-0", "cpu-1", "cpu-2")
PODS = tuple(PodRef(name, f"uid-{name}") for name in THREE)
OURS, THEIRS = "seltzer: update", "disk"
DRAINED = {name: node(name, "IDLE DRAIN", reason="seltzer: scale-in") for name in THREE}


def names(action: OnSlurm | None) -> tuple[str, ...]:
    return action.names if action else ()


def facts(*nodes: Node, **answers: bool) -> Facts:
    return Facts({each.name: each for each in nodes}, {name.replace("_", "-"): each for name, each in answers.items()})


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (CreatePods(THREE), Needs(max_age=0.5)),
        (MarkNodes(THREE, "seltzer ns/cpu"), Needs(max_age=0.5)),
        (DeletePods(PODS, ask=False), Needs(max_age=0.5)),
        (DeletePods(PODS, ask=True), Needs(True, max_age=0.5)),
        (DeletePods((*PODS, PodRef("cpu-3", "u")), ask=True), Needs(True)),
        (DrainNodes(THREE, OURS), Needs(True)),
        (ResumeNodes(THREE), Needs(True)),
        (KillJobs(THREE), Needs(True)),
        (DeleteRecords(THREE), Needs(max_age=0.5)),
        (DeleteRecords(THREE, unless_named=True), Needs(max_age=0.5, named=True)),
        (SetFinalizer(False), Needs(max_age=0.5)),
        (SetFinalizer(False, if_empty="cpu"), Needs(max_age=0.5, partition="cpu")),
        (DownNodes(THREE, OURS, {"cpu-1": "10.0.0.1"}), Needs(True, silent={"cpu-1": "10.0.0.1"})),
    ],
)
def test_nodes_are_read_again_where_people_may_have_changed_them(action: Action, expected: Needs) -> None:
    assert needs([action], DRAINED) == expected


def test_one_action_that_needs_the_newest_nodes_is_enough() -> None:
    assert needs([DeletePods(PODS, ask=True), ResumeNodes(THREE)], DRAINED) == Needs(True)


@pytest.mark.parametrize("action", [DeletePods(PODS, ask=True), DrainNodes(THREE, OURS), DownNodes(THREE, OURS)])
def test_without_an_answer_nothing_is_done_that_could_cost_a_job(action: Action) -> None:
    with pytest.raises(SeltzerError, match="can't be asked right now"):
        still_due(action, Facts())


@pytest.mark.parametrize(
    "action", [DeletePods(PODS, ask=False), MarkNodes(THREE, "seltzer ns/cpu"), DeleteRecords(THREE)]
)
def test_what_depends_on_no_node_is_done_as_it_was_planned(action: Action) -> None:
    assert still_due(action, Facts()) is action


def test_a_pod_stays_if_a_job_came_or_somebody_resumed_its_node() -> None:
    now = facts(DRAINED["cpu-0"], node("cpu-1", "MIXED DRAIN", reason=OURS))
    assert still_due(DeletePods(PODS, ask=True), now) == DeletePods((PODS[0], PODS[2]), ask=True), "cpu-2 never came"
    assert still_due(DeletePods(PODS[:1], ask=True), facts(node("cpu-0"))) is None


@pytest.mark.parametrize(
    ("why", "action", "found", "due"),
    [
        ("it takes jobs", DrainNodes(THREE, OURS), node(), True),
        ("a person drained it", DrainNodes(THREE, OURS), node(state="IDLE DRAIN", reason=THEIRS), False),
        ("a person set it down", DrainNodes(THREE, OURS), node(state="DOWN", reason=THEIRS), False),
        ("they still say so", DrainNodes(THREE, THEIRS), node(state="DOWN", reason=THEIRS), True),
        (
            "we drained it for another reason",
            DrainNodes(THREE, OURS),
            node(state="IDLE DRAIN", reason="seltzer: x"),
            True,
        ),
        ("it is drained for this", DrainNodes(THREE, OURS), node(state="IDLE DRAIN", reason=OURS), False),
        ("we drained it", ResumeNodes(THREE), node(state="IDLE DRAIN", reason=OURS), True),
        ("a person drained it", ResumeNodes(THREE), node(state="IDLE DRAIN", reason=THEIRS), False),
        ("nobody holds it", ResumeNodes(THREE), node(), False),
        ("we set it down", ResumeNodes(THREE), node(state="DOWN", reason=OURS), True),
        ("an outage did", ResumeNodes(THREE), node(state="DOWN", reason="Not responding"), True),
        ("a person set it down", ResumeNodes(THREE), node(state="DOWN", reason=THEIRS), False),
        ("a person drained it since", DownNodes(THREE, OURS), node(state="MIXED DRAIN", reason=THEIRS), False),
        ("they still say so", DownNodes(THREE, THEIRS), node(state="MIXED DRAIN", reason=THEIRS), True),
        ("they said so", DownNodes(THREE, THEIRS), node(state="MIXED DRAIN", reason="fan"), False),
        ("our drain took too long", KillJobs(THREE), node(state="MIXED DRAIN", reason=OURS), True),
        ("a person decided nothing about jobs", KillJobs(THREE), node(state="MIXED DRAIN", reason=THEIRS), False),
        ("its jobs have ended", KillJobs(THREE), node(state="IDLE DRAIN", reason=OURS), False),
    ],
)
def test_a_node_is_left_as_it_is_by_now_unless(
    why: str, action: DrainNodes | ResumeNodes | DownNodes | KillJobs, found: Node, due: bool
) -> None:
    assert names(still_due(action, facts(found))) == (("cpu-0",) if due else ()), why


def test_a_node_is_given_up_only_if_it_is_silent_still() -> None:
    addresses = {name: f"10.0.0.{number}" for number, name in enumerate(THREE)}
    now = facts(*(node(name, "MIXED") for name in THREE), cpu_0=False, cpu_1=True)
    assert names(still_due(DownNodes(THREE, OURS, addresses), now)) == ("cpu-0",), "of cpu-2 nothing is known"
    assert names(still_due(DownNodes(THREE, OURS), now)) == THREE, "these aren't given up as lost"


@pytest.mark.parametrize(
    ("named", "left"),
    [(frozenset(), THREE), (frozenset({"cpu-1"}), ("cpu-0", "cpu-2")), (frozenset(THREE), ()), (None, ())],
)
def test_a_record_stays_if_a_waiting_job_names_it_or_that_is_unknown(
    named: frozenset[str] | None, left: tuple[str, ...]
) -> None:
    assert names(still_due(DeleteRecords(THREE, unless_named=True), Facts(named=named))) == left
    assert names(still_due(DeleteRecords(THREE), Facts(named=named))) == THREE, "these jobs may be lost"


@pytest.mark.parametrize(("queued", "due"), [(0, True), (1, False), (None, False)])
def test_a_nodeset_stays_while_jobs_wait_in_its_partition_or_that_is_unknown(queued: int | None, due: bool) -> None:
    last = SetFinalizer(False, if_empty="cpu")
    assert still_due(last, Facts(queued=queued)) == (last if due else None)
