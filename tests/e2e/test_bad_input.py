"""What can't be is refused with words that help, and nothing that runs is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

NOWHERE = "127.0.0.1:1/no-such-image:dev"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "bad-input", "demo")
    cluster.create({"nodeSets": {"namespaces": ["bad-input-2"]}}, cpu={"replicas": 1})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


@pytest.fixture(autouse=True)
def untouched(cluster: Cluster) -> Iterator[None]:
    """What runs before a test runs after it, and takes jobs."""
    before = running(cluster)
    yield
    assert running(cluster) == before
    cluster.wait_ready()
    assert cluster.login("srun", "--nodelist=cpu-0", "hostname") == "cpu-0\n"


def running(cluster: Cluster) -> dict[str, str]:
    """The containers of slurmctld and of the node: another id is another life."""
    pods = cluster.pods()
    names = [name for name in pods if name == "cpu-0" or "slurmctld" in name]
    return {name: pods[name]["status"]["containerStatuses"][0]["containerID"] for name in names}


def told(cluster: Cluster, what: str, kind: str, reason: str) -> str:
    """The message of a condition that is False for this reason."""

    def found() -> str | None:
        condition = cluster.condition(what, kind)
        return condition["message"] if (condition.get("status"), condition.get("reason")) == ("False", reason) else None

    return until(f"{what} has {kind}=False, {reason}", found)


def refused(cluster: Cluster, manifest: dict[str, Any]) -> str:
    """What kubectl says when the API server doesn't take it."""
    text = json.dumps(manifest)
    answer = cluster.sandbox.kubectl("apply", "-n", cluster.namespace, "-f", "-", stdin=text, check=False)
    assert answer.code != 0, "it was taken"
    return answer.stderr


def nodeset(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "seltzer.dev/v1alpha1",
        "kind": "NodeSet",
        "metadata": {"name": name},
        "spec": {"clusterRef": {"name": "demo"}, **spec},
    }


def test_names_that_slurm_or_kubernetes_cannot_have_are_refused(cluster: Cluster) -> None:
    for name in ("0first", "a" * 41):
        assert "choose one of at most 40" in refused(cluster, cluster.manifest("SlurmCluster", name, {}))
    for name in ("a.b", "all"):
        assert "choose" in refused(cluster, nodeset(name))


def test_fewer_than_no_nodes_are_refused(cluster: Cluster) -> None:
    assert "greater than or equal to 0" in refused(cluster, nodeset("less", replicas=-1))
    assert cluster.kubectl("scale", "nodeset/cpu", "--replicas=-1", check=False).code != 0


def test_more_nodes_than_slurm_can_have_change_nothing(cluster: Cluster) -> None:
    cluster.patch("nodeset", "cpu", {"spec": {"replicas": 10001}})
    message = told(cluster, "nodeset/cpu", "Accepted", "TooManyNodes")
    assert "10001 nodes are more than the 10000 that are left of MaxNodeCount=10000: set fewer replicas" in message
    assert list(cluster.pods("cpu")) == ["cpu-0"]
    cluster.apply(nodeset("more", replicas=1))
    cluster.wait("nodeset/more", "Ready")
    cluster.patch("nodeset", "cpu", {"spec": {"replicas": 1}})
    cluster.wait("nodeset/cpu", "Accepted")
    cluster.kubectl("delete", "nodeset", "more", "--timeout=180s")


def test_a_cluster_of_few_nodes_says_how_many_are_left(cluster: Cluster) -> None:
    cluster.configure({"slurm.conf": "MaxNodeCount=2\n"})
    cluster.apply(nodeset("more", replicas=2))
    message = told(cluster, "nodeset/more", "Ready", "TooManyNodes")
    assert "2 nodes are more than the 1 that are left of MaxNodeCount=2" in message
    assert "or a higher MaxNodeCount in slurm.conf of spec.config of the cluster" in message
    assert cluster.pods("more") == {}
    cluster.configure({"slurm.conf": None})
    cluster.wait("nodeset/more", "Ready")
    cluster.kubectl("delete", "nodeset", "more", "--timeout=180s")


