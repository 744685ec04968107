"""What is to be done about a NodeSet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.builders.objects import NOW, nodeset, pod
from tests.builders.plan import GONE, MEMBER, UNKNOWN, aged, machine, seen, slurm
from tests.builders.slurm import node

from seltzer.api.labels import BUSY
from seltzer.api.nodeset import Drain, Update
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    MarkNodes,
    PodRef,
    ResumeNodes,
    SetFinalizer,
    SetReplicas,
)
from seltzer.plan.nodeset import node_records
from seltzer.plan.nodeset.membership import Membership
from seltzer.plan.nodeset.nodeset_plan import decide
from seltzer.plan.nodeset.observation import NodeSetObservation, Wants
from seltzer.plan.slurm_presence import SlurmState
from seltzer.slurm.models import Node

CROWDED = Membership(True, False, "TooManyNodes", "too many")
STRANGER = Membership(False, False, "NotAllowed", "not allowed")
ROBBED = Membership(False, False, "NameTaken", "taken")
KILL = Drain(timeout="1m", on_timeout="kill")
KNOWN = {"worker": machine()}


def actions(observation: NodeSetObservation) -> tuple[Action, ...]:
    return decide(observation).actions


def goner(name: str) -> PodRef:
    return PodRef(name, f"uid-{name}")


# --- it comes and grows ----------------------------------------------------------------------------------------------


def test_before_the_first_pod_comes_the_finalizer() -> None:
    assert actions(seen(nodeset(finalizer=False), slurm=slurm())) == (SetFinalizer(True),)


def test_the_default_of_replicas_is_written_down_where_autoscalers_read_it() -> None:
    """The CRD has no default: placement perNode has no replicas."""
    item = nodeset()
    absent = msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, replicas=None))
    assert actions(seen(absent, slurm=slurm())) == (CreatePods(("cpu-0",)), SetReplicas(1))
    assert SetReplicas(1) not in actions(seen(nodeset({"placement": "perNode"}), slurm=slurm()))


def test_who_isnt_a_member_gets_none() -> None:
    assert actions(seen(nodeset(finalizer=False), membership=STRANGER)) == ()


@pytest.mark.parametrize("known", [slurm(node("cpu-1")), GONE])
def test_missing_pods_are_made_all_at_once_with_the_lowest_numbers(known: SlurmState) -> None:
    assert actions(seen(nodeset(4), pod("cpu-1"), slurm=known)) == (CreatePods(("cpu-0", "cpu-2", "cpu-3")),)


def test_no_pod_is_made_while_nobody_knows_what_records_slurm_has() -> None:
    assert actions(seen(nodeset(1), slurm=UNKNOWN)) == ()


def test_a_pod_that_is_going_comes_back_under_its_own_name() -> None:
    assert actions(seen(nodeset(2), pod("cpu-0", deleting=True), pod("cpu-1"), slurm=slurm(node("cpu-1")))) == ()


def test_a_pod_that_has_ended_makes_room() -> None:
    observation = seen(nodeset(1), pod("cpu-0", state="Failed"), slurm=UNKNOWN)
    assert actions(observation) == (DeletePods((goner("cpu-0"),), ask=False),)


def test_no_pod_is_made_while_the_record_of_its_predecessor_is_there() -> None:
    assert actions(seen(nodeset(1), slurm=slurm(node("cpu-0")))) == (DeleteRecords(("cpu-0",), unless_named=True),)


def test_no_record_is_deleted_while_nobody_knows_whom_waiting_jobs_name() -> None:
    assert actions(seen(nodeset(1), slurm=slurm(node("cpu-0")), named=None)) == ()


def test_a_record_that_a_waiting_job_names_stays_for_the_next_pod() -> None:
    observation = seen(nodeset(1), slurm=slurm(node("cpu-0")), named=frozenset({"cpu-0"}))
    assert actions(observation) == (CreatePods(("cpu-0",)),)


@pytest.mark.parametrize(("membership", "template"), [(CROWDED, "new"), (MEMBER, None)])
def test_no_pod_is_made_if_it_isnt_accepted_or_cant_be_built(membership: Membership, template: str | None) -> None:
    assert actions(seen(nodeset(2), slurm=slurm(), membership=membership, template=template)) == ()


def test_the_record_of_a_node_that_is_ready_is_marked_so_that_slurmctld_saves_it() -> None:
    observation = seen(nodeset(1), pod(), slurm=slurm(node(comment="")))
    assert actions(observation) == (MarkNodes(("cpu-0",), "seltzer ns/cpu"),)


def test_what_is_as_it_should_be_is_left_alone() -> None:
    assert (
        actions(seen(nodeset(2), pod("cpu-0"), pod("cpu-1"), slurm=slurm(node("cpu-0"), node("cpu-1", "MIXED")))) == ()
    )


# --- people ----------------------------------------------------------------------------------------------------------


def test_our_own_drain_is_undone_when_it_is_no_longer_needed() -> None:
    known = slurm(node("cpu-0", "IDLE DRAIN", reason="seltzer: scale-in"), node("cpu-1", "IDLE DRAIN", reason="disk"))
    assert actions(seen(nodeset(2), pod("cpu-0"), pod("cpu-1"), slurm=known)) == (ResumeNodes(("cpu-0",)),)


def test_a_persons_drain_outlives_the_pod() -> None:
    known = slurm(node("cpu-0", "IDLE DRAIN", reason="disk"))
    assert actions(seen(nodeset(1), slurm=known)) == (CreatePods(("cpu-0",)),)


@pytest.mark.parametrize(("membership", "template"), [(CROWDED, "new"), (MEMBER, None)])
def test_also_while_no_pod_can_be_made(membership: Membership, template: str | None) -> None:
    known = slurm(node("cpu-0", "IDLE DRAIN", reason="disk"))
    assert actions(seen(nodeset(1), slurm=known, membership=membership, template=template)) == ()


def test_also_while_another_pod_is_still_going() -> None:
    known = slurm(node("cpu-0", "IDLE DRAIN", reason="disk"), node("cpu-2"))
    assert actions(seen(nodeset(2), pod("cpu-1", deleting=True), pod("cpu-2"), slurm=known)) == ()


def test_the_jobs_of_a_lost_pod_go_back_to_the_queue_and_a_persons_reason_stays() -> None:
    known = slurm(node("cpu-0", "MIXED DRAIN", reason="disk"), node("cpu-1", "MIXED"))
    found = actions(seen(nodeset(0), slurm=known))
    assert found == (DownNodes(("cpu-0",), "disk"), DownNodes(("cpu-1",), "seltzer: its pod is gone"))


# --- whose records they are ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "foreign"),
    [
        ("it belongs to another NodeSet of that name", node("cpu-0", comment="seltzer other/cpu")),
        ("it belongs to another NodeSet", node("cpu-1-0", comment="")),
        ("it is an administrator's", node("cpu-login", comment="")),
        ("it is in slurm.conf", Node("cpu-0", ("IDLE",))),
    ],
)
def test_a_record_is_left_alone_if(why: str, foreign: Node) -> None:
    assert actions(seen(nodeset(0), slurm=slurm(foreign))) == (), why


@pytest.mark.parametrize("membership", [STRANGER, ROBBED])
def test_who_isnt_a_member_removes_only_what_is_marked_as_its_own(membership: Membership) -> None:
    known = slurm(node("cpu-0"), node("cpu-1", "MIXED", comment=""), node("cpu-2", comment="seltzer other/cpu"))
    found = actions(seen(nodeset(deleted=NOW), slurm=known, membership=membership))
    assert found[:1] == (DeleteRecords(("cpu-0",), unless_named=True),)
    assert not any(isinstance(action, DownNodes) for action in found)


def test_no_pod_takes_the_name_of_a_node_that_another_nodeset_has() -> None:
    assert actions(seen(nodeset(1), slurm=slurm(node("cpu-0", "MIXED", comment="seltzer other/cpu")))) == ()


# --- it shrinks and changes ------------------------------------------------------------------------------------------


def test_scaling_in_drains_deletes_and_forgets() -> None:
    first, last = pod("cpu-0"), pod("cpu-1")
    item = nodeset(1)
    drained = node("cpu-1", "IDLE DRAIN", reason="seltzer: scale-in")
    for pods, second, expected in (
        ((first, last), node("cpu-1"), DrainNodes(("cpu-1",), "seltzer: scale-in")),
        ((first, last), drained, DeletePods((goner("cpu-1"),), ask=True)),
        ((first,), drained, DeleteRecords(("cpu-1",), unless_named=True)),
    ):
        assert actions(seen(item, *pods, slurm=slurm(node("cpu-0", "MIXED"), second))) == (expected,)


def test_an_update_drains_first_and_a_paused_one_doesnt() -> None:
    pods, known = (pod("cpu-0", template="old"), pod("cpu-1")), slurm(node("cpu-0"), node("cpu-1"))
    assert actions(seen(nodeset(2), *pods, slurm=known)) == (DrainNodes(("cpu-0",), "seltzer: update"),)
    assert actions(seen(nodeset(2, update=Update(paused=True)), *pods, slurm=known)) == ()


def test_pausing_resumes_what_was_drained_for_the_update() -> None:
    known = slurm(node("cpu-0", "MIXED DRAIN", reason="seltzer: update"))
    observation = seen(nodeset(1, update=Update(paused=True)), pod("cpu-0", template="old"), slurm=known)
    assert actions(observation) == (ResumeNodes(("cpu-0",)),)


def test_who_isnt_accepted_isnt_updated_since_nothing_would_come_back() -> None:
    item = nodeset(3, update=Update(max_unavailable=2))
    pods = (pod("cpu-0", template="old"), pod("cpu-1", template="old", state="waiting"))
    assert actions(seen(item, *pods, slurm=slurm(node("cpu-0")), membership=CROWDED)) == ()


@pytest.mark.parametrize("membership", [STRANGER, ROBBED])
def test_nothing_that_runs_is_touched_if_it_is_no_member_any_more(membership: Membership) -> None:
    observation = seen(nodeset(1), pod("cpu-0", template="old"), pod("cpu-1"), slurm=slurm(), membership=membership)
    assert actions(observation) == ()


@pytest.mark.parametrize("membership", [STRANGER, ROBBED])
def test_pods_of_who_is_no_member_any_more_tell_of_their_jobs_and_of_nobody_elses(membership: Membership) -> None:
    """Who has none can be evicted, and who has some can't."""
    known = slurm(node("cpu-0", "MIXED"), node("cpu-1", "MIXED", comment="seltzer other/cpu"))
    (told,) = decide(seen(nodeset(2), pod("cpu-0"), pod("cpu-1"), slurm=known, membership=membership)).pod_updates
    assert [(patch.name, patch.labels) for patch in told.patches] == [("cpu-0", {BUSY: "true"})]


