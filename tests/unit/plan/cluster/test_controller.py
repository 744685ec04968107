"""Who is in charge, who stands by, whether the state is safe; and that each thing that happens is reported once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest
from msgspec import UNSET
from tests.builders import objects
from tests.builders import plan as plan_builders
from tests.builders.objects import NOW, time_at
from tests.fakes.plan_model.cluster_world import OLD, OLD_NODE, machine, old_pod
from tests.unit.plan.cluster.test_cluster_plan import cluster, condition, replace_status, seen, told

from seltzer.api.common import PodTemplate
from seltzer.api.core import (
    Deployment,
    DeploymentStatus,
    Lease,
    ObjectCondition,
    ObjectMeta,
    Pod,
)
from seltzer.api.labels import CONFIG, CRASH, EPOCH, HOLD, NEWS, RECOVERED, RESTARTS, VOLUME
from seltzer.api.slurmcluster import Controller, SlurmCluster, SlurmClusterSpec
from seltzer.plan.actions import Hold, PlannedEvent, RemoveStuckPod
from seltzer.plan.cluster import cluster_status
from seltzer.plan.cluster.cluster_plan import CONTROLLER, ClusterObservation, decide, wakeups
from seltzer.plan.cluster.cluster_status import announcements
from seltzer.plan.cluster.guard_report import GuardReport

GIB = 2**30
CRASHED = {
    "time": "2026-11-16T03:00:00Z",
    "how": "was ended by SIGSEGV",
    "lines": ["error: this", "fatal: that"],
    "backtrace": ["#0 a ()", "#1 b ()", "#2 c ()", "#3 d ()"],
    "core": "/run/cores/core.7",
}
WELL: dict[str, Any] = {"phase": "running", "epoch": "3", "restarts": "2", "slurm_version": "26.05.5", "config": "d1"}


def lease(holder: str = "c-a", transitions: int = 0, acquired: str = "then", **said: str) -> Lease:
    """`said` are annotations by the last word of their names; what isn't said is that all is well."""
    times = {"acquired": acquired, "renewed": time_at(NOW - 1)}
    found: dict[str, Any] = {**WELL, "volume": room(), **times, **said}
    return objects.lease(holder, transitions=transitions, seconds=5, **found)


def room(free: int = 3 * GIB, low: bool = False, **more: int) -> str:
    return json.dumps({"free": free, "size": 4 * GIB, "low": low, **more})


def pod(name: str, node: str = "n1", state: str = "ready", words: str = "") -> Pod:
    return objects.pod(name, machine=node, state=state, words=words, annotations={CONFIG: "d1"})


def wanting(**controller: Any) -> SlurmCluster:
    return cluster(spec=SlurmClusterSpec(controller=Controller(**controller)))


ALIVE = {name: machine("True", name) for name in ("n1", "n2")}


def looking(item: SlurmCluster | None = None, *pods: Pod, **more: Any) -> ClusterObservation:
    """A cluster whose slurmctld runs in c-a on n1, unless it is said."""
    base: dict[str, Any] = {"lease": lease(), "nodes": ALIVE, "now": NOW}
    return seen(item, **{**base, "pods": {CONTROLLER: pods or (pod("c-a"),)}, **more})


# --- conditions ------------------------------------------------------------------------------------------------------


QUOTA = ObjectCondition(type="ReplicaFailure", status="True", reason="FailedCreate", message="exceeded quota")