def test_a_nodeset_of_no_cluster_waits_for_one(cluster: Cluster) -> None:
    orphan = nodeset("orphan", replicas=1)
    orphan["spec"]["clusterRef"]["name"] = "later"
    cluster.apply(orphan)
    message = told(cluster, "nodeset/orphan", "Accepted", "ClusterNotFound")
    assert message == "there is no SlurmCluster bad-input/later: create it, or correct spec.clusterRef"
    shown = cluster.seltzer("status", check=False).stdout
    assert "NodeSet orphan belongs to SlurmCluster 'later', which isn't there; make it with 'seltzer create" in shown
    cluster.apply(cluster.manifest("SlurmCluster", "later", {"login": {"replicas": 0}}))
    cluster.wait("slurmcluster/later", "Ready")
    cluster.wait("nodeset/orphan", "Ready")
    cluster.kubectl("delete", "nodeset/orphan", "slurmcluster/later", "--timeout=180s")


def test_of_two_nodesets_with_one_name_the_second_is_refused(cluster: Cluster) -> None:
    other = Cluster(cluster.sandbox, "bad-input-2", "demo")
    metadata = {"name": other.namespace}
    cluster.sandbox.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    twin = nodeset("cpu", replicas=1)
    twin["spec"]["clusterRef"]["namespace"] = cluster.namespace
    other.apply(twin)
    message = told(other, "nodeset/cpu", "Accepted", "NameTaken")
    assert "NodeSet bad-input/cpu has the same name" in message
    assert message.endswith("choose another name")
    assert other.pods() == {}
    assert set(cluster.slurm_nodes()) == {"cpu-0"}
    other.kubectl("delete", "nodeset", "cpu", "--timeout=180s")
    assert set(cluster.slurm_nodes()) == {"cpu-0"}, "the other one's record stays"
    cluster.sandbox.kubectl("delete", "namespace", other.namespace, "--timeout=180s")


def test_a_nodeset_from_a_namespace_that_is_not_let_in_is_refused(cluster: Cluster) -> None:
    other = Cluster(cluster.sandbox, "bad-input-3", "demo")
    cluster.sandbox.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other.namespace}})
    stranger = nodeset("stranger", replicas=1)
    stranger["spec"]["clusterRef"]["namespace"] = cluster.namespace
    other.apply(stranger)
    message = told(other, "nodeset/stranger", "Accepted", "NotAllowed")
    assert "add it to spec.nodeSets.namespaces of the cluster" in message
    assert other.pods() == {}
    other.kubectl("delete", "nodeset", "stranger", "--timeout=180s")
    cluster.sandbox.kubectl("delete", "namespace", other.namespace, "--timeout=180s")


BAD_TEMPLATES = [
    ({"containers": None}, "removes slurmd, the container that the pod is for; keep it"),
    ({"containers": [{"name": "slurmd", "image": None}]}, "removes slurmd, the container that the pod is for; keep it"),
    ({"hostname": "me"}, "Slurm knows the pod by the name that it has; remove it"),
    ({"containers": "slurmd"}, "podTemplate.spec.containers: has one value where Kubernetes has a list or a map"),
    ({"containers": [{"image": "x"}]}, "podTemplate.spec.containers: an item has no name"),
]


@pytest.mark.parametrize(("spec", "words"), BAD_TEMPLATES)
def test_a_template_that_takes_away_what_the_pod_is_for_is_refused(
    cluster: Cluster, spec: dict[str, Any], words: str
) -> None:
    patch = [{"op": "add", "path": "/spec/podTemplate", "value": {"spec": spec}}]  # a merge patch would drop the nulls
    cluster.kubectl("patch", "nodeset", "cpu", "--type=json", f"--patch={json.dumps(patch)}")
    try:
        assert words in told(cluster, "nodeset/cpu", "Ready", "TemplateRefused")
    finally:
        cluster.kubectl("patch", "nodeset", "cpu", "--type=json", '-p=[{"op": "remove", "path": "/spec/podTemplate"}]')
    cluster.wait("nodeset/cpu", "Ready")


def test_a_template_that_the_api_server_refuses_is_reported_in_its_words(cluster: Cluster) -> None:
    bad = {"podTemplate": {"spec": {"priority": "high", "containers": [{"name": "side"}]}}}
    cluster.apply(nodeset("invalid", replicas=2, **bad))
    message = told(cluster, "nodeset/invalid", "Ready", "Refused")
    assert "spec.containers[1].image" in message or "priority" in message
    cluster.patch("slurmcluster", "demo", {"spec": {"rest": {"podTemplate": {"spec": {"dnsPolicy": "Sometimes"}}}}})
    message = told(cluster, "slurmcluster/demo", "Reconciled", "Refused")
    assert "Sometimes" in message
    assert cluster.condition("slurmcluster/demo", "Ready")["status"] == "True"
    cluster.patch("slurmcluster", "demo", {"spec": {"rest": {"podTemplate": None}}})
    cluster.wait("slurmcluster/demo", "Reconciled")
    cluster.kubectl("delete", "nodeset", "invalid", "--timeout=180s")


