"""The status and the Events of a NodeSet."""

from __future__ import annotations

import msgspec
import pytest
from tests.builders.objects import NOW, nodeset, pod, time_at
from tests.builders.plan import GONE, UNKNOWN, seen, slurm
from tests.builders.slurm import node

from seltzer.api.common import Condition
from seltzer.api.core import ObjectCondition
from seltzer.api.nodeset import Drain, NodeSetStatus, Update
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DrainNodes,
    KillJobs,
    MarkNodes,
    PlannedEvent,
    PodRef,
    ResumeNodes,
    SetAddress,
)
from seltzer.plan.nodeset.membership import Membership
from seltzer.plan.nodeset.nodeset_plan import decide
from seltzer.plan.nodeset.nodeset_status import events, status
from seltzer.plan.nodeset.observation import NodeSetObservation

LATER = time_at(NOW)
CROWDED = Membership(True, False, "TooManyNodes", "set fewer replicas")
BUSY = slurm(node("cpu-0"), node("cpu-1", "MIXED DRAIN", reason="seltzer: scale-in"))
PODS = (pod("cpu-0"), pod("cpu-1"))


def told(observation: NodeSetObservation, *failures: str) -> NodeSetStatus:
    return status(observation, decide(observation), failures, LATER)


def condition(of: NodeSetStatus, type_: str) -> Condition:
    return next(each for each in of.conditions if each.type == type_)


def test_a_pod_whose_volume_can_not_be_mounted_is_named_with_what_to_ask() -> None:
    waits = pod(state="waiting")
    unready = ObjectCondition(type="PodReadyToStartContainers", status="False")
    waits = msgspec.structs.replace(waits, status=msgspec.structs.replace(waits.status, conditions=(unready,)))
    for records in (slurm(), slurm(node("cpu-0", "DOWN"))):
        found = condition(told(seen(nodeset(1), waits, slurm=records)), "Ready")
        assert found.reason == "Starting"
        assert "cpu-0 waits for its volumes or its network" in found.message
        assert "'kubectl describe pod cpu-0' says why" in found.message
        assert "has not registered" not in found.message


def timeout(policy: str) -> Drain:
    return Drain(timeout="30s", on_timeout=policy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observation", "expected", "reason", "words"),
    [
        (seen(nodeset(2), slurm=slurm()), "False", "Starting", "0 of 2 nodes take jobs"),
        (seen(nodeset(1), pod(state="waiting"), slurm=slurm()), "False", "Starting", "cpu-0 has not registered"),
        (seen(nodeset(1), pod(), slurm=slurm()), "False", "NotAvailable", "cpu-0 has not registered"),
        (seen(nodeset(1), pod(), slurm=slurm(node())), "True", "AllAvailable", "the node takes jobs"),
        (seen(nodeset(0), slurm=slurm()), "True", "AllAvailable", "no nodes are wanted"),
        (
            seen(nodeset(1), pod(state="ErrImagePull", words="not found"), slurm=slurm()),
            "False",
            "ErrImagePull",
            "pod cpu-0: not found; check the image's name",
        ),
        (
            seen(nodeset(1), pod(state="Unschedulable", words="0/1 nodes"), slurm=slurm()),
            "False",
            "Unschedulable",
            "0/1",
        ),
        (seen(nodeset(1), pod(), slurm=UNKNOWN), "Unknown", "SlurmUnreachable", "nothing is changed"),
        (seen(nodeset(1), pod(), slurm=GONE), "False", "ClusterStarting", "slurmctld has not started"),
        (seen(nodeset(1), template=None, refusal="no slurmd"), "False", "TemplateRefused", "no slurmd"),
        (seen(nodeset(1), membership=CROWDED), "False", "TooManyNodes", "set fewer replicas"),
        (
            seen(nodeset(1), pod(), slurm=slurm(node(state="IDLE DRAIN", reason="disk"))),
            "False",
            "NotAvailable",
            "cpu-0 is drained in Slurm (disk): resume it with 'seltzer resume'",
        ),
        (seen(nodeset(1), pod(), slurm=slurm(node(partitions=()))), "False", "NotAvailable", "waits for partition cpu"),
        (
            seen(nodeset(1), pod(template="old"), slurm=slurm(node(state="IDLE DRAIN", reason="seltzer: update"))),
            "False",
            "Updating",
            "0 of 1",
        ),
        (seen(nodeset(1), *PODS, slurm=BUSY), "True", "AllAvailable", "waiting for the jobs on cpu-1 to end"),
        (
            seen(nodeset(1, drain=timeout("wait")), *PODS, slurm=BUSY),
            "True",
            "AllAvailable",
            "jobs on cpu-1 take longer than drain.timeout=30s; they are waited for",
        ),
        (
            seen(nodeset(1, drain=timeout("kill")), *PODS, slurm=BUSY),
            "True",
            "AllAvailable",
            "waiting for the jobs on cpu-1",
        ),
        (seen(nodeset(1, drain=timeout("requeue")), *PODS, slurm=BUSY), "True", "AllAvailable", "waiting for the jobs"),
        (seen(nodeset(deleted=NOW), pod(), slurm=slurm(node())), "False", "Deleting", "cpu-0 is going"),
        (seen(nodeset(deleted=NOW), pod(), slurm=GONE), "False", "Deleting", "cpu-0 is going"),
        (
            seen(nodeset(deleted=NOW), pod(), slurm=UNKNOWN),
            "False",
            "Deleting",
            "set drain: {timeout: 1s, onTimeout: kill}",
        ),
        (seen(nodeset(deleted=NOW), slurm=slurm(), queued=3), "False", "Deleting", "3 jobs wait in partition cpu"),
        (
            seen(nodeset(deleted=NOW), slurm=slurm(node()), named=frozenset({"cpu-0"})),
            "False",
            "Deleting",
            "jobs in the queue ask for cpu-0 by name",
        ),
        (seen(nodeset(1), pod(), slurm=slurm(node()), closing=True), "False", "Deleting", "cpu-0 is going"),
    ],
)
def test_ready_tells_what_it_waits_for(observation: NodeSetObservation, expected: str, reason: str, words: str) -> None:
    ready = condition(told(observation), "Ready")
    assert (ready.status, ready.reason) == (expected, reason)
    assert words in ready.message