# --- it goes ---------------------------------------------------------------------------------------------------------


def test_a_deleted_nodeset_drains_all_its_nodes() -> None:
    found = actions(
        seen(nodeset(1, deleted=NOW), pod("cpu-0"), pod("cpu-1"), slurm=slurm(node("cpu-0"), node("cpu-1")))
    )
    assert found == (DrainNodes(("cpu-0", "cpu-1"), "seltzer: deleted"),)


@pytest.mark.parametrize("membership", [MEMBER, CROWDED, STRANGER])
def test_a_deleted_cluster_drains_them_too_also_of_who_isnt_a_member_any_more(membership: Membership) -> None:
    found = actions(seen(nodeset(1), pod("cpu-0"), slurm=slurm(node("cpu-0")), closing=True, membership=membership))
    assert found == (DrainNodes(("cpu-0",), "seltzer: cluster deleted"),)


def test_it_ends_when_no_pod_no_record_and_no_waiting_job_is_left() -> None:
    item = nodeset(deleted=NOW)
    assert actions(seen(item, slurm=slurm())) == (SetFinalizer(False, if_empty="cpu"),)
    assert actions(seen(item, slurm=slurm(), ending_partition="", queued=None)) == (SetFinalizer(False),)
    assert actions(seen(item, slurm=slurm(node("cpu-0")))) == (DeleteRecords(("cpu-0",), unless_named=True),)
    assert actions(seen(item, slurm=slurm(), queued=1)) == ()
    assert actions(seen(item, slurm=slurm(), queued=None)) == ()
    assert actions(seen(item, pod(deleting=True), slurm=slurm())) == ()


