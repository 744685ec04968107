"""A cluster at a glance: everything that matters is in the tree, and every problem says what to do."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest
from rich.console import Console

from seltzer.api.common import Condition, NodeCounts
from seltzer.api.core import ObjectMeta, ObjectReference
from seltzer.api.nodeset import ClusterRef, NodeSet, NodeSetSpec, NodeSetStatus
from seltzer.api.slurmcluster import JobCounts, Login, SlurmCluster, SlurmClusterSpec, SlurmClusterStatus
from seltzer.build.components.table import CONTROL_PLANE
from seltzer.cli import show, status
from seltzer.view import tree
from seltzer.view.events import Event, of_cluster
from seltzer.view.tree import Picture, Problem

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def condition(kind: str, status: str = "True", reason: str = "Fine", message: str = "it is") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time="")  # type: ignore[arg-type]


OF_COMPONENTS = tuple(each.condition.type for each in CONTROL_PLANE if each.condition)
KINDS = ("Ready", *OF_COMPONENTS, "StateSafe", "ConfigValid")
WELL = tuple(condition(kind) for kind in KINDS)


def cluster(
    *conditions: Condition, spec: SlurmClusterSpec | None = None, generation: int = 1, deleted: str | None = None
) -> SlurmCluster:
    return SlurmCluster(
        metadata=ObjectMeta(
            name="demo",
            namespace="here",
            generation=generation,
            creation_timestamp="2026-01-02T09:40:00Z",
            deletion_timestamp=deleted,
        ),
        spec=spec or SlurmClusterSpec(),
        status=SlurmClusterStatus(
            observed_generation=1,
            conditions=conditions,
            slurm_version="26.05.5",
            jobs=JobCounts(running=3, pending=12),
            last_failover_time="2026-01-02T11:53:00Z",
        ),
    )


def nodeset(
    name: str, *conditions: Condition, ready: int = 2, nodes: NodeCounts | None = None, to: str = "demo"
) -> NodeSet:
    return NodeSet(
        metadata=ObjectMeta(name=name, namespace="here", generation=1),
        spec=NodeSetSpec(cluster_ref=ClusterRef(name=to), replicas=2),
        status=NodeSetStatus(
            observed_generation=1,
            conditions=conditions,
            replicas=2,
            ready_replicas=ready,
            updated_replicas=ready,
            nodes=nodes or NodeCounts(total=2, idle=2),
        ),
    )


def event(time: str, about: str = "SlurmCluster/demo", message: str = "it did", count: int = 1) -> Event:
    kind, _, name = about.partition("/")
    where = ObjectReference(kind=kind, name=name, namespace="here")
    metadata = ObjectMeta(name=time, namespace="here")
    return Event(
        metadata=metadata,
        type="Normal",
        reason="Happened",
        message=message,
        last_timestamp=time,
        count=count,
        involved_object=where,
    )


def drawn(picture: Picture) -> list[str]:
    console = Console(file=io.StringIO(), width=1000)
    console.print(show.tree(tree.tree(picture, NOW)))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_cluster_that_is_well() -> None:
    ready = condition("Ready")
    busy = nodeset("gpu-big", ready, nodes=NodeCounts(total=2, mixed=1, allocated=1))
    happened = event("2026-01-02T11:58:30Z", "NodeSet/cpu", "two\nlines", 4)
    picture = Picture(cluster(*WELL), [nodeset("cpu", ready), busy], [happened])
    assert drawn(picture) == [
        "demo  Ready  Slurm 26.05.5  namespace here  2h20m old",
        "├── control plane",
        "│   ├── slurmctld   ready  (last failover 7m ago)",
        *(f"│   ├── {each.name:<10}  ready" for each in CONTROL_PLANE[1:]),
        "│   ├── config      valid",
        "│   └── state       safe",
        "├── node sets",
        "│   ├── cpu      2/2 ready  2 idle",
        "│   └── gpu-big  2/2 ready  1 mixed, 1 allocated",
        "├── jobs  3 running, 12 pending",
        "└── events",
        "    └── 1m  NodeSet/cpu  Happened  two lines (x4)",
    ]
    assert tree.problems(picture) == []


def test_a_cluster_with_problems_ends_with_them() -> None:
    bad = condition("ConfigValid", "False", "Rejected", "unknown key Foo; correct spec.config")
    away = condition("Ready", "False", "PodsPending", "1 pod can't be scheduled [3 nodes]; add nodes")
    broken = nodeset("cpu", away, ready=1, nodes=NodeCounts(total=2, idle=1, down=1))
    lines = drawn(Picture(cluster(*WELL[:-1], bad), [broken]))
    assert "│   ├── config      Rejected" in lines
    assert "│   └── cpu  1/2 ready  1 idle, 1 down  1 to update" in lines
    assert lines[-3:] == [
        "└── problems",
        "    ├── SlurmCluster demo: unknown key Foo; correct spec.config (ConfigValid: Rejected)",
        "    └── NodeSet cpu: 1 pod can't be scheduled [3 nodes]; add nodes (Ready: PodsPending)",
    ]


def test_a_cluster_of_which_nothing_is_known_yet_is_drawn_too() -> None:
    new = SlurmCluster(
        metadata=ObjectMeta(name="demo", namespace="here", generation=1),
        spec=SlurmClusterSpec(login=Login(replicas=0)),
    )
    lines = drawn(Picture(new))
    assert lines[0].startswith("demo  Unknown")
    assert "│   ├── slurmctld   unknown" in lines
    assert "│   ├── login       none (spec.login.replicas is 0)" in lines
    assert "├── node sets  none, so no job can run; add a NodeSet" in lines
    assert lines[-1].endswith("the operator has said nothing about it yet; see 'seltzer version' (Unseen)")


@pytest.mark.parametrize(
    ("picture", "found"),
    [
        (Picture(cluster(*WELL)), []),
        (Picture(cluster(*WELL, generation=2)), [("", "Outdated")]),
        (Picture(cluster(*WELL, deleted="2026-01-02T11:00:00Z")), [("", "Deleting")]),
        (Picture(cluster(condition("Ready", "Unknown", "Unreachable"))), [("Ready", "Unreachable")]),
        # Ready only repeats what a component says: that is one problem.
        (
            Picture(cluster(condition("Ready", "False", "A", "same"), condition("RestReady", "False", "A", "same"))),
            [("RestReady", "A")],
        ),
        # And so it is if two components say the same.
        (
            Picture(
                cluster(condition("RestReady", "False", "A", "same"), condition("StateSafe", "False", "B", "same"))
            ),
            [("RestReady", "A")],
        ),
        (
            Picture(cluster(condition("Ready", "False", "A", "one"), condition("RestReady", "False", "B", "two"))),
            [("Ready", "A"), ("RestReady", "B")],
        ),
    ],
)
def test_every_condition_that_is_not_true_is_a_problem(picture: Picture, found: list[tuple[str, str]]) -> None:
    assert [(each.condition, each.reason) for each in tree.problems(picture)] == found


def test_a_nodeset_from_elsewhere_is_called_by_its_namespace_too() -> None:
    guest = NodeSet(
        metadata=ObjectMeta(name="cpu", namespace="there"),
        spec=NodeSetSpec(cluster_ref=ClusterRef(name="demo", namespace="here")),
    )
    picture = Picture(cluster(*WELL), [guest])
    assert any("there/cpu" in line for line in drawn(picture))
    assert tree.problems(picture)[0].object == "NodeSet there/cpu"


def test_of_the_last_hour_the_newest_ten_events_are_shown_in_order() -> None:
    old = event("2026-01-02T10:59:59Z")
    recent = [event(f"2026-01-02T11:{minute:02}:00Z") for minute in range(30, 42)]
    undated = event("")
    found = tree.recent_events([*reversed(recent), old, undated], NOW)
    assert [each.time for each in found] == [each.time for each in recent[2:]]


def test_events_of_others_are_left_out() -> None:
    mine = event("2026-01-02T11:00:00Z", "NodeSet/cpu")
    others = [event("2026-01-02T11:00:00Z", about) for about in ("SlurmCluster/cpu", "NodeSet/demo", "Pod/demo")]
    assert of_cluster([*others, mine], cluster(), [nodeset("cpu")]) == [mine]


def test_data_for_programs_holds_the_same() -> None:
    wrong = condition("Ready", "False", "PodsPending", "add nodes")
    picture = Picture(cluster(*WELL), [nodeset("cpu", wrong, ready=1)], [event("2026-01-02T11:58:30Z")])
    data = json.loads(json.dumps(tree.as_data(picture, NOW)))
    assert (data["name"], data["ready"], data["slurmVersion"]) == ("demo", True, "26.05.5")
    assert data["jobs"] == {"running": 3, "pending": 12}
    assert data["components"]["config"] == {"status": "True", "reason": "Fine", "message": "it is"}
    assert data["nodeSets"][0]["readyReplicas"] == 1 and data["nodeSets"][0]["ready"] is False
    assert data["events"][0]["reason"] == "Happened"
    assert [Problem(**each) for each in data["problems"]] == tree.problems(picture)


def test_a_nodeset_whose_cluster_is_missing_is_noticed_where_it_can_be_known() -> None:
    lost, fine = nodeset("lost", to="nowhere"), nodeset("cpu")
    elsewhere = NodeSet(
        metadata=ObjectMeta(name="guest", namespace="here"),
        spec=NodeSetSpec(cluster_ref=ClusterRef(name="demo", namespace="there")),
    )
    assert status.orphans([lost, fine, elsewhere], [cluster()], "here") == [lost]
    assert status.orphans([lost, fine, elsewhere], [cluster()], "") == [lost, elsewhere]