def test_who_refused_something_is_quoted() -> None:
    ready = condition(told(seen(nodeset(1), slurm=slurm()), "exceeded quota: pods=2"), "Ready")
    assert (ready.status, ready.reason, ready.message) == ("False", "Refused", "exceeded quota: pods=2")


@pytest.mark.parametrize(
    ("observation", "expected", "reason", "words"),
    [
        (seen(nodeset(1), pod(), slurm=slurm(node())), "True", "UpToDate", ""),
        (seen(nodeset(1), pod(template="old"), slurm=slurm(node())), "False", "RollingOut", "1 of 1 pods are still"),
        (seen(nodeset(1, update=Update(paused=True)), pod(template="old")), "False", "Paused", "update.paused is true"),
        (
            seen(
                nodeset(2), pod("cpu-0", state="ErrImagePull"), pod("cpu-1", template="old"), slurm=slurm(node("cpu-1"))
            ),
            "False",
            "Stuck",
            "1 of 2 pods are still to be replaced; stopped, since pod cpu-0",
        ),
        (
            seen(nodeset(1), pod(template="old"), slurm=slurm(node(state="IDLE DRAIN", reason="disk"))),
            "False",
            "Held",
            "cpu-0 is drained in Slurm by somebody else",
        ),
        (seen(nodeset(1), template=None, refusal="no slurmd"), "False", "TemplateRefused", "no slurmd"),
    ],
)
def test_updated_tells_how_far_it_is(observation: NodeSetObservation, expected: str, reason: str, words: str) -> None:
    updated = condition(told(observation), "Updated")
    assert (updated.status, updated.reason) == (expected, reason)
    assert words in updated.message


def test_accepted_tells_the_verdict() -> None:
    accepted = condition(told(seen(nodeset(1), membership=CROWDED)), "Accepted")
    assert (accepted.status, accepted.reason) == ("False", "TooManyNodes")


def test_the_numbers_are_those_of_pods_and_records() -> None:
    found = told(
        seen(nodeset(2), *PODS, pod("cpu-2", deleting=True), slurm=slurm(node("cpu-0"), node("cpu-1", "DOWN")))
    )
    assert (found.replicas, found.ready_replicas, found.updated_replicas) == (2, 1, 2)
    assert (found.nodes.total, found.nodes.idle, found.nodes.down) == (2, 1, 1)
    assert (found.observed_generation, found.selector) == (7, "seltzer.dev/nodeset=cpu")