def test_it_ends_without_asking_where_slurm_is_gone() -> None:
    item = nodeset(deleted=NOW)
    assert actions(seen(item, pod(), slurm=GONE)) == (DeletePods((goner("cpu-0"),), ask=False),)
    assert actions(seen(item, slurm=GONE)) == (SetFinalizer(False),)


def test_it_waits_where_slurm_cant_be_asked_until_the_time_that_the_user_allowed_is_over() -> None:
    early, late = nodeset(deleted=NOW - 59, drain=KILL), nodeset(deleted=NOW - 60, drain=KILL)
    assert actions(seen(early, pod(), slurm=UNKNOWN)) == ()
    assert actions(seen(early, slurm=UNKNOWN)) == ()
    assert actions(seen(late, pod(), slurm=UNKNOWN)) == (DeletePods((goner("cpu-0"),), ask=False),)
    assert actions(seen(late, slurm=UNKNOWN)) == (SetFinalizer(False),)


def test_that_time_doesnt_excuse_a_record_that_can_be_removed() -> None:
    known = slurm(node("cpu-0", "MIXED"))
    assert actions(seen(nodeset(deleted=NOW - 60, drain=KILL), slurm=known)) == (
        DownNodes(("cpu-0",), "seltzer: its pod is gone"),
    )


