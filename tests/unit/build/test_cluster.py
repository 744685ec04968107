"""A cluster's objects fit together, are labelled, owned and locked down, whatever its spec says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.builders.objects import cluster, nodeset

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import cluster as build
from seltzer.build import names
from seltzer.build import nodeset as build_nodeset
from seltzer.build.components import login
from seltzer.build.config import render
from seltzer.build.images import Images
from seltzer.build.merge import TemplateRefused
from seltzer.slurm import conf

Manifest = dict[str, Any]
IMAGES = Images()
TEMPLATE = {
    "metadata": {"labels": {names.COMPONENT: "mine", names.CLUSTER: "mine", "a": "b"}, "annotations": {"x": "y"}},
    "spec": {"containers": [{"name": "sssd", "image": "sssd"}], "volumes": [{"name": "more", "emptyDir": {}}]},
}
SPECS: dict[str, Manifest] = {
    "empty": {},
    "full": {
        "clusterName": "physics_2",
        "podTemplate": TEMPLATE,
        "controller": {
            "storage": {"size": 5, "className": "fast", "accessMode": "ReadWriteMany"},
            "standby": 1,
            "leaseDuration": "10s",
            "keepJobs": False,
            "hold": True,
            "podTemplate": TEMPLATE,
            "image": "mine",
        },
        "rest": {"replicas": 3, "podTemplate": TEMPLATE},
        "login": {
            "replicas": 0,
            "authorizedKeys": ["ssh-ed25519 AAAA me", "ssh-rsa BBBB you"],
            "authorizedKeysSecret": {"name": "more-keys"},
            "service": {"type": "LoadBalancer", "annotations": {"cloud": "yes"}},
            "podTemplate": TEMPLATE,
        },
        "nodeSets": {"namespaces": ["team"]},
        "config": {"slurm.conf": "Epilog=/a"},
    },
}


def everything(one: SlurmCluster) -> list[Manifest]:
    rendered = render(one, [nodeset()])
    return [
        *build.applied(one, IMAGES, [nodeset()]),
        *build.created_once(one),
        build.keys(one, b"a", b"b"),
        build.secret(one, login.COMPONENT, dict.fromkeys(login.COMPONENT.secret, b"c")),
        build.config_map(one, rendered),
        *build.trial(one, rendered, IMAGES),
        build_nodeset.pod(nodeset(), one, IMAGES, "cpu-0"),
        *build_nodeset.support(nodeset(namespace="team"), one, b"a"),
    ]


def named(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def pods(one: SlurmCluster) -> Iterator[Manifest]:
    """Each pod's metadata and spec."""
    for manifest in everything(one):
        if manifest["kind"] == "Deployment":
            yield manifest["spec"]["template"]
        elif manifest["kind"] == "Pod":
            yield manifest


def find(manifests: list[Manifest], name: str) -> Manifest:
    (found,) = (manifest for manifest in manifests if named(manifest) == name)
    return found


def pod_of(one: SlurmCluster, name: str) -> Manifest:
    spec: Manifest = find(build.applied(one, IMAGES), f"Deployment/{name}")["spec"]["template"]["spec"]
    return spec


@pytest.fixture(params=SPECS)
def one(request: pytest.FixtureRequest) -> SlurmCluster:
    return cluster(SPECS[request.param])


def test_every_object_says_whose_it_is(one: SlurmCluster) -> None:
    for manifest in everything(one):
        metadata = manifest["metadata"]
        component = metadata["labels"][names.COMPONENT]
        assert manifest["apiVersion"] and manifest["kind"] and metadata["namespace"]
        assert metadata["labels"].items() >= names.labels(one, component).items()
        assert all(len(value) <= 63 for value in metadata["labels"].values())
        owners = [(owner["kind"], owner["controller"]) for owner in metadata.get("ownerReferences", [])]
        assert owners == ([] if manifest["kind"] == "PersistentVolumeClaim" else [(owners[0][0], True)])


def test_every_object_is_plain_json_and_there_once(one: SlurmCluster) -> None:
    manifests = everything(one)
    assert json.loads(json.dumps(manifests)) == manifests
    identities = [(manifest["metadata"]["namespace"], named(manifest)) for manifest in manifests]
    assert len(identities) == len(set(identities))


def test_the_same_cluster_gives_the_same_objects(one: SlurmCluster) -> None:
    assert everything(one) == everything(one)


