"""Nodes are where they should be, and Slurm knows where that is: the labels of Kubernetes nodes say it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness import Cluster, Sandbox, until

MACHINES = ("n1", "n2", "n3")
NODES = [f"hpc--{machine}" for machine in MACHINES]
PREFIX = "example.com"
LABELS = {
    "n1": {"pool": "hpc", "zone": "a", "rack": "r1", "model": "a100"},
    "n2": {"pool": "hpc", "zone": "a", "rack": "r2", "model": "h100"},
    "n3": {"pool": "hpc", "zone": "a", "rack": "r1", "model": "a100"},
}


def label(sandbox: Sandbox, machine: str, **labels: str | None) -> None:
    """None removes one."""
    words = [f"{PREFIX}/{key}-" if value is None else f"{PREFIX}/{key}={value}" for key, value in labels.items()]
    sandbox.kubectl("label", "node", machine, "--overwrite", *words)


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "places", "demo")
    for machine, labels in LABELS.items():
        label(installed, machine, **labels)
    cluster.create_from(Path(__file__).with_name("places.yaml"))
    cluster.wait_ready()
    yield cluster
    for machine in MACHINES:
        label(installed, machine, pool=None, zone=None, rack=None, model=None)
    cluster.delete_later()


def leaves(cluster: Cluster) -> dict[str, str]:
    """The leaves of Slurm's tree that have nodes."""
    lines = cluster.login("scontrol", "show", "topology").splitlines()
    switches = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    return {each["SwitchName"]: each["Nodes"] for each in switches if each.get("Nodes") and "Switches" not in each}


def nodes_of(cluster: Cluster, job: str) -> list[str]:
    return cluster.login("scontrol", "show", "hostnames", cluster.job(job)["NodeList"]).split()


def idle(cluster: Cluster) -> list[str]:
    return sorted(name for name, state in cluster.slurm_nodes().items() if state.startswith("IDLE+DYNAMIC"))


def test_each_selected_machine_has_a_node_with_its_name(cluster: Cluster) -> None:
    assert idle(cluster) == NODES
    on = {name: pod["spec"]["nodeName"] for name, pod in cluster.pods("hpc").items()}
    assert on == dict(zip(NODES, MACHINES, strict=True))
    assert cluster.nodeset("hpc")["status"]["desiredReplicas"] == 3
    assert sorted(cluster.login("srun", "--nodes=3", "hostname").split()) == NODES


def test_jobs_with_switches_are_placed_together(cluster: Cluster) -> None:
    """By the order of names, n1 and n2 would be the first two."""
    assert leaves(cluster) == {"a/r1": "hpc--n[1,3]", "a/r2": "hpc--n2"}
    job = cluster.hold("--nodes=2", "--switches=1@5:00", "--exclusive")
    assert nodes_of(cluster, job) == ["hpc--n1", "hpc--n3"]
    cluster.release(job)