@pytest.mark.parametrize(
    ("type_", "observation", "expected", "reason", "words"),
    [
        ("ControllerReady", looking(), "True", "Running", "slurmctld 26.05.5 answers"),
        (
            "ControllerReady",
            looking(wanting(standby=2), pod("c-a"), pod("c-b", "n2")),
            "True",
            "Running",
            "answers; 1 of 2 standbys are ready",
        ),
        ("ControllerReady", looking(lease=lease(phase="held")), "False", "Held", "'seltzer debug demo'"),
        ("ControllerReady", looking(lease=lease(phase="crashed", message="x")), "False", "Crashed", "slurmctld: x"),
        ("ControllerReady", looking(lease=lease(phase="blocked")), "False", "Blocked", "no reason given"),
        ("ControllerReady", looking(lease=lease(phase="starting")), "False", "Starting", "is starting"),
        ("ControllerReady", looking(lease=lease(holder="")), "False", "Starting", "is starting"),
        ("ControllerReady", looking(lease=lease(holder="", phase="held")), "False", "Starting", "is starting"),
        (
            "ControllerReady",
            looking(lease=lease(holder="c-b")),
            "False",
            "Starting",
            "is starting",
        ),
        ("ControllerReady", looking(None, pod("c-a", state="unready")), "False", "Starting", "is starting"),
        (
            "ControllerReady",
            looking(None, pod("c-a", state="unready"), nodes={"n1": machine("Unknown", "n1")}),
            "False",
            "NodeLost",
            "c-a on n1, which isn't ready; another pod takes over",
        ),
        (
            "ControllerReady",
            looking(None, pod("c-a", state="unready"), pod("c-b", "n2"), nodes={"n2": ALIVE["n2"]}),
            "False",
            "NodeLost",
            "c-b takes over",
        ),
        (
            "StandbyReady",
            looking(wanting(standby=1), pod("c-a"), pod("c-b", "n2")),
            "True",
            "StandingBy",
            "c-b on n2",
        ),
        ("StandbyReady", looking(wanting(standby=1)), "False", "Starting", "0 of 1 standbys are ready"),
        (
            "StandbyReady",
            looking(wanting(standby=1), pod("c-b", "", "Unschedulable", "no node"), lease=lease(holder="")),
            "False",
            "Starting",
            "0 of 1 standbys are ready",
        ),
        (
            "StandbyReady",
            looking(wanting(standby=2), pod("c-a"), pod("c-b"), pod("c-c", "", "Unschedulable", "no node")),
            "False",
            "Unschedulable",
            "1 of 2 standbys are ready: pod c-c: no node; add Kubernetes nodes",
        ),
        (
            "StandbyReady",
            looking(
                wanting(standby=1),
                deployments={
                    CONTROLLER: Deployment(metadata=ObjectMeta(), status=DeploymentStatus(conditions=(QUOTA,)))
                },
            ),
            "False",
            "FailedCreate",
            "exceeded quota",
        ),
        ("StateSafe", looking(), "True", "EnoughSpace", "3.0 GiB of 4.0 GiB are free"),
        ("StateSafe", looking(lease=lease(volume=room(40 * 2**20, low=True))), "False", "LowSpace", "only 40 MiB of 4"),
        ("StateSafe", looking(lease=lease(volume=room(low=True, files=300))), "False", "LowSpace", "300 more files"),
        ("StateSafe", looking(lease=lease(phase="blocked", message="two epochs")), "False", "Blocked", "two epochs"),
        ("StateSafe", looking(lease=lease(volume="nonsense")), "Unknown", "Starting", "hasn't been looked at"),
        ("StateSafe", seen(), "Unknown", "Starting", "hasn't been looked at"),
        (
            "NamesReady",
            looking(lease=lease(names="no answer")),
            "False",
            "DNSDown",
            "Slurm's commands and new steps wait or fail",
        ),
    ],
)
def test_conditions(type_: str, observation: ClusterObservation, expected: str, reason: str, words: str) -> None:
    found = condition(told(observation), type_)
    assert (found.status, found.reason) == (expected, reason)
    assert words in found.message


def test_without_a_wanted_standby_nothing_is_said_of_one() -> None:
    assert not [each for each in told(looking()).conditions if each.type == "StandbyReady"]


def test_names_have_a_condition_once_dns_was_down() -> None:
    down = looking(lease=lease(names="no answer"))
    assert condition(told(down), "ControllerReady") == condition(told(looking()), "ControllerReady")
    after = looking()
    assert not [each for each in told(after).conditions if each.type == "NamesReady"]
    after = replace(after, cluster=replace_status(after.cluster, told(down)))
    assert condition(told(after), "NamesReady").status == "True"


def test_a_low_volume_takes_nobodys_readiness_away() -> None:
    low, well = looking(lease=lease(volume=room(1, low=True))), looking()
    assert condition(told(low), "ControllerReady") == condition(told(well), "ControllerReady")


# --- the status ------------------------------------------------------------------------------------------------------


def test_the_status_tells_who_is_in_charge_and_who_stands_by() -> None:
    found = told(looking(wanting(standby=2), pod("c-b", "n2"), pod("c-a"), pod("c-c", state="unready"))).controller
    assert found
    assert (found.pod, found.node, found.phase, found.epoch, found.restarts) == ("c-a", "n1", "running", 3, 2)
    assert [(each.pod, each.node) for each in found.standbys] == [("c-b", "n2")]