def test_the_objects_have_the_names_of_the_contract() -> None:
    found = {named(manifest) for manifest in everything(cluster())}
    controller = {"Deployment", "PersistentVolumeClaim", "Service", "EndpointSlice", "Lease", "ServiceAccount", "Role"}
    assert {f"{kind}/demo-slurmctld" for kind in controller} <= found
    for component in ("slurmrestd", "login"):
        assert {
            f"{kind}/demo-{component}" for kind in ("Deployment", "Service", "ServiceAccount", "ConfigMap")
        } <= found
    for component in ("slurmctld", "slurmrestd", "login", "slurmd"):
        assert f"NetworkPolicy/demo-{component}" in found
    digest = build.trial_id(cluster(), render(cluster(), [nodeset()]), IMAGES)
    assert {"Secret/demo-keys", "Secret/demo-login", "ConfigMap/demo-config"} <= found
    assert {f"Pod/demo-trial-{digest[:10]}", f"ConfigMap/demo-trial-{digest[:10]}"} <= found


def test_selectors_find_their_pods_whatever_labels_a_user_sets(one: SlurmCluster) -> None:
    manifests = everything(one)
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            labels = manifest["spec"]["template"]["metadata"]["labels"]
            component = manifest["metadata"]["labels"][names.COMPONENT]
            assert manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()
            policy = find(manifests, f"NetworkPolicy/demo-{component}")
            assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
            service = find(manifests, f"Service/demo-{component}")
            assert service["spec"].get("selector", {}).items() <= labels.items()


def test_a_users_changes_are_in_the_pods() -> None:
    for pod in pods(cluster(SPECS["full"])):
        if pod["metadata"]["labels"][names.COMPONENT] in {"slurmctld", "slurmrestd", "login"}:
            assert pod["metadata"]["labels"]["a"] == "b"
            assert pod["metadata"]["annotations"]["x"] == "y"
            assert "sssd" in {container["name"] for container in pod["spec"]["containers"]}


def test_a_components_template_goes_over_that_of_all() -> None:
    everywhere = {"spec": {"priorityClassName": "low", "schedulerName": "mine"}}
    spec = {"podTemplate": everywhere, "rest": {"podTemplate": {"spec": {"priorityClassName": "high"}}}}
    assert pod_of(cluster(spec), "demo-slurmrestd")["priorityClassName"] == "high"
    assert pod_of(cluster(spec), "demo-slurmrestd")["schedulerName"] == "mine"
    assert pod_of(cluster(spec), "demo-login")["priorityClassName"] == "low"


@pytest.mark.parametrize("component", ["controller", "rest", "login"])
def test_the_main_container_cannot_be_taken_away(component: str) -> None:
    with pytest.raises(TemplateRefused, match="the container that the pod is for"):
        build.applied(cluster({component: {"podTemplate": {"spec": {"containers": None}}}}), IMAGES)


def test_every_mount_has_its_volume_and_every_volume_of_ours_is_mounted(one: SlurmCluster) -> None:
    for pod in pods(one):
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])} - {"more"}
        containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        mounts = {mount["name"] for each in containers for mount in each.get("volumeMounts", [])}
        assert mounts == volumes


def test_what_the_pods_mount_is_made_by_us(one: SlurmCluster) -> None:
    made = {named(manifest) for manifest in everything(one)}
    for pod in pods(one):
        for volume in pod["spec"].get("volumes", []):
            if "configMap" in volume:
                assert f"ConfigMap/{volume['configMap']['name']}" in made
            if "persistentVolumeClaim" in volume:
                assert f"PersistentVolumeClaim/{volume['persistentVolumeClaim']['claimName']}" in made
            if "secret" in volume and volume["secret"]["secretName"] != "more-keys":
                secret = next(m for m in everything(one) if named(m) == f"Secret/{volume['secret']['secretName']}")
                assert {item["key"] for item in volume["secret"]["items"]} <= secret["data"].keys()