def test_the_tree_follows_a_machine_that_moves_and_its_jobs_go_on(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=hpc--n2,hpc--n3", "--nodes=2")
    label(cluster.sandbox, "n2", rack="r1")
    label(cluster.sandbox, "n3", rack="r2")
    until("the tree has followed", lambda: leaves(cluster) == {"a/r1": "hpc--n[1-2]", "a/r2": "hpc--n3"})
    pair = cluster.hold("--nodes=2", "--switches=1@5:00", "--overcommit", "--ntasks=2")
    assert nodes_of(cluster, pair) == ["hpc--n1", "hpc--n2"]
    cluster.release(pair)
    cluster.release(job)


def test_a_missing_label_is_a_condition_and_the_node_takes_jobs(cluster: Cluster) -> None:
    label(cluster.sandbox, "n3", rack=None)
    cluster.wait("nodeset/hpc", "TopologyKnown", "False")
    condition = cluster.condition("nodeset/hpc", "TopologyKnown")
    assert condition["reason"] == "LabelsMissing"
    assert condition["message"].startswith("n3 lacks label example.com/rack")
    until("it is elsewhere", lambda: leaves(cluster).get("a/unknown") == "hpc--n3")
    assert cluster.login("srun", "--nodelist=hpc--n3", "hostname").strip() == "hpc--n3"
    assert "INVALID" not in cluster.slurm_nodes()["hpc--n3"]
    label(cluster.sandbox, "n3", rack="r1")
    cluster.wait("nodeset/hpc", "TopologyKnown")


def test_features_follow_labels_under_a_running_job(cluster: Cluster) -> None:
    assert cluster.login("srun", "--constraint=h100", "hostname").strip() == "hpc--n2"
    job = cluster.hold("--nodelist=hpc--n1")
    label(cluster.sandbox, "n1", model="b200")
    until("the feature is new", lambda: "b200" in cluster.slurm_node("hpc--n1").get("ActiveFeatures", ""))
    assert cluster.login("srun", "--constraint=b200", "hostname").strip() == "hpc--n1"
    assert cluster.slurm_node("hpc--n1")["ActiveFeatures"] == "hpc,set_hpc,b200"
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.release(job)


def test_a_node_leaves_when_its_last_job_has_ended_and_comes_back_with_its_name(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=hpc--n2")
    label(cluster.sandbox, "n2", pool=None)
    until("it is drained", lambda: "DRAIN" in cluster.slurm_nodes()["hpc--n2"])
    assert "its_Kubernetes_node" in cluster.login("sinfo", "-Nhn", "hpc--n2", "-o", "%E").replace(" ", "_")
    assert "hpc--n2" in cluster.pods("hpc")
    cluster.release(job)
    until("its pod is gone", lambda: "hpc--n2" not in cluster.pods("hpc"))
    until("its record is gone", lambda: "hpc--n2" not in cluster.slurm_nodes())
    assert cluster.nodeset("hpc")["status"]["desiredReplicas"] == 2
    label(cluster.sandbox, "n2", pool="hpc")
    until("it is back", lambda: idle(cluster) == NODES)


def test_a_persons_drain_outlives_the_label(cluster: Cluster) -> None:
    cluster.in_controller("scontrol", "update", "nodename=hpc--n3", "state=drain", "reason=fan is loud")
    label(cluster.sandbox, "n3", pool=None)
    until("its pod is gone", lambda: "hpc--n3" not in cluster.pods("hpc"))
    label(cluster.sandbox, "n3", pool="hpc")
    until("its pod is back", lambda: cluster.pods("hpc").get("hpc--n3", {}).get("status", {}).get("phase") == "Running")
    until("it has registered", lambda: "NOT_RESPONDING" not in cluster.slurm_nodes()["hpc--n3"])
    assert "DRAIN" in cluster.slurm_nodes()["hpc--n3"]
    cluster.in_controller("scontrol", "update", "nodename=hpc--n3", "state=resume")
    until("it takes jobs", lambda: idle(cluster) == NODES)


def test_a_cordon_drains_the_node_and_its_pod_stays(cluster: Cluster) -> None:
    uid = cluster.pods("hpc")["hpc--n3"]["metadata"]["uid"]
    cluster.sandbox.kubectl("cordon", "n3")
    until("it is drained", lambda: "DRAIN" in cluster.slurm_nodes()["hpc--n3"])
    cluster.sandbox.kubectl("uncordon", "n3")
    until("it takes jobs", lambda: idle(cluster) == NODES)
    assert cluster.pods("hpc")["hpc--n3"]["metadata"]["uid"] == uid


def test_it_cannot_be_scaled(cluster: Cluster) -> None:
    answer = cluster.kubectl("scale", "nodeset/hpc", "--replicas=2", check=False)
    assert answer.code != 0 and "so it can't be scaled: remove replicas" in answer.stderr
    answer = cluster.seltzer("scale", "hpc", "2", check=False)
    assert answer.code != 0 and "has placement perNode" in answer.stderr
    assert idle(cluster) == NODES


def test_nodes_without_limits_never_share_a_machine(cluster: Cluster) -> None:
    """Each of them reports a whole machine."""
    spec = {"clusterRef": {"name": "demo"}, "replicas": 4, "resources": {}}
    cluster.apply(cluster.manifest("NodeSet", "whole", spec))
    cluster.wait("nodeset/whole", "Ready", "False")

    def says() -> bool:
        message = str(cluster.condition("nodeset/whole", "Ready").get("message"))
        return "set spec.resources.limits" in message

    until("it says what to do", says)
    placed = [pod["spec"]["nodeName"] for pod in cluster.pods("whole").values() if "nodeName" in pod["spec"]]
    assert sorted(placed) == sorted(MACHINES)
    cluster.scale("whole", 3)
    cluster.wait("nodeset/whole", "Ready")
    cluster.kubectl("delete", "nodeset/whole", "--wait=false")


def test_autoscalers_find_the_default_of_replicas(cluster: Cluster) -> None:
    spec = {"clusterRef": {"name": "demo"}, "placement": "onePerNode"}
    cluster.apply(cluster.manifest("NodeSet", "plain", spec))
    until("it is written down", lambda: cluster.nodeset("plain")["spec"].get("replicas") == 1)
    cluster.kubectl("scale", "nodeset/plain", "--replicas=2")
    cluster.wait("nodeset/plain", "Ready")
    machines = {pod["spec"]["nodeName"] for pod in cluster.pods("plain").values()}
    assert len(machines) == 2


def test_without_spec_topology_nodes_lose_their_place_and_jobs_go_on(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=hpc--n1")
    cluster.patch("slurmcluster", "demo", {"spec": {"topology": None}})
    until("no node has a place", lambda: not cluster.slurm_node("hpc--n1").get("Topology"))
    assert len(cluster.login("srun", "--partition=hpc", "--nodes=3", "hostname").split()) == 3
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.release(job)
