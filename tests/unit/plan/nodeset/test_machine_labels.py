"""Slurm learns from the labels of machines where nodes are and what they can do; no job and no drain is touched."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import plan as builders
from tests.builders.objects import machine, nodeset, pod
from tests.builders.plan import seen
from tests.builders.slurm import node

from seltzer.api.core import Node as KubeNode
from seltzer.api.nodeset import NodeSet
from seltzer.plan import conditions
from seltzer.plan.actions import Action, SetFeatures, SetTopology
from seltzer.plan.nodeset import machine_labels, nodeset_plan, nodeset_status
from seltzer.plan.nodeset.drain_causes import Machine
from seltzer.plan.nodeset.observation import NodeSetObservation

LABELS = ("zone", "rack")


def kube(name: str, **labels: str) -> KubeNode:
    return machine(name, labels=labels)


def look(
    machines: list[KubeNode], topology: tuple[str, ...] | None = LABELS, item: NodeSet | None = None, **records: Any
) -> NodeSetObservation:
    """A node without a place on each machine. `records` are fields of Slurm's records, a value for all."""
    item = item or nodeset(len(machines))
    pods = [pod(f"cpu-{number}", machine=each.metadata.name) for number, each in enumerate(machines)]
    nodes = [node(each.metadata.name, topology="", **records) for each in pods]
    known = {each.metadata.name: Machine(each, 1000.0) for each in machines}
    return seen(item, *pods, slurm=builders.slurm(*nodes), machines=known, topology=topology)


def actions(observation: NodeSetObservation) -> tuple[Action, ...]:
    return nodeset_plan.decide(observation).actions


# --- topology ---------------------------------------------------------------------------------------------------------


def test_one_call_per_leaf_says_where_its_nodes_are() -> None:
    machines = [kube("n1", zone="a", rack="r1"), kube("n2", zone="a", rack="r2"), kube("n3", zone="a", rack="r1")]
    assert actions(look(machines)) == (
        SetTopology(("cpu-0", "cpu-2"), "default:/:a/:a/r1"),
        SetTopology(("cpu-1",), "default:/:a/:a/r2"),
    )


def test_a_node_that_is_where_it_should_be_is_left_alone() -> None:
    assert not actions(at_home())


def at_home() -> NodeSetObservation:
    machines = [kube("n1", zone="a", rack="r1")]
    item = pod("cpu-0", machine="n1")
    there = node("cpu-0", topology="default:/:a/:a/r1")
    known = {"n1": Machine(machines[0], 1000.0)}
    return seen(nodeset(1), item, slurm=builders.slurm(there), machines=known, topology=LABELS)


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"zone": "a", "rack": "r1"}, "default:/:a/:a/r1"),
        ({"zone": "a"}, "default:/:a/:a/unknown"),
        ({"rack": "r1"}, "default:/:unknown/:unknown/r1"),
        ({"zone": "", "rack": "r1"}, "default:/:unknown/:unknown/r1"),
        ({}, "default:/:unknown/:unknown/unknown"),
    ],
)
def test_a_missing_label_is_a_switch_of_its_own(labels: dict[str, str], wanted: str) -> None:
    """A node without a topology would take no jobs."""
    assert machine_labels.path(kube("n1", **labels), LABELS) == wanted


values = st.sampled_from(["a", "b", "r1", "unknown", ""])
labelled = st.fixed_dictionaries({key: values for key in "xyz"})
levels = st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True)


@given(machines=st.lists(st.tuples(labelled, levels), min_size=1, max_size=8))
def test_no_switch_has_two_parents_nor_both_nodes_and_switches(machines: list[Any]) -> None:
    """Whatever labels the spec asked for when a node was last told: slurmctld would not start with such nodes."""
    parents: dict[str, str] = {}
    leaves: set[str] = set()
    for labels, asked in machines:
        tree, *switches = machine_labels.path(kube("n", **labels), asked).split(":")
        assert (tree, switches[0], len(switches)) == ("default", "/", len(asked) + 1)
        for parent, switch in pairwise(switches):
            assert parents.setdefault(switch, parent) == parent
        leaves.add(switches[-1])
    assert not leaves & set(parents.values())