@pytest.mark.parametrize(
    ("reason", "observation"),
    [
        (
            "Slurm doesn't know yet whether pods that leave have jobs",
            seen(nodeset(0), pod(since=NOW), slurm=slurm(), machines=KNOWN),
        ),
        (
            "the drain timeout runs",
            seen(nodeset(0, drain=KILL), pod(), slurm=slurm(node(state="MIXED DRAIN")), machines=KNOWN),
        ),
        (
            "a deleted NodeSet without pods waits for jobs in the queue",
            seen(nodeset(deleted=NOW), slurm=slurm(), queued=1),
        ),
        (
            "a deleted NodeSet without pods waits for jobs in the queue",
            seen(nodeset(deleted=NOW, drain=KILL), slurm=UNKNOWN),
        ),
        (
            "which nodes waiting jobs name isn't known yet",
            seen(nodeset(0), slurm=slurm(node()), named=None),
        ),
        ("a ready pod hasn't registered", seen(nodeset(1), pod(), slurm=slurm(), machines=KNOWN)),
        ("a Kubernetes node isn't known yet", seen(nodeset(1), pod(), slurm=slurm(node()))),
        (
            "pods that are missing wait for names of pods that go",
            seen(nodeset(1), pod(deleting=True), slurm=slurm(), machines=KNOWN),
        ),
        (
            "Slurm hasn't answered yet, and may be unreachable",
            seen(nodeset(1), pod(), slurm=UNKNOWN, machines=KNOWN),
        ),
    ],
)
def test_it_is_looked_at_again_since(reason: str, observation: NodeSetObservation) -> None:
    assert [each.reason for each in decide(observation).wakeups] == [reason]


def test_nothing_depends_on_the_time_when_all_is_well() -> None:
    assert not decide(seen(nodeset(1), pod(), slurm=slurm(node()), machines=KNOWN)).wakeups


# --- feeds ---------------------------------------------------------------------------------------------------------


TWO = (pod("cpu-0"), pod("cpu-1"))
BOTH_BUSY = slurm(node("cpu-0", "MIXED"), node("cpu-1", "MIXED"))


def test_which_busy_node_goes_is_decided_when_it_is_known_whose_jobs_end_first() -> None:
    look = seen(nodeset(1), *TWO, slurm=BOTH_BUSY, machines=KNOWN, deadlines_age=60.0, free_at={"cpu-1": NOW + 60})
    found = decide(look)
    assert (found.actions, found.wants.deadlines) == ((), True)
    assert [each.reason for each in found.wakeups] == ["which jobs end first isn't known yet"]
    later = replace(look, deadlines_age=0.1, free_at={"cpu-0": NOW + 30, "cpu-1": NOW + 60})
    assert actions(later) == (DrainNodes(("cpu-0",), "seltzer: scale-in"),)
    assert not decide(later).wants.deadlines
    failed = replace(look, deadlines_age=0.1, free_at={})
    assert actions(failed) == (DrainNodes(("cpu-1",), "seltzer: scale-in"),), "who can't be asked isn't waited for"


