"""A podTemplate changes what it names and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.build.merge import TemplateRefused, merge

BASE: dict[str, Any] = {
    "hostname": "h",
    "securityContext": {"fsGroup": 401},
    "tolerations": [{"key": "a"}],
    "containers": [
        {
            "name": "main",
            "image": "one",
            "args": ["-a", "-b"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
            "ports": [{"containerPort": 1, "name": "one"}],
            "volumeMounts": [{"mountPath": "/a", "name": "v"}],
        }
    ],
    "volumes": [{"name": "v", "secret": {"secretName": "s", "defaultMode": 256}}, {"name": "w", "emptyDir": {}}],
}


def main(**changes: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **changes}]}


@pytest.mark.parametrize(
    ("patch", "path", "found"),
    [
        ({}, ["hostname"], "h"),
        ({"nodeSelector": {"a": "b"}}, ["nodeSelector"], {"a": "b"}),
        ({"securityContext": {"runAsUser": 1}}, ["securityContext"], {"fsGroup": 401, "runAsUser": 1}),
        ({"securityContext": {"fsGroup": None}}, ["securityContext"], {}),
        ({"tolerations": [{"key": "b"}]}, ["tolerations"], [{"key": "b"}]),
        (main(image="two"), ["containers", 0, "image"], "two"),
        (main(image="two"), ["containers", 0, "args"], ["-a", "-b"]),
        (main(args=["-c"]), ["containers", 0, "args"], ["-c"]),
        (main(args=None), ["containers", 0, "ports"], BASE["containers"][0]["ports"]),
        ({"containers": [{"name": "sssd"}]}, ["containers", 1], {"name": "sssd"}),
        ({"containers": [{"name": "sssd"}]}, ["containers", 0], BASE["containers"][0]),
        ({"containers": []}, ["containers"], BASE["containers"]),
        ({"initContainers": [{"name": "i", "env": None}]}, ["initContainers"], [{"name": "i"}]),
        (main(env=[{"name": "A", "value": "2"}]), ["containers", 0, "env", 0], {"name": "A", "value": "2"}),
        (main(env=[{"name": "B", "value": "2"}]), ["containers", 0, "env", 1], {"name": "B", "value": "2"}),
        (main(env=[{"name": "C"}]), ["containers", 0, "env", 2], {"name": "C"}),
        (
            main(ports=[{"containerPort": 1, "hostPort": 2}, {"containerPort": 1, "protocol": "UDP"}]),
            ["containers", 0, "ports"],
            [{"containerPort": 1, "name": "one", "hostPort": 2}, {"containerPort": 1, "protocol": "UDP"}],
        ),
        (
            main(volumeMounts=[{"mountPath": "/a", "readOnly": True}, {"mountPath": "/b", "name": "v"}]),
            ["containers", 0, "volumeMounts"],
            [{"mountPath": "/a", "name": "v", "readOnly": True}, {"mountPath": "/b", "name": "v"}],
        ),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "t"}}]},
            ["volumes", 0],
            {"name": "v", "secret": {"secretName": "t", "defaultMode": 256}},
        ),
        # A volume has one source.
        (
            {"volumes": [{"name": "w", "hostPath": {"path": "/x"}}]},
            ["volumes", 1],
            {"name": "w", "hostPath": {"path": "/x"}},
        ),
        ({"nodeSelector": {"resources": "many", "args": "1"}}, ["nodeSelector"], {"resources": "many", "args": "1"}),
        ({"imagePullSecrets": [{"name": "a"}]}, ["imagePullSecrets"], [{"name": "a"}]),
    ],
)
def test_a_patch_changes_what_it_names(patch: dict[str, Any], path: list[Any], found: Any) -> None:
    value: Any = merge(BASE, patch)
    for step in path:
        value = value[step]
    assert value == found


def test_null_removes() -> None:
    assert "hostname" not in merge(BASE, {"hostname": None})
    assert "args" not in merge(BASE, main(args=None))["containers"][0]


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (
            {"containers": [{"name": "main", "$patch": "delete"}]},
            "podTemplate.spec.containers[main].$patch: directives",
        ),
        ({"$retainKeys": ["a"]}, "write null to remove a field"),
        ({"containers": [{"image": "x"}]}, "podTemplate.spec.containers: an item has no name"),
        (main(volumeMounts=[{"name": "v"}]), "containers[main].volumeMounts: an item has no mountPath"),
        ({"containers": ["main"]}, "an item that isn't a map"),
        ({"containers": {"main": {}}}, "write a list"),
        ({"securityContext": [1]}, "write a map"),
        ({"tolerations": "all"}, "see 'kubectl explain pod.spec'"),
        (main(resources={"limits": 3}), "containers[main].resources.limits"),
    ],
)
def test_what_cannot_be_merged_is_refused_by_its_place(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(TemplateRefused) as refused:
        merge(BASE, patch)
    assert words in str(refused.value)


KEYS = st.sampled_from(
    ["containers", "name", "env", "volumes", "image", "hostname", "args", "resources", "limits", "$x"]
)
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.sampled_from(["main", "v"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_any_patch_is_merged_or_refused_and_changes_neither_side(patch: dict[str, Any]) -> None:
    before = json.dumps([BASE, patch])
    try:
        merged = merge(BASE, patch)
    except TemplateRefused as refused:
        assert "\n" not in str(refused)
    else:
        assert merge(merged, patch) == merged
    assert json.dumps([BASE, patch]) == before
