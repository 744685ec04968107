"""topology.yaml: ours never changes, and nobody else's comes while nodes have a place in ours."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import cluster
from tests.builders.slurm import node

from seltzer.build import topology
from seltzer.build.config import ConfigRefused, render
from seltzer.plan.cluster import trust

SPEC = {"topology": {"labels": ["zone", "rack"]}}
THEIRS = {"config": {"topology.yaml": "- topology: mine\n"}}
OURS = topology.files(cluster(SPEC))
PLACED = {"cpu-0": node("cpu-0", topology="default:/:a/:a/r1")}
FREE = {"cpu-0": node("cpu-0", topology="")}


def test_the_file_has_an_empty_tree_whatever_the_labels_are() -> None:
    rendered = render(cluster(SPEC), [])
    assert 'switch: "/"' in rendered.files["topology.yaml"] and "topology: default" in rendered.files["topology.yaml"]
    assert trust.is_trusted(cluster(SPEC), []), "there is nothing of the user's in it"
    assert rendered.digest == render(cluster({"topology": {"labels": ["other"]}}), []).digest
    assert "topology.yaml" not in render(cluster(), []).files


@pytest.mark.parametrize("name", ["topology.yaml", "topology.conf"])
def test_there_is_only_one_topology(name: str) -> None:
    with pytest.raises(ConfigRefused, match=f"config has {name}, and spec.topology makes one: remove one of the two"):
        render(cluster({**SPEC, "config": {name: "SwitchName=x"}}), [])


@pytest.mark.parametrize(
    ("spec", "active", "nodes", "refused"),
    [
        (THEIRS, {}, PLACED, True),
        (THEIRS, OURS, FREE, False),
        (THEIRS, OURS, None, True),  # nobody knows
        (THEIRS, {}, None, False),  # a new cluster
        (THEIRS, {"topology.yaml": "theirs"}, PLACED, False),  # it is theirs already
        ({}, OURS, PLACED, False),
        (SPEC, OURS, PLACED, False),
    ],
)
def test_slurmctld_gets_no_topology_in_which_a_node_has_no_place(
    spec: dict[str, Any], active: dict[str, str], nodes: Any, refused: bool
) -> None:
    """Tried: it is fatal to it."""
    if refused:
        with pytest.raises(ConfigRefused, match=r"remove topology.yaml, and add it again when no node has one"):
            topology.check(cluster(spec), active, nodes)
    else:
        topology.check(cluster(spec), active, nodes)


@pytest.mark.parametrize(
    ("spec", "active", "wanted"),
    [
        (SPEC, None, ("zone", "rack")),
        (SPEC, {}, ("zone", "rack")),  # before the tree is rolled out: no job is refused in between
        (SPEC, OURS, ("zone", "rack")),
        (SPEC, {"topology.yaml": "theirs"}, None),
        (SPEC, {"topology.conf": "theirs"}, None),
        ({}, OURS, None),  # after it has gone
        ({}, {}, ()),
        ({}, {"topology.yaml": "theirs"}, None),
    ],
)
def test_nodes_get_a_place_before_there_is_a_tree_and_lose_it_after(
    spec: dict[str, Any], active: dict[str, str] | None, wanted: tuple[str, ...] | None
) -> None:
    assert topology.labels(cluster(spec), active) == wanted