def test_an_image_that_does_not_exist_never_replaces_what_runs(cluster: Cluster) -> None:
    """Neither of the controller, nor of the REST API, nor of login."""
    parts = ("controller", "rest", "login")
    cluster.patch("slurmcluster", "demo", {"spec": {part: {"image": NOWHERE} for part in parts}})
    advice = "check the image's name and the registry's credentials"

    def tried() -> str | None:
        found = cluster.condition("slurmcluster/demo", "ConfigValid")
        return found["message"] if NOWHERE in found["message"] else None

    assert advice in until("the trial says which image is missing", tried)
    until("new pods of REST and login wait", lambda: len(waiting(cluster)) == 2)
    for kind in ("Ready", "ControllerReady", "RestReady", "LoginReady"):
        assert cluster.condition("slurmcluster/demo", kind)["status"] == "True", "the old ones go on"
    assert cluster.login("sinfo", "--noheader", "--format=%D").split() == ["1"]
    cluster.patch("slurmcluster", "demo", {"spec": {part: {"image": None} for part in parts}})
    until("they are gone", lambda: waiting(cluster) == [])


def waiting(cluster: Cluster) -> list[str]:
    """The pods of REST and login that have no image."""
    return [
        name
        for name, pod in cluster.pods().items()
        if ("slurmrestd" in name or "login" in name) and NOWHERE in json.dumps(pod["spec"])
    ]


def test_a_nodeset_whose_image_does_not_exist_says_so(cluster: Cluster) -> None:
    cluster.apply(nodeset("lost", replicas=1, image=NOWHERE))
    message = until("it says so", lambda: said(cluster, "nodeset/lost", NOWHERE))
    assert message.endswith("check the image's name and the registry's credentials")
    cluster.patch("nodeset", "lost", {"spec": {"image": None}})
    cluster.wait("nodeset/lost", "Ready")
    cluster.kubectl("delete", "nodeset", "lost", "--timeout=180s")


def said(cluster: Cluster, what: str, words: str, kind: str = "Ready") -> str | None:
    message: str = cluster.condition(what, kind).get("message", "")
    return message if words in message else None


def test_a_quota_that_is_used_up_is_reported_and_more_of_it_goes_on(cluster: Cluster) -> None:
    pods = len(cluster.pods())
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    cluster.apply({**quota, "spec": {"hard": {"pods": str(pods)}}})
    until("the quota counts", lambda: cluster.get("resourcequota/few").get("status", {}).get("used"))
    cluster.apply(nodeset("crowd", replicas=2))
    message = told(cluster, "nodeset/crowd", "Ready", "Refused")
    assert "exceeded quota: few" in message
    cluster.apply({**quota, "spec": {"hard": {"pods": str(pods + 2)}}})
    cluster.wait("nodeset/crowd", "Ready")
    cluster.kubectl("delete", "resourcequota/few", "nodeset/crowd", "--timeout=180s")


def test_a_volume_that_nobody_provides_is_reported_with_what_to_do(cluster: Cluster) -> None:
    storage = {"className": "no-such-class", "onDelete": "delete"}
    cluster.apply(cluster.manifest("SlurmCluster", "dry", {"controller": {"storage": storage}}))
    message = told(cluster, "slurmcluster/dry", "ControllerReady", "VolumePending")
    assert "the volume claim dry-slurmctld is pending" in message
    assert message.endswith(
        "if there is no StorageClass no-such-class, add it, or delete the cluster and create it with another "
        "controller.storage.className"
    )
    cluster.kubectl("delete", "slurmcluster/dry", "--timeout=180s")
    until("its claim is gone", lambda: cluster.get("pvc/dry-slurmctld") == {})


EXPLAINED = {
    "slurmcluster.spec.config": "Configuration on top of Seltzer's, by file",
    "nodeset.spec.clusterRef": "The cluster that the nodes belong to",
    "nodeset.spec.podTemplate.spec": "Any part of a Kubernetes pod's spec",
}


def test_every_field_is_explained(cluster: Cluster) -> None:
    for field, words in EXPLAINED.items():
        assert words in " ".join(cluster.kubectl("explain", field).stdout.split())
