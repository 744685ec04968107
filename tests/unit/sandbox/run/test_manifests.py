"""What every sandbox has in it can be applied, and fits together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seltzer_sandbox.run import apiserver, components, manifests, network

ALL = manifests.all_manifests(unified=True)
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def of(kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in ALL if manifest["kind"] == kind]


def names(kind: str) -> set[str]:
    return {manifest["metadata"]["name"] for manifest in of(kind)}


def test_exactly_one_storage_class_is_the_default() -> None:
    defaults = [each for each in of("StorageClass") if each["metadata"]["annotations"].get(DEFAULT_CLASS) == "true"]
    assert [each["metadata"]["name"] for each in defaults] == ["shared"]
    assert names("StorageClass") == {"shared", "limited"}


def test_the_runtime_class_is_one_that_containerd_knows() -> None:
    (found,) = of("RuntimeClass")
    assert found["handler"] == found["metadata"]["name"] == components.WRITABLE_CGROUPS
    assert all(each["kind"] != "RuntimeClass" for each in manifests.all_manifests(unified=False))


@pytest.mark.parametrize("manifest", ALL, ids=lambda manifest: f"{manifest['kind']}/{manifest['metadata']['name']}")
def test_every_manifest_goes_where_its_kind_lives(manifest: dict[str, Any]) -> None:
    path = apiserver._PATHS[manifest["kind"]]
    prefix = "/api/" if manifest["apiVersion"] == "v1" else "/apis/"
    assert path.startswith(f"{prefix}{manifest['apiVersion']}/")
    assert ("{namespace}" in path) == ("namespace" in manifest["metadata"])
    json.dumps(manifest)


def test_no_manifest_is_there_twice() -> None:
    keys = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in ALL]
    assert len(set(keys)) == len(keys)


def test_every_role_that_is_bound_exists_and_so_does_every_account() -> None:
    for binding in of("ClusterRoleBinding"):
        assert binding["roleRef"]["name"] in names("ClusterRole")
        for subject in binding["subjects"]:
            assert subject["kind"] == "User" or subject["name"] in names("ServiceAccount")


def test_dns_is_where_every_pod_looks_for_it() -> None:
    (service,) = of("Service")
    (deployment,) = of("Deployment")
    assert service["spec"]["clusterIP"] == network.DNS_SERVICE
    assert {port["protocol"] for port in service["spec"]["ports"] if port["port"] == 53} == {"UDP", "TCP"}
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert pod["spec"]["serviceAccountName"] in names("ServiceAccount")
    assert {volume["configMap"]["name"] for volume in pod["spec"]["volumes"]} <= names("ConfigMap")
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "Never", "there is no registry"


def test_dns_leaves_a_dead_node_at_once() -> None:
    (deployment,) = of("Deployment")
    tolerated = {
        each["key"]: each["tolerationSeconds"] for each in deployment["spec"]["template"]["spec"]["tolerations"]
    }
    assert tolerated == {"node.kubernetes.io/not-ready": 0, "node.kubernetes.io/unreachable": 0}