def test_who_was_in_charge_is_known_until_somebody_else_is() -> None:
    settled = replace_status(cluster(), told(looking()))
    nobody = told(looking(settled, pod("c-b", "n2"), lease=lease(holder=""))).controller
    assert nobody and (nobody.pod, nobody.node, nobody.phase, nobody.standbys) == ("c-a", "n1", "", ())
    gone = told(looking(settled, pod("c-b", "n2"))).controller
    assert gone and (gone.pod, gone.node) == ("c-a", "n1"), "its pod is gone, and its Lease isn't"
    other = told(looking(settled, pod("c-b", "n2"), lease=lease("c-b"))).controller
    assert other and (other.pod, other.node) == ("c-b", "n2")


def test_a_new_guard_that_knows_nothing_takes_nothing_away() -> None:
    before = told(looking(lease=lease(crash=json.dumps(CRASHED), recovered=recovered("1", held="2"))))
    silent = objects.lease("c-a", **WELL)
    after = told(looking(replace_status(cluster(), before), lease=silent))
    assert (after.crash, after.recovered, after.volume) == (before.crash, before.recovered, before.volume)
    assert before.crash and before.crash.backtrace == "#0 a ()\n#1 b ()\n#2 c ()\n#3 d ()"


@pytest.mark.parametrize(
    "said",
    ["", "{", "[]", "null", '{"time": 7}', '{"free": "x", "size": 1}', '{"free": 1}', '{"jobs": {}}', '"x"', "\ud800"],
)
def test_malformed_annotations_are_ignored(said: str) -> None:
    annotations = dict.fromkeys((CRASH, RECOVERED, VOLUME, EPOCH, RESTARTS, HOLD, NEWS), said)
    found = GuardReport(Lease(metadata=ObjectMeta(annotations=annotations)))
    assert (found.crash, found.recovered, found.volume, found.events) == (UNSET, UNSET, UNSET, ())
    assert (found.epoch, found.restarts, found.hold, found.holder, found.phase) == (0, 0, False, "", "")


def said(**annotations: dict[str, Any]) -> GuardReport:
    texts = {f"seltzer.dev/{name}": json.dumps(value) for name, value in annotations.items()}
    return GuardReport(Lease(metadata=ObjectMeta(annotations=texts)))


def test_what_is_reported_is_bounded() -> None:
    groups = [{"outcome": "held", "why": "w" * 9999, "jobs": str(each), "count": 2} for each in range(1000)]
    found = said(
        recovered={"time": "t", "groups": groups, "more": 5},
        crash={**CRASHED, "lines": ["l" * 9999] * 99, "backtrace": ["b" * 9999] * 99},
    )
    assert found.recovered and found.crash
    assert (len(found.recovered.groups), found.recovered.more) == (512, 5 + 2 * (1000 - 512))
    assert len(found.recovered.groups[0].why) == 300
    assert len(found.crash.lines) < 10_000 and len(found.crash.backtrace) < 10_000


def test_no_list_has_a_key_twice_which_the_api_server_would_refuse() -> None:
    twice = [{"outcome": each, "why": "so", "jobs": "7", "count": 1} for each in ("held", "kept")]
    found = said(recovered={"time": "t2", "groups": twice, "earlier": [{"time": each} for each in ("t1", "t2", "t1")]})
    assert found.recovered and [each.time for each in found.recovered.earlier] == ["t1"]
    assert [group.outcome for group in found.recovered.groups] == ["kept"]


# --- what happened ---------------------------------------------------------------------------------------------------


def recovered(*put_back: str, held: str = "", time: str = "t1", **others: str) -> str:
    ids = {"put-back": ",".join(put_back), "held": held, **others}
    groups = [
        {"outcome": outcome, "why": "so", "jobs": each, "count": each.count(",") + 1, "users": "1000"}
        for outcome, each in ids.items()
        if each
    ]
    return json.dumps({"time": time, "epoch": 4, "groups": groups, "more": 0, "earlier": []})


def after(*recoveries: str) -> str:
    """The newest, and those before it."""
    newest, *earlier = map(json.loads, recoveries)
    return json.dumps({**newest, "earlier": earlier})


