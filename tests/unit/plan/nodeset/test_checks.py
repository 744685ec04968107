"""Health checks: what their reports drain, comment and tell, and that nobody else's drain is ever touched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.objects import nodeset, patched, pod
from tests.builders.plan import UNKNOWN, machine, seen, slurm
from tests.builders.slurm import node
from tests.fakes.plan_model.operator import Operator
from tests.fakes.plan_model.world import World

from seltzer.api.checks import Check
from seltzer.api.labels import CHECKS_PASSED, FAILED_CHECKS, REPLACE_MACHINE
from seltzer.plan.actions import Action, DrainNodes, MarkNodes, PatchPods, PodPatch, ResumeNodes
from seltzer.plan.nodeset import check_status, checks
from seltzer.plan.nodeset.node_records import mark
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision, decide
from seltzer.plan.nodeset.nodeset_status import events, status
from seltzer.plan.recheck import is_due
from seltzer.slurm.models import Node

CHECKS = (
    Check(name="disk", use="disk"),
    Check(name="scratch", command="true", on_fail="comment"),
    Check(name="gpu", use="gpu", on_fail="replace"),
)
DISK = "seltzer: check disk: /tmp is full"
MARK = mark(nodeset())


def report(**failing: str) -> str:
    return json.dumps({"seltzer-checks": failing})


def plan(known: Node, cordoned: bool = False, annotations: Mapping[str, str] | None = None) -> NodeSetDecision:
    """A NodeSet of one node."""
    item = nodeset({"replicas": 1, "checks": CHECKS})
    pods = pod(address="10.0.0.1", annotations=annotations or {})
    return decide(seen(item, pods, slurm=slurm(known), machines={"worker": machine(cordoned=cordoned)}))


def actions(*args: Any, **more: Any) -> list[Action]:
    return [each for each in plan(*args, **more).actions if not isinstance(each, MarkNodes)]


# --- drains ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "known", "does"),
    [
        ("it fails", node(extra=report(disk="/tmp is full")), DrainNodes(("cpu-0",), DISK)),
        ("it drains for the first", node(extra=report(gpu="x", disk="/tmp is full")), DrainNodes(("cpu-0",), DISK)),
        ("replace drains", node(extra=report(gpu="lost")), DrainNodes(("cpu-0",), "seltzer: check gpu: lost")),
        ("its runner did it", node(state="IDLE DRAIN", reason=DISK, extra=report(disk="/tmp is full")), None),
        ("a comment drains nothing", node(extra=report(scratch="gone")), None),
        ("the check isn't in the NodeSet", node(extra=report(net="gone")), None),
        ("all pass", node(extra=report()), None),
        ("nothing is reported", node(), None),
        ("somebody else's Extra", node(extra="rack 7"), None),
        ("somebody else's JSON", node(extra='{"seltzer-checks": 7}'), None),
        ("a person drained it", node(state="IDLE DRAIN", reason="fan", extra=report(disk="full")), None),
        ("a person said nothing", node(state="IDLE DRAIN", extra=report(disk="full")), None),
        ("a person set it down", node(state="DOWN", reason="fan", extra=report(disk="full")), None),
        ("a person drained it, and all pass", node(state="IDLE DRAIN", reason="fan", extra=report()), None),
        ("it passes", node(state="IDLE DRAIN", reason=DISK, extra=report()), ResumeNodes(("cpu-0",))),
        (
            "another one fails instead",
            node(state="IDLE DRAIN", reason=DISK, extra=report(gpu="lost")),
            DrainNodes(("cpu-0",), "seltzer: check gpu: lost"),
        ),
        ("only one that comments fails", node(state="IDLE DRAIN", reason=DISK, extra=report(scratch="x")), ResumeNodes),
        ("nothing is known", node(state="IDLE DRAIN", reason=DISK), None),
        ("somebody overwrote the report", node(state="IDLE DRAIN", reason=DISK, extra="rack 7"), None),
        (
            "slurmctld added a matter of its own",
            node(state="IDLE DRAIN", reason=f"{DISK} : Kill task failed", extra=report()),
            None,
        ),
        (
            "it is one that the NodeSet doesn't have any more",
            node(state="IDLE DRAIN", reason="seltzer: check net: gone"),
            ResumeNodes(("cpu-0",)),
        ),
        (
            "it only comments now",
            node(state="IDLE DRAIN", reason="seltzer: check scratch: gone", extra=report(scratch="gone")),
            ResumeNodes(("cpu-0",)),
        ),
    ],
)
def test_a_node_is_drained_while_a_check_fails(why: str, known: Node, does: Action | type[Action] | None) -> None:
    found = actions(known)
    if isinstance(does, type):
        assert [type(each) for each in found] == [does], why
    else:
        assert found == ([does] if does else []), why


def test_a_cordon_and_a_failed_check_are_both_waited_for() -> None:
    cordon = "seltzer: Kubernetes node worker is cordoned"
    failing = report(disk="/tmp is full")
    assert actions(node(state="IDLE DRAIN", reason=DISK, extra=failing), cordoned=True) == [
        DrainNodes(("cpu-0",), cordon)
    ]
    assert actions(node(state="IDLE DRAIN", reason=cordon, extra=failing)) == [DrainNodes(("cpu-0",), DISK)]
    assert actions(node(state="IDLE DRAIN", reason=cordon, extra=report())) == [ResumeNodes(("cpu-0",))]


def test_a_node_whose_check_fails_again_a_moment_before_it_is_resumed_stays_drained() -> None:
    (resume,) = actions(known := node(state="IDLE DRAIN", reason=DISK, extra=report()))
    assert isinstance(resume, ResumeNodes)
    assert is_due(resume, known)
    assert not is_due(resume, node(state="IDLE DRAIN", reason=DISK, extra=report(disk="/tmp is full")))


@pytest.mark.parametrize("output", ["a : b", " : ", "a\n\x1b[31mb", " ", "x : Not responding"])
def test_no_output_makes_a_drain_look_like_somebody_elses(output: str) -> None:
    (drain,) = actions(node(extra=report(disk=output)))
    assert isinstance(drain, DrainNodes)
    assert drain.reason.isprintable()
    assert actions(node(state="IDLE DRAIN", reason=drain.reason, extra=report())) == [ResumeNodes(("cpu-0",))]


Event = tuple[str, str]
WHO = st.sampled_from(["cpu-0", "cpu-1"])
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["disk", "scratch", "gpu", "both", "pass", "lost"]), WHO),
    st.tuples(st.sampled_from(["drain", "silent drain", "down", "cordon", "uncordon", "job", "late", "work"]), WHO),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(EVENTS, max_size=30))
def test_a_persons_drain_is_never_touched_by_any_sequence_of_results(steps: list[Event]) -> None:
    world = World()
    operator = Operator(world)
    world.want(replicas=2, checks=CHECKS)
    seconds(world, operator, 5)
    held: dict[str, str] = {}
    for what, name in steps:
        record = world.records[name]
        match what:
            case "disk" | "scratch" | "gpu":
                world.check(name, **{what: f"{what} fails"})
            case "both":
                world.check(name, disk="full", gpu="lost")
            case "pass":
                world.check(name)
            case "lost":
                record.extra = ""
            case "drain":
                world.person_drains(name)
            case "silent drain":
                world.person_drains_and_says_nothing(name)
            case "down":
                record.reason = "" if record.drained else record.reason
                world.person_downs(name)
            case "cordon":
                world.machines[world.pods[name].machine].cordon()
            case "uncordon":
                world.machines[world.pods[name].machine].uncordon()
            case "job":
                world.run_job(name)
            case "late":
                operator.think()
            case "work":
                operator.act_late(0, 9)
        drained = {each: checks.drained_by(world.records[each].seen()) for each in world.records}
        if what in ("drain", "silent drain", "down"):
            held[name] = record.reason
        else:
            seconds(world, operator, what == "work")
        for each, check in drained.items():
            if check and not world.records[each].drained:
                report = json.loads(world.records[each].extra)["seltzer-checks"]
                assert check not in report, "nobody said that it passes"
        for each, reason in held.items():
            assert world.records[each].reason == reason
            assert world.records[each].drained or world.records[each].down


def seconds(world: World, operator: Operator, count: int) -> None:
    for _ in range(count):
        for name in list(world.pods):
            world.start(name)
            world.report(name)
            world.register(name)
        operator.work()
        world.now += 1


def test_a_check_that_fails_and_passes_costs_a_drain_by_its_runner_and_one_call() -> None:
    world = World()
    operator = Operator(world)
    world.want(replicas=2, checks=CHECKS)
    seconds(world, operator, 5)
    operator.calls.clear()
    world.check("cpu-0", disk="full")
    seconds(world, operator, 3)
    assert world.records["cpu-0"].reason == "seltzer: check disk: full"
    assert operator.calls == []
    world.check("cpu-0")
    seconds(world, operator, 3)
    assert operator.calls == [ResumeNodes(("cpu-0",))]
    assert not world.records["cpu-0"].drained
    world.records["cpu-0"].extra = report(disk="full")
    seconds(world, operator, 3)
    world.person_resumes("cpu-0")
    seconds(world, operator, 3)
    assert world.records["cpu-0"].drained, "a node whose check fails isn't given back by hand"


# --- comments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "comment", "becomes"),
    [
        (report(scratch="gone", disk="x"), MARK, f"{MARK} : check scratch: gone"),
        (report(scratch="gone"), f"{MARK} : check scratch: gone", None),
        (report(), f"{MARK} : check scratch: gone", MARK),
        ("", f"{MARK} : check scratch: gone", None),
        (report(), MARK, None),
        (report(scratch="gone"), "mine", None),
        (report(scratch="gone"), "", f"{MARK} : check scratch: gone"),
    ],
)
def test_a_check_that_only_comments_is_in_the_nodes_comment(extra: str, comment: str, becomes: str | None) -> None:
    found = plan(node(state="IDLE DRAIN", reason="fan", extra=extra, comment=comment)).actions
    assert found == ((MarkNodes(("cpu-0",), becomes),) if becomes else ())


def test_a_record_with_a_note_is_still_its_nodesets() -> None:
    item = nodeset({"replicas": 0, "checks": CHECKS})
    orphan = node(extra=report(scratch="gone"), comment=f"{MARK} : check scratch: gone")
    assert "DeleteRecords" in {type(each).__name__ for each in decide(seen(item, slurm=slurm(orphan))).actions}


# --- pods ------------------------------------------------------------------------------------------------------------


def patch(found: NodeSetDecision) -> PodPatch:
    (update,) = found.pod_updates
    (patch,) = update.patches
    return patch


def test_a_pod_says_which_checks_fail_and_asks_for_another_machine() -> None:
    found = patch(plan(node(extra=report(gpu="lost", scratch="gone"))))
    (condition,) = [each for each in found.conditions if each.type == CHECKS_PASSED]
    assert (condition.status, condition.reason) == ("False", "CheckFailed")
    assert condition.message == "check scratch: gone; check gpu: lost"
    assert found.annotations[FAILED_CHECKS] == "scratch,gpu"
    assert found.annotations[REPLACE_MACHINE] == "check gpu: lost"


def test_a_pod_says_when_they_pass_again() -> None:
    annotations = {FAILED_CHECKS: "gpu", REPLACE_MACHINE: "check gpu: lost"}
    found = patch(plan(node(extra=report()), annotations=annotations))
    (condition,) = [each for each in found.conditions if each.type == CHECKS_PASSED]
    assert condition.status == "True"
    assert {key: found.annotations[key] for key in annotations} == {FAILED_CHECKS: None, REPLACE_MACHINE: None}


def test_what_a_pod_says_stays_while_nothing_is_known() -> None:
    found = plan(node(), annotations={FAILED_CHECKS: "gpu"})
    assert all(FAILED_CHECKS not in each.annotations for update in found.pod_updates for each in update.patches)
    item = nodeset({"replicas": 1, "checks": CHECKS})
    silent = decide(seen(item, pod(annotations={FAILED_CHECKS: "gpu"}), slurm=UNKNOWN))
    assert all(FAILED_CHECKS not in each.annotations for update in silent.pod_updates for each in update.patches)


def test_a_pod_is_patched_once_for_each_change() -> None:
    item = nodeset({"replicas": 1, "checks": CHECKS})
    known = slurm(node(extra=report(disk="full"), state="IDLE DRAIN", reason="seltzer: check disk: full"))
    first = pod(address="10.0.0.1")
    found = patch(decide(seen(item, first, slurm=known, machines={"worker": machine()})))
    again = decide(seen(item, patched(first, found), slurm=known, machines={"worker": machine()}))
    assert again.pod_updates == ()


# --- what people are told --------------------------------------------------------------------------------------------


def test_a_thousand_nodes_are_one_event_for_each_check() -> None:
    item = nodeset({"replicas": 1000, "checks": CHECKS})
    pods = [pod(f"cpu-{number}", machine=f"n{number % 3}") for number in range(1000)]
    records = [node(each.metadata.name, extra=report(disk="full", gpu="lost")) for each in pods]
    found = decide(seen(item, *pods, slurm=slurm(*records)))
    (update,) = found.pod_updates
    told = [each for each in check_status.events(update.patches)]
    assert [(each.kind, each.reason, each.message) for each in told] == [
        ("Warning", "CheckFailed", "check disk fails on cpu-[0-999]: full"),
        ("Warning", "CheckFailed", "check gpu fails on cpu-[0-999]: lost"),
        *(("Warning", "ReplaceMachine", each.message) for each in told[2:]),
    ]
    assert [each.message.partition(", where")[0] for each in told[2:]] == [
        f"check gpu asks for another Kubernetes node than n{number}" for number in range(3)
    ]


def test_that_a_check_passes_is_an_event() -> None:
    update = PatchPods((patch(plan(node(extra=report(scratch="gone")), annotations={FAILED_CHECKS: "disk,scratch"})),))
    item = nodeset({"checks": CHECKS})
    now = status(seen(item, slurm=slurm(node())), plan(node()), (), "2030-01-01T00:00:00Z")
    told = [each for each in events(item, now, [update]) if each.reason.startswith("Check")]
    assert [(each.reason, each.message) for each in told] == [("CheckPassed", "check disk passes again on cpu-0")]


@pytest.mark.parametrize(
    ("wanted", "nodes", "says"),
    [
        ((), slurm(node(extra=report(disk="full"))), None),
        (CHECKS, UNKNOWN, ("Unknown", "SlurmUnreachable", "")),
        (CHECKS, slurm(node(), node("cpu-1", extra=report())), ("True", "AllPassed", "no check fails on any node")),
        (
            CHECKS,
            slurm(node(extra=report(disk="full", scratch="x")), node("cpu-1", extra=report(disk="full too"))),
            ("False", "CheckFailed", "disk fails on cpu-[0-1] (full); scratch fails on cpu-0 (x)"),
        ),
    ],
)
def test_the_nodeset_has_a_condition(wanted: tuple[Check, ...], nodes: Any, says: tuple[str, str, str] | None) -> None:
    found = check_status.finding(seen(nodeset({"checks": wanted}), slurm=nodes))
    assert len(found) == bool(says)
    if says:
        assert (found[0].type, found[0].status, found[0].reason) == ("ChecksPassed", *says[:2])
        assert says[2] in found[0].message


def test_ready_names_the_check_that_keeps_a_node_from_jobs() -> None:
    known = node(state="IDLE DRAIN", reason=DISK, extra=report(disk="/tmp is full"))
    item = nodeset({"replicas": 1, "checks": CHECKS})
    look = seen(item, pod(address="10.0.0.1"), slurm=slurm(known), machines={"worker": machine()})
    (ready, *_) = status(look, decide(look), (), "2030-01-01T00:00:00Z").conditions
    assert "cpu-0 is drained by a health check (check disk: /tmp is full), until it passes" in ready.message


def test_a_drain_names_its_check() -> None:
    assert checks.drained_by(node(state="IDLE DRAIN", reason=DISK)) == "disk"
    assert checks.drained_by(node(state="IDLE DRAIN", reason="seltzer: scale-in")) == ""
