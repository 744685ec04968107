"""A cluster at a glance: everything that matters is in the tree, and every problem says what to do."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest
from rich.console import Console
from tests.builders import objects
from tests.builders.objects import condition

from seltzer.api.common import Condition, GpuCounts, NodeCounts
from seltzer.api.nodeset import NodeSet, NodeSetStatus
from seltzer.api.slurmcluster import JobCounts, SlurmCluster, SlurmClusterStatus
from seltzer.build.components.table import CONTROL_PLANE
from seltzer.cli import show
from seltzer.view import tree
from seltzer.view.events import Event, of_cluster
from seltzer.view.tree import Picture, Problem

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


OF_COMPONENTS = tuple(each.condition.type for each in CONTROL_PLANE if each.condition)
KINDS = ("Ready", *OF_COMPONENTS, "StateSafe", "ConfigValid")
WELL = tuple(condition(kind) for kind in KINDS)


def cluster(*conditions: Condition, generation: int = 1, deleted: str | None = None) -> SlurmCluster:
    status = SlurmClusterStatus(
        observed_generation=1,
        conditions=conditions,
        slurm_version="26.05.5",
        jobs=JobCounts(running=3, pending=12),
        last_failover_time="2026-01-02T11:53:00Z",
    )
    created = "2026-01-02T09:40:00Z"
    return objects.cluster(namespace="here", status=status, generation=generation, created=created, deleted=deleted)


def nodeset(name: str, *conditions: Condition, ready: int = 2, nodes: NodeCounts | None = None) -> NodeSet:
    status = NodeSetStatus(
        observed_generation=1,
        conditions=conditions,
        replicas=2,
        ready_replicas=ready,
        updated_replicas=ready,
        nodes=nodes or NodeCounts(total=2, idle=2),
    )
    return objects.nodeset(2, name=name, namespace="here", status=status, generation=1)


def event(time: str, about: str = "SlurmCluster/demo", message: str = "it did", count: int = 1) -> Event:
    return objects.event(message=message, about=about, time=time, count=count, namespace="here")


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
    new = objects.cluster({"login": {"replicas": 0}})
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
    guest = objects.nodeset(namespace="there", cluster_namespace="here")
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


def test_the_gpus_of_a_nodeset_are_shown_in_use_and_in_total() -> None:
    counts = NodeSetStatus(nodes=NodeCounts(total=2, mixed=2), gpus=GpuCounts(total=8, used=3))
    for status, words in ((counts, "2 mixed  3/8 GPUs"), (NodeSetStatus(nodes=NodeCounts(total=2, idle=2)), "2 idle")):
        picture = Picture(cluster(*WELL), [objects.nodeset(namespace="here", status=status)])
        (line,) = [each for each in drawn(picture) if "ready" in each and "cpu" in each]
        assert line.rstrip().endswith(words)