def test_no_pod_has_more_rights_than_pod_securitys_baseline(one: SlurmCluster) -> None:
    baseline = {"AUDIT_WRITE", "CHOWN", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"}
    for pod in pods(one):
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["enableServiceLinks"] is False
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            if container["name"] != "sssd":
                security = container["securityContext"]
                assert security["allowPrivilegeEscalation"] is False
                assert security["capabilities"]["drop"] == ["ALL"]
                assert set(security["capabilities"].get("add", [])) <= baseline
                assert all("hostPort" not in port for port in container.get("ports", []))


def test_who_need_not_be_root_is_not_and_writes_nowhere_but_to_volumes(one: SlurmCluster) -> None:
    for pod in pods(one):
        for container in pod["spec"]["containers"]:
            if container["name"] in {"slurmctld", "slurmrestd", "sackd"}:
                security = {**pod["spec"]["securityContext"], **container["securityContext"]}
                assert security["runAsNonRoot"] is True
                assert security["readOnlyRootFilesystem"] is True
                assert "add" not in security["capabilities"]


def test_only_the_controller_gets_a_token(one: SlurmCluster) -> None:
    for pod in pods(one):
        expected = pod["metadata"]["labels"][names.COMPONENT] == "slurmctld"
        assert pod["spec"]["automountServiceAccountToken"] is expected
    for manifest in everything(one):
        if manifest["kind"] == "ServiceAccount":
            assert manifest["automountServiceAccountToken"] is False


def test_the_guard_may_change_its_lease_and_its_endpointslice_and_nothing_else() -> None:
    rules = find(everything(cluster()), "Role/demo-slurmctld")["rules"]
    assert {resource for rule in rules for resource in rule["resources"]} == {"leases", "endpointslices"}
    for rule in rules:
        assert rule["resourceNames"] == ["demo-slurmctld"]
        assert rule["verbs"] == ["get", "update", "patch"]


def test_the_controller_is_never_killed_by_a_probe_and_leaves_a_dead_node_soon() -> None:
    spec = pod_of(cluster(), "demo-slurmctld")
    (container,) = spec["containers"]
    assert "livenessProbe" not in container and "startupProbe" not in container
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "guard"}, "a standby has no slurmctld"
    assert spec["terminationGracePeriodSeconds"] == 60
    assert {toleration["tolerationSeconds"] for toleration in spec["tolerations"]} == {5}
    assert find(everything(cluster()), "Deployment/demo-slurmctld")["spec"]["strategy"] == {"type": "Recreate"}


def controller(**spec: Any) -> SlurmCluster:
    return cluster({"controller": {"storage": {"accessMode": "ReadWriteMany"}, **spec}})