def test_a_condition_keeps_the_time_since_when_it_is_so() -> None:
    before = told(seen(nodeset(1), pod(), slurm=slurm(node())))
    item = nodeset(1, status=before)
    for known, since in ((slurm(node(state="MIXED")), LATER), (slurm(node(state="DOWN")), "later")):
        observation = seen(item, pod(), slurm=known)
        after = status(observation, decide(observation), (), "later")
        assert condition(after, "Ready").last_transition_time == since


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (CreatePods(("cpu-0", "cpu-1")), PlannedEvent("Normal", "Created", "created cpu-[0-1]")),
        (
            DrainNodes(("cpu-0",), "seltzer: update"),
            PlannedEvent("Normal", "Draining", "drained cpu-0 (seltzer: update): no new jobs"),
        ),
        (
            DeleteRecords(("cpu-0", "cpu-1")),
            PlannedEvent("Normal", "Unregistered", "Slurm has no cpu-[0-1] any more: no pod is left of it"),
        ),
        (
            SetAddress(("cpu-0",), "10.0.0.5"),
            PlannedEvent("Normal", "Readdressed", "told Slurm that cpu-0 is at 10.0.0.5 now"),
        ),
        (
            DeletePods((PodRef("cpu-0", "1"), PodRef("cpu-1", "2")), ask=True, why="fewer are wanted"),
            PlannedEvent("Normal", "Removed", "removed cpu-[0-1]: fewer are wanted"),
        ),
        (KillJobs(("cpu-0",)), PlannedEvent("Warning", "Killed", "ended the jobs on cpu-0, which took too long")),
    ],
)
def test_what_was_done_is_reported(action: Action, expected: PlannedEvent) -> None:
    assert events(nodeset(), NodeSetStatus(), [action]) == [expected]


def test_one_call_that_resumes_for_several_reasons_is_reported_for_each() -> None:
    why = {"cpu-0": "its pod is ready", "cpu-1": "the outage is over", "cpu-2": "its pod is ready", "cpu-3": "x"}
    told = events(nodeset(), NodeSetStatus(), [ResumeNodes(("cpu-0", "cpu-1", "cpu-2"), why)])
    assert [(each.reason, each.message) for each in told] == [
        ("Resumed", "resumed cpu-[0,2]: its pod is ready"),
        ("Resumed", "resumed cpu-1: the outage is over"),
    ]


def test_nobody_wants_to_hear_of_marks() -> None:
    assert events(nodeset(), NodeSetStatus(), [MarkNodes(("cpu-0",), "x")]) == []


def test_a_change_for_worse_or_better_is_reported_once() -> None:
    good, bad = seen(nodeset(1), pod(), slurm=slurm(node())), seen(nodeset(1), pod(state="ErrImagePull"), slurm=slurm())
    worse = events(nodeset(status=told(good)), told(bad), ())
    assert [(each.kind, each.reason) for each in worse] == [("Warning", "ErrImagePull")]
    assert events(nodeset(status=told(bad)), told(bad), ()) == []
    assert [(each.kind, each.reason) for each in events(nodeset(status=told(bad)), told(good), ())] == [
        ("Normal", "Ready")
    ]


def test_a_volume_that_is_on_its_way_is_in_the_condition_and_worth_no_warning() -> None:
    waits = pod(state="Unschedulable", words="pod has unbound immediate PersistentVolumeClaims")
    status = told(seen(nodeset(1), waits, slurm=slurm()))
    assert status.conditions[0].reason == "VolumePending"
    assert events(nodeset(), status, ()) == []


def test_what_happens_to_thousands_of_machines_at_once_is_reported_for_some() -> None:
    names = tuple(f"cpu-{number}" for number in range(3000))
    resumed = ResumeNodes(names, {name: f"Kubernetes node of {name} is ready again" for name in names})
    drained = [DrainNodes((name,), f"seltzer: Kubernetes node of {name} is cordoned") for name in names[:20]]
    told = events(nodeset(), nodeset().status, [resumed, *drained])
    assert [each.reason for each in told] == ["Resumed"] * 21 + ["Draining"] * 20
    assert told[0].message == "resumed cpu-0: Kubernetes node of cpu-0 is ready again"
    assert told[20].message == "and 2980 more like these"


def test_a_node_with_fewer_gpus_than_promised_is_named_with_slurms_reason() -> None:
    """It can't be resumed: slurmctld refuses that."""
    why = "gres/gpu count reported lower than configured (1 < 2)"
    records = slurm(node("cpu-0", "IDLE DRAIN INVALID_REG", reason=why, reason_set_by_user="root"), node("cpu-1"))
    ready = condition(told(seen(nodeset(2), *PODS, slurm=records)), "Ready")
    assert (ready.status, ready.reason) == ("False", "NotAvailable")
    assert f"Slurm refuses cpu-0 ({why})" in ready.message and "kubectl logs cpu-0" in ready.message
    assert "seltzer resume" not in ready.message


def test_gpus_are_counted_in_total_and_in_use() -> None:
    records = slurm(
        node("cpu-0", "MIXED", gres="gpu:h200:4", gres_used="gpu:h200:3(IDX:0-2)"),
        node("cpu-1", gres="gpu:h200:4", gres_used="gpu:h200:0(IDX:N/A)"),
    )
    found = told(seen(nodeset(2), *PODS, slurm=records))
    assert (found.gpus.total, found.gpus.used) == (8, 3)
    assert told(seen(nodeset(2), *PODS, slurm=UNKNOWN)).gpus.total == 0
