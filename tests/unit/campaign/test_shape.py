"""Which pods of the campaign's clusters are on the nodes that die, and which stay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.faults.campaign.actions import Scene
from tests.faults.campaign.shape import POOL, SHAPES, SLURMCTLD, Shape, cluster, nodesets

MORTAL = ("n2", "n3")


def template(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec["podTemplate"]["spec"]
    return found


def dies(spec: dict[str, Any]) -> bool:
    """Whether its pods are on the nodes that die; otherwise they are on the one that stays."""
    text = json.dumps(template(spec))
    assert ('"n2", "n3"' in text) != (template(spec).get("nodeSelector") == {"kubernetes.io/hostname": "n1"})
    return '"n2", "n3"' in text


def test_the_nodes_that_die_are_all_but_the_first_as_far_as_the_sandbox_has_them() -> None:
    assert POOL.mortal(5) == ("n2", "n3", "n4", "n5")
    assert POOL.mortal(3) == SLURMCTLD.mortal(3) == SLURMCTLD.mortal(5) == MORTAL


@pytest.mark.parametrize(("shape", "doomed"), [(SLURMCTLD, {"controller"}), (POOL, {"cpu"})])
def test_only_what_a_row_is_about_dies(shape: Shape, doomed: set[str]) -> None:
    spec = cluster(shape, MORTAL)
    parts = {**{name: spec[name] for name in ("controller", "rest", "login")}, **nodesets(shape, MORTAL)}
    assert {name for name, its in parts.items() if dies(its)} == doomed


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_all_jobs_and_those_who_submit_them_have_the_evidence(shape: Shape) -> None:
    for name, its in {"login": cluster(shape, MORTAL)["login"], **nodesets(shape, MORTAL)}.items():
        (container,) = template(its)["containers"]
        assert container["name"] == ("login" if name == "login" else "slurmd")
        assert container["volumeMounts"] == [{"name": "evidence", "mountPath": "/evidence"}]


def test_a_share_of_the_nodes_is_at_least_one() -> None:
    def some(count: int, share: float) -> tuple[str, ...]:
        machines = tuple("abcd"[:count])
        return Scene(None, None, "", None, machines).some(share)  # type: ignore[arg-type]

    assert some(4, 0) == ("a",)
    assert some(4, 0.5) == ("a", "b")
    assert some(2, 0.5) == ("a",)
