"""Pods share no machine with those with which they must not, whatever the user's podTemplate says."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import cluster, nodeset

from seltzer.build import names
from seltzer.build.images import Images
from seltzer.build.nodeset import TemplateRefused, pod, selection, template

IMAGES = Images()
LIMITED = {"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WHOLE = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"seltzer.dev/whole-machine": "true"}},
    "namespaceSelector": {},
}


def build(spec: dict[str, Any], machine: str = "") -> dict[str, Any]:
    return pod(nodeset(spec), cluster(), IMAGES, "cpu-0", machine)


def apart(built: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = built["spec"]["affinity"]["podAntiAffinity"].get(REQUIRED, [])
    return found


def container(**resources: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": {"containers": [{"name": "slurmd", "resources": resources}]}}}


@pytest.mark.parametrize(
    ("spec", "whole"),
    [
        ({}, True),
        ({"resources": {"limits": {"cpu": 2}}}, True),
        ({"resources": {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}}, True),
        (LIMITED, False),
        ({"resources": {"requests": {"cpu": 2, "memory": "1Gi"}}}, False),
        ({"resources": {"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}}}, False),
        (container(limits={"cpu": 2, "memory": "1Gi"}), False),
        ({**LIMITED, **container(limits={"cpu": None})}, True),
    ],
)
def test_two_pods_that_report_a_whole_machine_never_share_one(spec: dict[str, Any], whole: bool) -> None:
    """Of all NodeSets and clusters."""
    built = build(spec)
    assert apart(built) == ([WHOLE] if whole else [])
    assert built["metadata"]["labels"].get("seltzer.dev/whole-machine") == ("true" if whole else None)


def test_one_per_node_keeps_the_pods_of_a_nodeset_apart() -> None:
    own = {"matchLabels": names.nodeset_selector(nodeset(), cluster())}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": own}
    assert apart(build({"placement": "onePerNode", **LIMITED})) == [term]
    assert apart(build({"placement": "onePerNode"})) == [term, WHOLE]


def test_a_users_affinity_is_added_and_takes_nothing_away() -> None:
    theirs = {"topologyKey": "rack", "labelSelector": {}}
    template_ = {"podTemplate": {"spec": {"affinity": {"podAntiAffinity": {REQUIRED: [theirs]}}}}}
    assert apart(build(template_)) == [theirs, WHOLE]
    with pytest.raises(TemplateRefused, match="isn't a list"):
        build({"podTemplate": {"spec": {"affinity": {"podAntiAffinity": {REQUIRED: {"topologyKey": "rack"}}}}}})


def test_the_hash_is_that_of_earlier_releases_unless_placement_is_used() -> None:
    """An upgrade of the operator alone replaces no pod."""
    hashes = {each: template(nodeset({"placement": each}), cluster(), IMAGES) for each in ("spread", "onePerNode")}
    assert hashes["spread"] == template(nodeset(), cluster(), IMAGES)
    assert hashes["spread"] != hashes["onePerNode"]
    built = build({})
    assert built["metadata"]["labels"][names.TEMPLATE] == hashes["spread"]


def test_a_pod_of_placement_per_node_is_for_its_machine_and_tolerates_a_cordon() -> None:
    prefers: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    theirs = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}, **prefers}}
    spec = {"affinity": theirs, "nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu"}]}
    built = build({"placement": "perNode", "podTemplate": {"spec": spec}}, "n1.lan")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1.lan"]}]}
    assert built["spec"]["affinity"]["nodeAffinity"] == {REQUIRED: {"nodeSelectorTerms": [term]}, **prefers}
    assert built["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert built["metadata"]["annotations"]["seltzer.dev/machine"] == "n1.lan"
    assert apart(built) == [WHOLE]
    tolerated = {each["key"] for each in built["spec"]["tolerations"]}
    stays = {f"node.kubernetes.io/{each}" for each in ("unschedulable", "not-ready", "unreachable")}
    assert tolerated == {"gpu", *stays}


def test_the_selection_is_the_users() -> None:
    spec = {"placement": "perNode", "podTemplate": {"spec": {"nodeSelector": {"pool": "gpu"}}}}
    selected = selection(nodeset(spec), cluster(), IMAGES)
    assert selected["nodeSelector"] == {"pool": "gpu"} and "nodeAffinity" not in selected["affinity"]
    assert len(selected["tolerations"]) == 3