def news(*times: str) -> str:
    return json.dumps([{"time": each, "reason": "PartitionsSet", "message": f"at {each}"} for each in times])


def events(before: ClusterObservation, after: ClusterObservation) -> list[PlannedEvent]:
    """What is told when one follows the other, and that it is told once, also by another operator."""
    known = replace_status(before.cluster, told(before))
    now = replace(after, cluster=SlurmCluster(metadata=known.metadata, spec=after.cluster.spec, status=known.status))
    status = told(now)
    found = cluster_status.events(now.cluster, status, now, decide(now))
    again = replace(now, cluster=replace_status(now.cluster, status))
    assert cluster_status.events(again.cluster, told(again), again, decide(again)) == [], "it is told twice"
    return found


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (looking(), looking(), []),
        (looking(), looking(lease=lease(volume=room(1, low=True))), [("Warning", "LowSpace", "only 1 B of 4.0 GiB")]),
        (
            looking(lease=lease(volume=room(1, low=True))),
            looking(),
            [("Normal", "EnoughSpace", "3.0 GiB of 4.0 GiB are free")],
        ),
        (looking(), looking(lease=lease(volume=room(2 * GIB))), []),
        (looking(), looking(lease=lease(names="no answer")), [("Warning", "DNSDown", "in slurmctld's pod, no answer")]),
        (
            looking(),
            looking(lease=lease(crash=json.dumps(CRASHED))),
            [
                (
                    "Warning",
                    "Crashed",
                    "slurmctld was ended by SIGSEGV; its last words: fatal: that; in #0 a () < #1 b () < #2 c (); its "
                    "core is /run/cores/core.7",
                )
            ],
        ),
        (
            looking(),
            looking(lease=lease(phase="crashed", message="gone", crash=json.dumps(CRASHED))),
            [("Warning", "Crashed", "slurmctld was ended by SIGSEGV")],
        ),
        (
            looking(lease=lease(crash=json.dumps({**CRASHED, "backtrace": []}))),
            looking(lease=lease(crash=json.dumps({**CRASHED, "backtrace": ["#0 in ?? ()", "#1 in job_free ()"]}))),
            [("Warning", "Backtrace", "slurmctld, which was ended by SIGSEGV, was in #1 in job_free ()")],
        ),
        (
            looking(lease=lease(crash=json.dumps({**CRASHED, "time": "earlier"}))),
            looking(lease=lease(crash=json.dumps(CRASHED))),
            [("Warning", "Crashed", "slurmctld was ended by SIGSEGV")],
        ),
        (looking(), looking(lease=lease(phase="blocked", message="no")), [("Warning", "Blocked", "slurmctld: no")]),
        (
            looking(None, pod("c-a"), pod("c-b", "n2")),
            looking(None, pod("c-b", "n2"), lease=lease("c-b", 1, "now")),
            [("Normal", "FailedOver", "c-b on n2 has taken over as the controller from c-a on n1")],
        ),
        (looking(), looking(lease=lease(phase="held")), [("Normal", "Held", "slurmctld is held")]),
        (looking(lease=lease(phase="held")), looking(), [("Normal", "Released", "no longer held")]),
        (
            looking(),
            looking(lease=lease(recovered=recovered("7", "9", held="8", ran="6"))),
            [
                ("Normal", "JobsPutBack", "jobs 7, 9 (so): back in the queue under their IDs"),
                ("Warning", "JobsHeld", "job 8 (so): in the queue and held"),
                ("Normal", "JobsRan", "job 6 (so): had ended"),
            ],
        ),
        (
            looking(lease=lease(recovered=recovered(held="8"))),
            looking(lease=lease(recovered=after(recovered(held="9", time="t2"), recovered(held="8")))),
            [
                (
                    "Warning",
                    "JobsHeld",
                    "job 9 (so): in the queue and held, for a person to decide; 'seltzer status demo'",
                )
            ],
        ),
        (
            looking(),
            looking(lease=lease(recovered=after(recovered(held="9", time="t2"), recovered(held="8")))),
            [("Warning", "JobsHeld", "job 8 (so)"), ("Warning", "JobsHeld", "job 9 (so)")],
        ),
        (
            looking(lease=lease(recovered=recovered(ran="7"))),
            looking(lease=lease(recovered=recovered(ran="7"))),
            [],
        ),
        (
            looking(),
            looking(lease=lease(recovered=recovered(**{"{new}": "7"}))),
            [("Warning", "JobsRecovered", "job 7 (so): {new}")],
        ),
        (
            looking(lease=lease(recovered=recovered("7"))),
            looking(lease=lease(recovered=recovered("7", time="t2"))),
            [("Normal", "JobsPutBack", "job 7 (so): back")],
        ),
        (looking(), looking(lease=lease(news=news("t1"))), [("Normal", "PartitionsSet", "at t1")]),
        (looking(lease=lease(news=news("t1"))), looking(lease=lease(news=news("t1"))), []),
        (
            looking(lease=lease(news=news("t1", "t2"))),
            looking(lease=lease(news=news("t2", "t3", "t4"))),
            [("Normal", "PartitionsSet", "at t3"), ("Normal", "PartitionsSet", "at t4")],
        ),
        # Another guard, whose clock is behind.
        (
            looking(lease=lease(news=news("t5"))),
            looking(lease=lease(news=news("t1"))),
            [("Normal", "PartitionsSet", "at t1")],
        ),
        (looking(lease=lease(news=news("t1"))), looking(), []),
        (
            looking(None, pod("c-a"), pod("c-b", "n2")),
            looking(None, pod("c-a", state="unready"), nodes={}),
            [("Warning", "NodeLost", "c-a on n1")],
        ),
    ],
)
def test_what_happens_is_reported_once(
    before: ClusterObservation, after: ClusterObservation, expected: list[tuple[str, str, str]]
) -> None:
    found = events(before, after)
    assert [(each.kind, each.reason) for each in found] == [(kind, reason) for kind, reason, _ in expected]
    for each, (_, _, words) in zip(found, expected, strict=True):
        assert words in each.message


