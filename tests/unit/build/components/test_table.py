"""What components say about each other fits together, and what is made from the table has all of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import cluster

from seltzer.api.login import TAKEN
from seltzer.build import cluster as build
from seltzer.build import names, network
from seltzer.build.components.base import OPERATOR, Component
from seltzer.build.components.table import BY_NAME, COMPONENTS, CONTROL_PLANE, is_variant, released
from seltzer.build.images import Images

ONE = cluster({"nodeSets": {"namespaces": ["team"]}})
EACH = pytest.mark.parametrize("component", COMPONENTS, ids=lambda each: each.name)


def made(component: Component) -> dict[str, dict[str, Any]]:
    """A component's objects by kind."""
    return {each["kind"]: each for each in component.applied(ONE, Images())}


def test_no_login_set_can_have_the_name_of_a_component() -> None:
    """Its objects would have the names of those of a cluster called `<cluster>-login`."""
    assert set(BY_NAME) <= set(TAKEN)


def test_each_component_has_one_row_and_each_condition_one_component() -> None:
    assert len(BY_NAME) == len(COMPONENTS)
    types = [each.condition.type for each in CONTROL_PLANE if each.condition]
    assert len(set(types)) == len(types)
    assert {"Ready", "ConfigValid", "StateSafe", "Reconciled", "StandbyReady"}.isdisjoint(types)


@EACH
def test_peers_and_ports_of_a_policy_exist(component: Component) -> None:
    for each in component.ingress:
        assert set(each.peers) <= {OPERATOR, *BY_NAME}
        assert set(each.ports) <= set(component.ports)


@EACH
def test_all_objects_carry_the_components_name(component: Component) -> None:
    for manifest in [*component.applied(ONE, Images()), *component.created_once(ONE)]:
        assert manifest["metadata"]["name"] == component.named(ONE)
        assert manifest["metadata"]["labels"][names.COMPONENT] == component.name


@pytest.mark.parametrize("component", CONTROL_PLANE, ids=lambda each: each.name)
def test_a_part_of_the_control_plane_is_a_deployment_with_its_ports_image_and_log(component: Component) -> None:
    spec = made(component)["Deployment"]["spec"]["template"]["spec"]
    containers = {container["name"]: container for container in spec["containers"]}
    main = containers[component.log.container]
    assert main["image"] == f"seltzer.dev/{component.name}:dev"
    ports = {port["name"]: port["containerPort"] for each in containers.values() for port in each.get("ports", ())}
    assert ports == component.ports
    assert {port["port"] for port in made(component)["Service"]["spec"]["ports"]} == set(component.ports.values())


@pytest.mark.parametrize(
    "component", [each for each in COMPONENTS if each.config_annotation], ids=lambda each: each.name
)
def test_a_component_whose_pods_are_refreshed_has_a_config_map(component: Component) -> None:
    assert "ConfigMap" in made(component)


def test_a_cluster_has_the_objects_of_every_component() -> None:
    found = build.applied(ONE, Images())
    for component in COMPONENTS:
        assert all(each in found for each in component.applied(ONE, Images()))
        policies = [each for each in found if each["kind"] == "NetworkPolicy"]
        assert [each["metadata"]["name"] for each in policies].count(component.named(ONE)) == 1


def test_each_login_set_is_a_peer_wherever_login_pods_are_and_has_a_policy_of_its_own() -> None:
    sets = cluster({"logins": [{"name": "gpu"}]})
    policies = {each["metadata"]["name"]: each["spec"] for each in network.applied(sets)}
    assert policies["demo-login-gpu"]["podSelector"]["matchLabels"] == names.selector(sets, "login-gpu")
    assert policies["demo-login-gpu"]["ingress"] == policies["demo-login"]["ingress"]
    for name in ("demo-slurmctld", "demo-slurmd", "demo-slurmrestd"):
        peers = [peer["podSelector"]["matchLabels"] for rule in policies[name]["ingress"] for peer in rule["from"]]
        assert names.selector(sets, "login") in peers
        assert names.selector(sets, "login-gpu") in peers


def test_the_name_of_a_variant_is_no_components_name() -> None:
    assert is_variant("login-gpu")
    assert not any(is_variant(label) for label in (*BY_NAME, "config", "trial", "users", "home", ""))


def test_a_release_names_the_image_of_every_component_and_the_operators_pod_reads_them_back() -> None:
    images = released("registry.example/seltzer", "v1")
    assert {name: images.of(name) for name in BY_NAME} == {
        name: f"registry.example/seltzer/{name}:v1" for name in BY_NAME
    }
    environ = {each["name"]: each["value"] for each in images.to_env()}
    assert Images.from_env(environ) == images
    assert {Images().of(name) for name in BY_NAME} == set(released().named.values())


def test_an_image_variable_of_a_name_with_a_hyphen_is_read_back() -> None:
    images = Images({"two-words": "a"})
    assert Images.from_env({each["name"]: each["value"] for each in images.to_env()}) == images


@pytest.mark.parametrize("component", CONTROL_PLANE, ids=lambda each: each.name)
def test_a_component_says_whether_its_pods_have_the_keys_of_users(component: Component) -> None:
    spec = made(component)["Deployment"]["spec"]["template"]["spec"]
    assert component.mounts_user_keys is ("user-keys" in {volume["name"] for volume in spec["volumes"]})