def environment(one: SlurmCluster) -> dict[str, str]:
    (container,) = pod_of(one, "demo-slurmctld")["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


_THREE = controller(standby=2)


def test_standbys_are_more_of_the_same_pod_on_other_nodes() -> None:
    alone, three = (find(build.applied(one, IMAGES), "Deployment/demo-slurmctld") for one in (controller(), _THREE))
    assert (alone["spec"]["replicas"], three["spec"]["replicas"]) == (1, 3)
    assert alone["spec"]["template"] == three["spec"]["template"], "adding a standby restarts slurmctld"
    (apart,) = three["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert (apart["topologyKey"], apart["maxSkew"]) == ("kubernetes.io/hostname", 1)
    # Strictly, and dead nodes count: a standby waits for one to come back instead of joining the active one.
    assert (apart["whenUnsatisfiable"], apart["nodeTaintsPolicy"]) == ("DoNotSchedule", "Ignore")
    assert apart["labelSelector"]["matchLabels"] == names.selector(_THREE, "slurmctld")


def test_who_empties_nodes_takes_one_controller_at_a_time() -> None:
    for one in (controller(), _THREE):
        budget = find(build.applied(one, IMAGES), "PodDisruptionBudget/demo-slurmctld")["spec"]
        assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": names.selector(one, "slurmctld")}}


def test_the_guard_is_told_of_lease_and_jobs_by_its_environment_and_of_a_hold_by_its_lease() -> None:
    usual = environment(controller())
    assert (usual["SELTZER_LEASE_DURATION"], usual["SELTZER_KEEP_JOBS"]) == ("3", "true")
    other = environment(controller(leaseDuration="1m30s", keepJobs=False))
    assert (other["SELTZER_LEASE_DURATION"], other["SELTZER_KEEP_JOBS"]) == ("90", "false")
    assert build.controller_pod(controller(hold=True), IMAGES) == build.controller_pod(controller(), IMAGES)
    for one, said in ((controller(), {}), (controller(hold=True), {"seltzer.dev/hold": "true"})):
        assert find(build.created_once(one), "Lease/demo-slurmctld")["metadata"].get("annotations", {}) == said


def test_cores_have_room_and_a_limit() -> None:
    volumes = {volume["name"]: volume for volume in pod_of(cluster(), "demo-slurmctld")["volumes"]}
    assert volumes["run"]["emptyDir"] == {"sizeLimit": "3Gi"}


def test_tolerations_of_the_users_come_on_top() -> None:
    theirs = [{"key": "gpu", "operator": "Exists"}, {"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 99}]
    spec = pod_of(cluster({"controller": {"podTemplate": {"spec": {"tolerations": theirs}}}}), "demo-slurmctld")
    assert spec["tolerations"][:2] == theirs
    assert [toleration["key"] for toleration in spec["tolerations"][2:]] == ["node.kubernetes.io/not-ready"]


def test_commands_in_the_controllers_pod_reach_the_slurmctld_in_it() -> None:
    spec = pod_of(cluster(), "demo-slurmctld")
    assert spec["hostname"] == "demo-slurmctld"
    assert spec["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["demo-slurmctld.ns.svc"]}]


def test_the_controllers_service_finds_nobody_by_itself() -> None:
    """The guard in charge enters itself; a selector would bring in pods that aren't."""
    manifests = everything(cluster())
    assert "selector" not in find(manifests, "Service/demo-slurmctld")["spec"]
    endpoints = find(manifests, "EndpointSlice/demo-slurmctld")
    assert endpoints["metadata"]["labels"]["kubernetes.io/service-name"] == "demo-slurmctld"
    assert endpoints["endpoints"] == []
    served = {(port["name"], port["port"]) for port in find(manifests, "Service/demo-slurmctld")["spec"]["ports"]}
    assert served == {(port["name"], port["port"]) for port in endpoints["ports"]}


def test_what_the_guard_fills_in_is_never_applied() -> None:
    once = {named(manifest) for manifest in build.created_once(cluster())}
    assert once == {"Lease/demo-slurmctld", "EndpointSlice/demo-slurmctld"}
    assert not once & {named(manifest) for manifest in build.applied(cluster(), IMAGES)}


@pytest.mark.parametrize(
    ("storage", "found"),
    [
        ({}, {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}),
        (
            {"size": 7, "className": "fast", "accessMode": "ReadWriteMany"},
            {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "7"}},
                "storageClassName": "fast",
            },
        ),
    ],
)
def test_the_claim_is_what_storage_says(storage: Manifest, found: Manifest) -> None:
    one = cluster({"controller": {"storage": storage}})
    assert find(build.applied(one, IMAGES), "PersistentVolumeClaim/demo-slurmctld")["spec"] == found


def test_slurmrestd_has_a_configuration_that_no_change_of_the_clusters_touches() -> None:
    plain, changed = (
        find(build.applied(cluster(spec), IMAGES), "ConfigMap/demo-slurmrestd")["data"]
        for spec in ({}, {"config": {"slurm.conf": "TreeWidth=4"}})
    )
    assert plain == changed
    assert conf.parse(plain["slurm.conf"]).get("SlurmctldHost") == "demo-slurmctld(demo-slurmctld.ns.svc)"


def test_the_keys_of_a_secret_open_one_account() -> None:
    one = cluster(SPECS["full"])
    data = find(everything(one), "ConfigMap/demo-login")["data"]
    said = dict(line.split(maxsplit=1) for line in data["sshd_config"].splitlines())
    spec = pod_of(one, "demo-login")
    mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert said["AuthorizedKeysFile"].split() == [f"{mounts['user-keys']}/%u", f"{mounts['authorized-keys']}/%u"]
    (more,) = (each["secret"] for each in spec["volumes"] if each["name"] == "authorized-keys")
    assert (more["items"], more["optional"]) == ([{"key": "authorized_keys", "path": "user"}], True)
    assert (said["PermitRootLogin"], said["PasswordAuthentication"], said["UsePAM"]) == ("no", "no", "no")
    service = find(everything(one), "Service/demo-login")
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["metadata"]["annotations"] == {"cloud": "yes"}


def test_a_new_key_of_a_users_restarts_no_login_pod() -> None:
    other = {"login": {"authorizedKeys": ["ssh-ed25519 CCCC new"]}}
    assert pod_of(cluster(), "demo-login") == pod_of(cluster(other), "demo-login")


def test_without_login_replicas_everything_but_the_pods_is_there() -> None:
    manifests = build.applied(cluster({"login": {"replicas": 0}}), IMAGES)
    assert find(manifests, "Deployment/demo-login")["spec"]["replicas"] == 0


def test_a_trial_is_the_controller_that_touches_nothing() -> None:
    one = cluster(SPECS["full"])
    rendered = render(one, [])
    config, pod = build.trial(one, rendered, IMAGES)
    (container,) = pod["spec"]["containers"]
    (original, *_) = pod_of(one, "demo-slurmctld")["containers"]
    assert container["image"] == original["image"] == "mine"
    assert container["args"] == ["try"]
    assert not {"readinessProbe", "livenessProbe", "startupProbe", "ports"} & container.keys()
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["hostname"] == "demo-slurmctld", "slurmctld starts under no other name"
    assert not any("secret" in volume or "persistentVolumeClaim" in volume for volume in pod["spec"]["volumes"])
    assert config["data"] == rendered.files
    for manifest in (config, pod):
        # Of what it tries: this configuration, in this pod.
        assert manifest["metadata"]["labels"][names.TRIAL] == build.trial_id(one, rendered, IMAGES)
        assert manifest["metadata"]["labels"][names.COMPONENT] == "trial", "else it would be taken for the controller"


def test_the_rolled_out_configuration_carries_its_digest() -> None:
    rendered = render(cluster(), [])
    manifest = build.config_map(cluster(), rendered)
    assert manifest["metadata"]["annotations"] == {names.CONFIG: rendered.digest}
    assert manifest["data"] == rendered.files


def test_keys_are_kept_as_they_are() -> None:
    data = build.keys(cluster(), b"\x00\xff", b"jwt")["data"]
    assert {name: base64.b64decode(value) for name, value in data.items()} == {
        "slurm.key": b"\x00\xff",
        "jwt_hs256.key": b"jwt",
    }
    (name,) = login.COMPONENT.secret
    host_key = build.secret(cluster(), login.COMPONENT, {name: b"host"})["data"]
    assert {name: base64.b64decode(value) for name, value in host_key.items()} == {"ssh_host_ed25519_key": b"host"}


@pytest.mark.parametrize("component", ["controller", "rest", "login"])
def test_resources_of_the_users_replace_ours(component: str) -> None:
    name = {"controller": "slurmctld", "rest": "slurmrestd", "login": "login"}[component]
    limits = {"limits": {"cpu": 1, "memory": "1Gi"}}
    container = pod_of(cluster({component: {"resources": limits}}), f"demo-{name}")["containers"][0]
    assert container["resources"] == {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert pod_of(cluster(), f"demo-{name}")["containers"][0]["resources"]["requests"]


def peers(manifests: list[Manifest], name: str, port: int | None) -> set[str]:
    """Who may come to a port (None: to any), as component@namespace."""
    found = set[str]()
    for rule in find(manifests, f"NetworkPolicy/{name}")["spec"]["ingress"]:
        if port in [each["port"] for each in rule.get("ports", [{"port": None}])]:
            for peer in rule.get("from", [{}]):
                labels = peer.get("podSelector", {}).get("matchLabels", {})
                where = peer.get("namespaceSelector", {}).get("matchLabels", {}).get("kubernetes.io/metadata.name", "*")
                found.add(f"{labels.get(names.COMPONENT, labels.get(names.NAME, '*'))}@{where}")
    return found


def test_who_may_talk_to_whom() -> None:
    manifests = build.applied(cluster({"nodeSets": {"namespaces": ["team"]}}), IMAGES)
    nodes = {"slurmd@ns", "slurmd@team"}
    assert peers(manifests, "demo-slurmctld", 6817) == {"slurmrestd@ns", "login@ns", "seltzer-operator@*"} | nodes
    assert peers(manifests, "demo-slurmctld", 6816) == {"seltzer-operator@*"}
    assert peers(manifests, "demo-slurmrestd", 6820) == {"login@ns", "seltzer-operator@*"}
    assert peers(manifests, "demo-login", 22) == {"*@*"}
    assert peers(manifests, "demo-login", None) == {"slurmctld@ns"} | nodes
    assert peers(manifests, "demo-slurmd", None) == {"slurmctld@ns", "login@ns"} | nodes
    for name in ("demo-slurmctld", "demo-slurmrestd"):
        assert peers(manifests, name, None) == set()