@pytest.mark.parametrize(
    ("why", "replicas", "known"),
    [
        ("all go", 0, BOTH_BUSY),
        ("an idle one goes", 1, slurm(node("cpu-0"), node("cpu-1", "MIXED"))),
        ("it was decided", 1, slurm(node("cpu-0"), node("cpu-1", "MIXED DRAIN", reason="seltzer: scale-in"))),
    ],
)
def test_no_deadline_is_waited_for_if(why: str, replicas: int, known: SlurmState) -> None:
    assert not decide(seen(nodeset(replicas), *TWO, slurm=known, machines=KNOWN, deadlines_age=60.0)).wants.deadlines


def test_a_plan_says_which_feeds_it_wants() -> None:
    assert decide(seen(nodeset(1), slurm=slurm(node("cpu-0")))).wants == Wants(named=True)
    assert decide(seen(nodeset(1, deleted=NOW), slurm=slurm())).wants == Wants(partition="cpu")
    assert decide(seen(nodeset(1), pod(), slurm=slurm(node()))).wants == Wants()


# --- what slurmctld forgot, and what never ends ----------------------------------------------------------------------


def started(observation: NodeSetObservation, ago: float, skew: float = 0.0) -> NodeSetObservation:
    return aged(replace(observation, controller_started=NOW - ago + skew), ago)


def test_a_pod_that_a_killed_slurmctld_forgot_is_made_anew() -> None:
    lost = seen(nodeset(1), pod(since=NOW - 100), slurm=slurm())
    assert actions(started(lost, 50)) == (DeletePods((goner("cpu-0"),), ask=True),)
    assert actions(started(lost, 5)) == (), "it may be about to register"
    assert actions(started(lost, 200)) == (), "it didn't register for another reason: another pod would do no better"
    assert actions(lost) == (), "when slurmctld started isn't known"
    assert decide(lost).wakeups


def test_not_even_if_the_clock_of_slurmctlds_machine_is_ahead_is_a_pod_made_again_and_again() -> None:
    lost = seen(nodeset(1), pod(since=NOW - 100), slurm=slurm())
    assert actions(started(lost, 50, skew=3600)) == (DeletePods((goner("cpu-0"),), ask=True),), "and that at once"
    assert actions(started(lost, 7, skew=3600)) == ()
    assert actions(started(lost, 200, skew=3600)) == (), "it came after slurmctld, which didn't take it"


def test_a_pod_that_slurm_knows_is_not() -> None:
    assert actions(started(seen(nodeset(1), pod(since=NOW - 100), slurm=slurm(node())), 50)) == ()
    assert actions(started(seen(nodeset(1), pod(since=NOW - 100), slurm=UNKNOWN), 50)) == ()


def test_a_pod_that_never_ends_is_not_waited_for() -> None:
    """Its Kubernetes node is dead. Its name stays taken, so another one comes."""
    observation = seen(nodeset(1), pod(deleting=True), slurm=slurm())
    assert actions(observation) == ()
    assert actions(replace(observation, now=NOW + 61)) == (CreatePods(("cpu-1",)),)


def test_a_persons_comment_stays() -> None:
    assert actions(seen(nodeset(1), pod(), slurm=slurm(node(comment="Ann's favourite")))) == ()
    marked = MarkNodes(("cpu-0",), "seltzer ns/cpu")
    assert actions(seen(nodeset(1), pod(), slurm=slurm(node(comment="")))) == (marked,)


def test_while_a_crowd_leaves_records_wait_and_go_together() -> None:
    def decided(leaving: int, **more: Any) -> tuple[Action, ...]:
        crowd = [pod(f"cpu-{number}", deleting=True, **more) for number in range(1, leaving + 1)]
        return actions(seen(nodeset(0), *crowd, slurm=slurm(node("cpu-0", "IDLE DRAIN", reason="seltzer: scale-in"))))

    assert decided(node_records.CROWD) == (DeleteRecords(("cpu-0",), unless_named=True),)
    assert decided(node_records.CROWD + 1) == ()
    assert decided(node_records.CROWD + 1, deleted=NOW - 1000) == (DeleteRecords(("cpu-0",), unless_named=True),), (
        "those are stuck"
    )