@pytest.mark.parametrize(
    ("topology", "has", "wanted"),
    [
        (None, "default:/:a/:a/r1", None),  # the tree is still there: without a place no job would start
        ((), "default:/:a/:a/r1", ""),
        ((), "", None),
        ((), "mine:s0", None),  # somebody else's
        (LABELS, None, None),  # an older slurmrestd doesn't say, and takes none
    ],
)
def test_without_spec_topology_nodes_lose_only_what_we_gave_them(
    topology: tuple[str, ...] | None, has: str | None, wanted: str | None
) -> None:
    item = pod("cpu-0", machine="n1")
    known = {"n1": Machine(kube("n1", zone="a", rack="r2"), 1000.0)}
    observation = seen(
        nodeset(1), item, slurm=builders.slurm(node("cpu-0", topology=has)), machines=known, topology=topology
    )
    assert actions(observation) == (() if wanted is None else (SetTopology(("cpu-0",), wanted),))


@pytest.mark.parametrize("known", [{}, {"n1": Machine(None)}])
def test_an_unknown_machine_changes_nothing(known: dict[str, Machine]) -> None:
    item = pod("cpu-0", machine="n1")
    there = builders.slurm(node("cpu-0", topology="default:/:a/:a/r1"))
    observation = seen(nodeset(1), item, slurm=there, machines=known, topology=LABELS)
    assert not [each for each in actions(observation) if isinstance(each, SetTopology)]


def status(observation: NodeSetObservation) -> Any:
    decision = nodeset_plan.decide(observation)
    return nodeset_status.status(observation, decision, [], "2026-01-01T00:00:00Z")


def test_missing_labels_are_a_condition_with_what_to_do() -> None:
    observation = look([kube("n1", zone="a", rack="r1"), kube("n2", zone="a"), kube("n3", zone="a")])
    found = conditions.find(status(observation).conditions, "TopologyKnown")
    assert found and (found.status, found.reason) == ("False", "LabelsMissing")
    assert found.message.startswith(
        "n[2-3] lacks label rack, so Slurm sees its nodes at a switch called unknown: label"
    )
    complete = look([kube("n1", zone="a", rack="r1")])
    found = conditions.find(status(complete).conditions, "TopologyKnown")
    assert found and found.status == "True"
    assert conditions.find(status(look([kube("n1")], None)).conditions, "TopologyKnown") is None


def test_a_node_without_a_place_is_not_ready() -> None:
    """slurmctld gives it no jobs, and refuses jobs if there is no other."""
    assert status(look([kube("n1")])).ready_replicas == 0
    assert status(at_home()).ready_replicas == 1
    assert status(look([kube("n1")], ())).ready_replicas == 1


# --- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "features"),
    [
        ({"x.com/model": "h100"}, ("h100",)),
        ({"x.com/model": "h100", "x.com/nvlink": "true"}, ("h100", "nvlink")),
        ({"x.com/nvlink": ""}, ("nvlink",)),
        ({"x.com/nvlink": "False"}, ()),
        ({"x.com/other": "h100"}, ()),
        ({"x.com/model": "set_other"}, ()),  # it would put the node into another NodeSet's partition
        ({"x.com/model": "fast"}, ()),  # it has that feature anyhow
        ({}, ()),
    ],
)
def test_a_listed_label_is_a_feature(labels: dict[str, str], features: tuple[str, ...]) -> None:
    item = nodeset({"features": ["fast"], "featuresFromLabels": ["x.com/model", "x.com/nvlink"]})
    observation = look([machine("n1", labels=labels)], None, item, features=("old",))
    assert actions(observation) == (SetFeatures(("cpu-0",), ("cpu", "set_cpu", "fast", *features)),)


def test_features_are_written_once_per_kind_of_node_and_only_where_they_differ() -> None:
    item = nodeset({"replicas": 4, "featuresFromLabels": ["model"]})
    machines = [kube(f"n{number}", model="b" if number == 2 else "a") for number in range(4)]
    observation = look(machines, None, item, features=("set_cpu", "cpu", "b"))
    assert actions(observation) == (SetFeatures(("cpu-0", "cpu-1", "cpu-3"), ("cpu", "set_cpu", "a")),)


def test_without_the_list_nobody_touches_features() -> None:
    """A person may have set them with scontrol."""
    assert not actions(look([kube("n1", model="a")], None, features=("cpu", "set_cpu", "mine")))