def test_jobs_for_which_the_lease_had_no_room_are_counted_once() -> None:
    said = json.loads(recovered("7", held="8")) | {"more": 140}
    told = events(looking(), looking(lease=lease(recovered=json.dumps(said))))
    (more,) = (each.message for each in told if "140" in each.message)
    assert more.startswith("140 more jobs were found again; /run/slurmctld-state/seltzer.recoveries in ")


def test_the_from_of_a_failover_is_known_though_nobody_held_the_lease_in_between() -> None:
    first = replace_status(cluster(), told(looking()))
    nobody = looking(first, pod("c-b", "n2"), lease=lease(holder=""))
    second = replace_status(cluster(), told(nobody))
    after = looking(second, pod("c-b", "n2"), lease=lease("c-b", 1, "now"))
    found = cluster_status.events(second, told(after), after, decide(after))
    assert "c-b on n2 has taken over as the controller from c-a on n1" in [each.message for each in found]


# --- hold, and pods that can't end -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "said", "expected"),
    [
        (True, "", (Hold("ns", "demo-slurmctld", True),)),
        (True, "true", ()),
        (False, "true", (Hold("ns", "demo-slurmctld", False),)),
        (False, "", ()),
        (False, "no", ()),
    ],
)
def test_the_lease_says_what_the_spec_says(wanted: bool, said: str, expected: tuple[Hold, ...]) -> None:
    observation = looking(wanting(hold=wanted), lease=lease(hold=said))
    assert decide(observation).actions == expected
    assert decide(replace(observation, lease=None)).actions == ()


@pytest.mark.parametrize(
    ("why", "left", "node", "holder", "silence", "expected"),
    [
        ("its node is well, and ends it", -30, "True", OLD, 60, None),
        ("its kubelet speaks, and may be ending it", 30, "False", OLD, 60, None),
        ("its guard speaks, and may be saving", 30, "Unknown", OLD, 1, None),
        ("nobody has taken over, and it has time", 30, "Unknown", "", 60, None),
        ("its time is over", -30, "Unknown", OLD, 1, "not heard of"),
        ("its time is over, whatever its kubelet says", -30, "False", OLD, 1, "not ready"),
        ("its node is gone, and its time is over", -30, "", OLD, 1, "gone"),
        ("neither its node nor its guard is heard of", 30, "Unknown", OLD, 60, "not heard of"),
        ("its node is gone, and its guard is silent", 30, "", OLD, 60, "gone"),
        ("another has taken over", 30, "Unknown", "c-b", 1, "not heard of"),
    ],
)
def test_a_pod_that_should_go_is_removed_only_if(
    why: str, left: float, node: str, holder: str, silence: float, expected: str | None
) -> None:
    observation = on_a_node_that_is(node, holder, silence, NOW + left)
    (found,) = removed(observation) or (None,)
    assert found == (RemoveStuckPod("ns", OLD, f"uid-{OLD}", OLD_NODE, expected, ANY) if expected else None), why
    assert bool(wakeups(observation)) == (node != "True"), "else nobody would look again"
    if found:
        proof = None if left < 0 or holder == "c-b" else observation.lease
        assert found.silent == proof, "a silence is proven by the Lease"


