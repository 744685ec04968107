"""The operator's own manifests: no more rights than it needs, and two of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.fakes.specs import cluster, nodeset

from seltzer.api import crd
from seltzer.build import cluster as build
from seltzer.build import nodeset as build_nodeset
from seltzer.build.config import render
from seltzer.build.images import Images
from seltzer.build.operator import manifests

IMAGES = Images({"slurmd": "registry.example/slurmd:1"}, pull_policy="Never")
MANIFESTS = manifests("seltzer-system", "seltzer.dev/operator:dev", IMAGES)
KINDS = {manifest["kind"]: manifest for manifest in MANIFESTS}
POD = KINDS["Deployment"]["spec"]["template"]["spec"]
RULES = KINDS["ClusterRole"]["rules"]
CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding"}


def may(group: str, resource: str) -> set[str]:
    return {
        verb for rule in RULES if group in rule["apiGroups"] and resource in rule["resources"] for verb in rule["verbs"]
    }


def test_all_there_is_to_install() -> None:
    assert len(KINDS) == len(MANIFESTS) == 10
    assert json.loads(json.dumps(MANIFESTS)) == MANIFESTS
    for kind, manifest in KINDS.items():
        assert manifest["metadata"]["labels"]["app.kubernetes.io/name"] == "seltzer-operator"
        assert manifest["metadata"].get("namespace") == (None if kind in CLUSTER_WIDE else "seltzer-system")
    assert MANIFESTS[0]["kind"] == "Namespace", "all others need it"


def test_no_right_is_a_wildcard() -> None:
    for rule in [*RULES, *KINDS["Role"]["rules"]]:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_it_may_make_all_that_a_cluster_is_made_of() -> None:
    one = cluster({"nodeSets": {"namespaces": ["team"]}})
    made = [
        *build.applied(one, IMAGES),
        *build.created_once(one),
        build.keys(one, b"", b""),
        *build.trial(one, render(one, []), IMAGES),
        build_nodeset.pod(nodeset(), one, IMAGES, "cpu-0"),
        *build_nodeset.support(nodeset(namespace="team"), one, b""),
    ]
    for manifest in made:
        group = manifest["apiVersion"].rpartition("/")[0]
        plural = {"NetworkPolicy": "networkpolicies"}.get(manifest["kind"], f"{manifest['kind'].lower()}s")
        assert may(group, plural) >= {"get", "list", "watch", "create", "patch", "delete"}, manifest["kind"]


def test_it_sees_nodes_and_changes_none() -> None:
    assert may("", "nodes") == {"get", "list", "watch"}


def test_it_holds_what_it_gives_to_the_guard() -> None:
    """Kubernetes lets nobody create a Role with more rights than they have."""
    (role,) = (manifest for manifest in build.applied(cluster(), IMAGES) if manifest["kind"] == "Role")
    for rule in role["rules"]:
        for resource in rule["resources"]:
            assert may(rule["apiGroups"][0], resource) >= set(rule["verbs"])


def test_it_may_report_on_our_kinds_but_never_delete_them() -> None:
    for manifest in crd.manifests():
        plural = manifest["spec"]["names"]["plural"]
        assert may("seltzer.dev", plural) == {"get", "list", "watch", "patch", "update"}
        assert (
            may("seltzer.dev", f"{plural}/status") == may("seltzer.dev", f"{plural}/finalizers") == {"patch", "update"}
        )


def test_it_meets_pod_securitys_restricted() -> None:
    assert KINDS["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = POD["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}


def test_selectors_find_its_pods() -> None:
    labels = KINDS["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    assert KINDS["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert KINDS["Service"]["spec"]["selector"].items() <= labels
    for kind, key in (("NetworkPolicy", "podSelector"), ("PodDisruptionBudget", "selector")):
        assert KINDS[kind]["spec"][key]["matchLabels"].items() <= labels


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_node_can_be_drained_whatever_the_number_of_replicas(replicas: int) -> None:
    built = {m["kind"]: m for m in manifests("x", "image", IMAGES, replicas)}
    assert built["Deployment"]["spec"]["replicas"] == replicas
    assert built["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_its_pod_knows_the_images_that_it_was_installed_with() -> None:
    environ: dict[str, Any] = {variable["name"]: variable.get("value") for variable in POD["containers"][0]["env"]}
    assert Images.from_env(environ) == IMAGES
    assert Images.from_env({}) == Images()
