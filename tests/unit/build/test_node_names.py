"""Every pod of a cluster finds every node by its name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import cluster, nodeset

from seltzer.build import cluster as objects
from seltzer.build import names, node_names
from seltzer.build.images import Images
from seltzer.build.merge import TemplateRefused
from seltzer.build.nodeset import pod, template

IMAGES = Images()
TEAMS = {"nodeSets": {"namespaces": ["team", "alpha"]}}
OURS, ALPHA, TEAM = (
    f"{service}.{namespace}.svc.cluster.local"
    for service, namespace in (
        ("demo-slurmd", "ns"),
        ("demo-slurmd-7bfba6e0", "alpha"),
        ("demo-slurmd-7bfba6e0", "team"),
    )
)


def searches(spec: dict[str, Any]) -> list[str]:
    found: list[str] = spec["dnsConfig"]["searches"]
    return found


def login(spec: dict[str, Any] | None = None, images: Images = IMAGES) -> dict[str, Any]:
    manifests = objects.applied(cluster(spec), images)
    found = next(each for each in manifests if (each["kind"], each["metadata"]["name"]) == ("Deployment", "demo-login"))
    built: dict[str, Any] = found["spec"]["template"]["spec"]
    return built


def test_a_node_has_the_name_of_its_pod_in_the_domain_of_its_namespace() -> None:
    built = pod(nodeset(), cluster(), IMAGES, "cpu-0")["spec"]
    assert (built["hostname"], built["subdomain"]) == ("cpu-0", "demo-slurmd")
    elsewhere = pod(nodeset(namespace="team"), cluster(TEAMS), IMAGES, "cpu-0")["spec"]
    assert f"{elsewhere['subdomain']}.team.svc.cluster.local" == TEAM


def test_all_pods_search_the_domains_of_all_namespaces_that_may_have_nodes() -> None:
    here, there = (pod(nodeset(namespace=each), cluster(TEAMS), IMAGES, "cpu-0")["spec"] for each in ("ns", "team"))
    assert searches(here) == searches(there) == searches(login(TEAMS)) == [OURS, ALPHA, TEAM]
    assert searches(login()) == [OURS]


def test_a_new_nodeset_changes_no_pod_and_a_new_namespace_all_of_them() -> None:
    assert template(nodeset(), cluster(TEAMS), IMAGES) != template(nodeset(), cluster(), IMAGES)
    assert login(TEAMS) != login()


def test_the_domain_is_that_of_kubernetes() -> None:
    images = Images(cluster_domain="k8s.example.org")
    assert searches(login(images=images)) == ["demo-slurmd.ns.svc.k8s.example.org"]


def test_the_users_search_domains_stay_and_come_first() -> None:
    dns = {"searches": ["example.org", OURS], "options": [{"name": "ndots", "value": "2"}]}
    spec = {"podTemplate": {"spec": {"dnsConfig": dns}}}
    built = pod(nodeset(spec), cluster(), IMAGES, "cpu-0")["spec"]
    assert built["dnsConfig"] == {**dns, "searches": ["example.org", OURS]}


def test_more_domains_than_a_pod_can_search_are_refused_with_what_to_do() -> None:
    for namespaces in ([f"n{number}" for number in range(24)], [f"{number}".rjust(63, "n") for number in range(20)]):
        spec = {"nodeSets": {"namespaces": namespaces}}
        with pytest.raises(TemplateRefused, match=r"remove namespaces from spec\.nodeSets\.namespaces"):
            pod(nodeset(), cluster(spec), IMAGES, "cpu-0")
        with pytest.raises(TemplateRefused):
            login(spec)
    login({"nodeSets": {"namespaces": [f"n{number}" for number in range(23)]}})


def test_a_service_covers_the_nodes_of_each_namespace_ready_or_not() -> None:
    own, other = node_names.services(cluster(TEAMS), [nodeset(), nodeset(namespace="team")])
    for service, namespace in ((own, "ns"), (other, "team")):
        assert service["metadata"]["namespace"] == namespace
        spec = service["spec"]
        assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
        labels = pod(nodeset(namespace=namespace), cluster(TEAMS), IMAGES, "cpu-0")["metadata"]["labels"]
        assert spec["selector"].items() <= labels.items()
    assert [
        f"{each['metadata']['name']}.{each['metadata']['namespace']}.svc.cluster.local" for each in (own, other)
    ] == [
        OURS,
        TEAM,
    ]
    assert names.NODESET not in other["metadata"]["labels"], "it is the cluster that keeps it"


def test_a_service_elsewhere_goes_with_the_last_nodeset_there() -> None:
    there = [nodeset(name=name, namespace="team") for name in ("gpu", "cpu")]
    (_, service) = node_names.services(cluster(TEAMS), there)
    assert [(each["name"], each["controller"]) for each in service["metadata"]["ownerReferences"]] == [
        ("cpu", False),
        ("gpu", False),
    ]
    assert node_names.services(cluster(TEAMS), reversed(there))[1] == service


def test_a_service_that_only_deleted_nodesets_need_is_left_to_go_with_them() -> None:
    deleted = nodeset(namespace="team", deleted=1_800_000_000.0)
    assert len(node_names.services(cluster(TEAMS), [deleted])) == 1
    (_, service) = node_names.services(cluster(TEAMS), [deleted, nodeset(name="gpu", namespace="team")])
    assert [each["name"] for each in service["metadata"]["ownerReferences"]] == ["gpu"]


def test_clusters_with_one_name_have_different_services_in_a_third_namespace() -> None:
    first, second = (node_names.service(cluster(namespace=each), "team") for each in ("ns", "other"))
    assert first != second
    assert node_names.service(cluster(namespace="team"), "team") not in {first, second}


def test_the_longest_names_fit() -> None:
    name = node_names.service(cluster(name="c" * 40), "team")
    assert len(name) <= 63


@pytest.mark.parametrize("field", ["hostname", "subdomain"])
def test_the_names_of_a_pod_cannot_be_changed(field: str) -> None:
    with pytest.raises(TemplateRefused, match=f"podTemplate.spec.{field}"):
        pod(nodeset({"podTemplate": {"spec": {field: "x"}}}), cluster(), IMAGES, "cpu-0")
