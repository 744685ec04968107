"""Which machines a pod's spec selects: as the scheduler and DaemonSets see it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import machine

from seltzer.plan.nodeset.machine_selection import SelectionRefused, matches, takes

LABELS = {"pool": "gpu", "size": "8"}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": rule}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(*values: str, operator: str = "In") -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, True),
        ({"nodeSelector": {"pool": "gpu"}}, True),
        ({"nodeSelector": {"pool": "gpu", "size": "9"}}, False),
        ({"nodeSelector": {"zone": "a"}}, False),
        (required(label("pool", "In", "cpu", "gpu")), True),
        (required(label("pool", "In", "cpu")), False),
        (required(label("pool", "NotIn", "cpu")), True),
        (required(label("zone", "NotIn", "a")), True),
        (required(label("pool", "NotIn", "gpu")), False),
        (required(label("pool", "Exists")), True),
        (required(label("zone", "Exists")), False),
        (required(label("zone", "DoesNotExist")), True),
        (required(label("size", "Gt", "7")), True),
        (required(label("size", "Gt", "8")), False),
        (required(label("size", "Lt", "9")), True),
        (required(label("pool", "Gt", "1")), False),
        (required(label("zone", "Lt", "1")), False),
        (required(field("n1")), True),
        (required(field("n2")), False),
        (required(field("n1", operator="NotIn")), False),
        # One term is enough; all of a term's requirements count; an empty term matches nothing, and so does no term.
        (required(label("pool", "In", "cpu"), field("n1")), True),
        (required({**label("pool", "In", "gpu"), **field("n2")}), False),
        (required({}), False),
        (required(), False),
        # Both count.
        ({"nodeSelector": {"pool": "gpu"}, **required(field("n2"))}, False),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}, True),
        ({"affinity": None, "nodeSelector": None}, True),
    ],
)
def test_a_machine_matches_as_for_the_scheduler(spec: dict[str, Any], wanted: bool) -> None:
    assert matches(spec, machine("n1", labels=LABELS)) == wanted


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"nodeSelector": ["pool"]}, r"podTemplate.spec.nodeSelector: isn't a map"),
        ({"affinity": {"nodeAffinity": "n1"}}, r"nodeAffinity: isn't a map"),
        (
            required(label("pool", "Equals", "gpu")),
            r"key 'pool' and operator 'Equals': write a key and one of In, NotIn",
        ),
        (required({"matchExpressions": {"pool": "gpu"}}), r"matchExpressions: isn't a list"),
        # Also if an earlier term matches: what is wrong doesn't depend on the machine.
        (required(field("n1"), label("pool", "Like", "g")), r"operator 'Like'"),
    ],
)
def test_what_cannot_be_understood_is_refused(spec: dict[str, Any], says: str) -> None:
    """Taken for "matches nothing", a typing error would remove all nodes."""
    with pytest.raises(SelectionRefused, match=says):
        matches(spec, machine("n1", labels=LABELS))


TOLERANT = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("spec", "changes", "wanted"),
    [
        ({}, {}, True),
        ({}, {"cordoned": True}, True),  # spec.unschedulable: its taint counts
        ({}, {"taints": ["gpu=yes:NoSchedule"]}, False),
        ({}, {"taints": ["gpu=yes:NoExecute"]}, False),
        ({}, {"taints": ["gpu=yes:PreferNoSchedule"]}, True),
        (TOLERANT, {"taints": ["gpu=yes:NoSchedule"]}, True),
        (TOLERANT, {"taints": ["gpu=yes:NoSchedule", "node.kubernetes.io/not-ready:NoSchedule"]}, False),
        ({}, {"deleting": True}, False),
    ],
)
def test_a_new_pod_comes_only_where_it_tolerates_all(
    spec: dict[str, Any], changes: dict[str, Any], wanted: bool
) -> None:
    assert takes(spec, machine("n1", **changes)) == wanted