@pytest.mark.parametrize(
    ("why", "node", "holder", "silence", "expected", "looks_again"),
    [
        ("its node is well", "True", OLD, 60, None, False),
        ("its kubelet speaks, and may bring it back", "False", OLD, 60, None, False),
        ("its guard speaks", "Unknown", OLD, 1, None, True),
        ("its guard may still speak", "Unknown", OLD, 6.9, None, True),
        ("neither its node nor its guard is heard of", "Unknown", OLD, 7.1, "not heard of", True),
        ("its node is gone, and its guard is silent", "", OLD, 7.1, "gone", True),
        ("another has taken over, and nobody waits for it", "Unknown", "c-b", 60, None, False),
        ("nobody has the Lease", "Unknown", "", 60, None, False),
    ],
)
def test_a_pod_that_nobody_deletes_is_removed_only_if(
    why: str, node: str, holder: str, silence: float, expected: str | None, looks_again: bool
) -> None:
    observation = on_a_node_that_is(node, holder, silence)
    wanted = [RemoveStuckPod("ns", OLD, f"uid-{OLD}", OLD_NODE, expected, observation.lease)] if expected else []
    assert removed(observation) == wanted, why
    assert bool(wakeups(observation)) == looks_again


@pytest.mark.parametrize(
    ("key", "stays"), [("node.kubernetes.io/unreachable", True), ("node.kubernetes.io/not-ready", False), ("", False)]
)
def test_a_pod_stays_on_a_lost_node_for_as_long_as_the_user_says(key: str, stays: bool) -> None:
    toleration = {"key": key, "operator": "Exists", "tolerationSeconds": 300}
    patient = wanting(pod_template=PodTemplate(spec={"tolerations": [toleration]}))
    silent = on_a_node_that_is("Unknown", OLD, 60)
    assert bool(removed(replace(silent, cluster=patient))) != stays
    evicted = on_a_node_that_is("Unknown", OLD, 60, NOW + 30)
    assert removed(replace(evicted, cluster=patient)), "its time is over"


def on_a_node_that_is(ready: str, holder: str, silence: float, deleted: float | None = None) -> ClusterObservation:
    """Only a pod on a node with this condition Ready; an empty one: there is no such node."""
    return looking(
        None,
        old_pod(deleted, "d1"),
        lease=objects.lease(holder, seconds=5, acquired="then", **WELL),
        nodes={OLD_NODE: machine(ready)} if ready else {},
        silence=silence,
    )


def removed(observation: ClusterObservation) -> list[RemoveStuckPod]:
    return [each for each in decide(observation).actions if isinstance(each, RemoveStuckPod)]


def test_it_is_reported_before_it_is_done_with_what_to_do_about_the_volume() -> None:
    dead = looking(None, old_pod(NOW - 30), nodes={OLD_NODE: machine("Unknown")})
    (found,) = announcements(decide(dead))
    assert (found.kind, found.reason) == ("Warning", "RemovingStuckPod")
    assert f"kubectl taint node {OLD_NODE} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in found.message
    (gone,) = announcements(decide(replace(dead, nodes={})))
    assert "taint" not in gone.message, "there is nothing to taint"


def test_a_held_cluster_that_is_deleted_says_who_can_help() -> None:
    spec = SlurmClusterSpec(controller=Controller(hold=True))
    held = looking(cluster(deleted=True, spec=spec), lease=lease(hold="true"), slurm=plan_builders.UNKNOWN, slurmds=2)
    assert "seltzer debug demo --release" in condition(told(held), "Ready").message
    released = replace(held, cluster=cluster(deleted=True))
    assert decide(released).actions == (Hold("ns", "demo-slurmctld", False),), "a cluster that goes can be released too"
