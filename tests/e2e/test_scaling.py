"""A NodeSet grows at once and shrinks without hurting a job: the cheapest nodes go, drained and empty."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

from seltzer.slurm.hostlist import expand

# Nobody listens there, so that it fails at once.
NO_IMAGE = "127.0.0.1:1/nonsense:dev"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "scaling", "demo")
    cluster.create(cpu={"replicas": 2})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def uids(cluster: Cluster) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in cluster.pods("cpu").items()}


def scaled(cluster: Cluster, replicas: int) -> None:
    """Scale, and wait until Kubernetes and Slurm both have so many nodes, all of which take jobs."""
    cluster.scale("cpu", replicas)
    until(f"{replicas} pods", lambda: len(cluster.pods("cpu")) == replicas)
    until("Slurm has a node for each pod", lambda: set(cluster.slurm_nodes()) == set(cluster.pods("cpu")))
    cluster.wait("nodeset/cpu", "Ready")


def test_a_running_job_survives_scaling_from_2_to_5_to_1(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=cpu-1")
    before = uids(cluster)
    scaled(cluster, 5)
    answers = cluster.login("srun", "--nodes=5", "hostname").split()
    assert sorted(answers) == [f"cpu-{number}" for number in range(5)]
    assert {name: uid for name, uid in uids(cluster).items() if name in before} == before, "nobody was replaced"
    scaled(cluster, 1)
    assert uids(cluster) == {"cpu-1": before["cpu-1"]}, "the busy one stays, whatever its number"
    assert cluster.jobs()[job] == "RUNNING"
    cluster.release(job)
    record = cluster.job(job)
    assert (record["JobState"], record["Restarts"], record["NodeList"]) == ("COMPLETED", "0", "cpu-1")
    events = cluster.told("NodeSet", "cpu")
    assert events["Created"] == "created cpu-[2-4]"
    # At once, or in two turns if the last step is still being cleared away on one of them.
    said = [each["message"] for each in cluster.events() if each["reason"] == "Removed"]
    parts = [message.removeprefix("removed ").partition(": ") for message in said]
    assert {why for _, _, why in parts} == {"fewer are wanted"}
    assert sorted(name for some, _, _ in parts for name in expand(some)) == ["cpu-0", "cpu-2", "cpu-3", "cpu-4"]


def test_kubectl_scale_sees_what_it_asked_for(cluster: Cluster) -> None:
    scaled(cluster, 2)
    assert cluster.kubectl("scale", "nodeset/cpu", "--current-replicas=2", "--replicas=3").code == 0
    cluster.wait("nodeset/cpu", "Ready")
    path = f"/apis/seltzer.dev/v1alpha1/namespaces/{cluster.namespace}/nodesets/cpu/scale"
    scale = json.loads(cluster.kubectl("get", "--raw", path).stdout)
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    chosen = cluster.kubectl("get", "pods", f"--selector={scale['status']['selector']}", "--output=name").stdout.split()
    assert sorted(chosen) == ["pod/cpu-0", "pod/cpu-1", "pod/cpu-2"]


def test_of_two_busy_nodes_the_one_whose_job_ends_first_goes(cluster: Cluster) -> None:
    """The numbers say cpu-1, so only the jobs' time limits can say cpu-0."""
    scaled(cluster, 2)
    early = cluster.hold("--nodelist=cpu-0", "--time=10", "--exclusive")
    late = cluster.hold("--nodelist=cpu-1", "--time=60", "--exclusive")
    before = uids(cluster)
    cluster.scale("cpu", 1)
    until("cpu-0 is drained", lambda: "DRAIN" in cluster.slurm_nodes()["cpu-0"])
    assert cluster.slurm_node("cpu-0")["Reason"].startswith("seltzer:")
    assert "DRAIN" not in cluster.slurm_nodes()["cpu-1"]
    until("the NodeSet says whom it waits for", lambda: "waiting for the jobs on cpu-0" in ready(cluster)["message"])
    assert uids(cluster) == before
    cluster.release(early)
    until("cpu-0 is gone", lambda: set(cluster.pods("cpu")) == {"cpu-1"} == set(cluster.slurm_nodes()))
    assert cluster.job(early)["Restarts"] == "0"
    cluster.release(late)
    assert cluster.job(late)["Restarts"] == "0"


def ready(cluster: Cluster) -> dict[str, str]:
    return cluster.condition("nodeset/cpu", "Ready")


def test_a_scale_in_that_is_taken_back_leaves_everything_as_it_was(cluster: Cluster) -> None:
    scaled(cluster, 2)
    jobs = [cluster.hold(f"--nodelist=cpu-{number}") for number in (0, 1)]
    before = uids(cluster)
    cluster.scale("cpu", 1)
    until("one is drained", lambda: any("DRAIN" in state for state in cluster.slurm_nodes().values()))
    cluster.scale("cpu", 2)
    until("nobody is drained", lambda: not any("DRAIN" in state for state in cluster.slurm_nodes().values()))
    cluster.wait("nodeset/cpu", "Ready")
    assert uids(cluster) == before
    for job in jobs:
        cluster.release(job)


def test_scaled_to_nothing_and_back_the_nodes_take_jobs(cluster: Cluster) -> None:
    scaled(cluster, 0)
    job = cluster.sbatch("true")
    scaled(cluster, 2)
    cluster.wait_for_job(job, "COMPLETED")


def test_with_slurm_out_of_reach_no_pod_is_deleted(cluster: Cluster) -> None:
    """Idle nodes too: they were idle when Slurm was last asked, and that is all that is known."""
    scaled(cluster, 2)
    before = uids(cluster)
    broken = {"spec": {"containers": [{"name": "slurmrestd", "image": NO_IMAGE}]}}
    cluster.patch("slurmcluster", "demo", {"spec": {"rest": {"podTemplate": broken}}})
    # A Deployment keeps an old pod until the new one is ready: it has to be made to let it go.
    until("a new slurmrestd is stuck", lambda: len(rest_pods(cluster)) == 2)
    oldest = min(rest_pods(cluster), key=lambda pod: pod["metadata"]["creationTimestamp"])
    cluster.kubectl("delete", "replicaset", oldest["metadata"]["ownerReferences"][0]["name"])
    name = oldest["metadata"]["name"]
    # It answers while it terminates.
    until("the old one is gone", lambda: not cluster.get(f"pod/{name}"))
    until("nobody answers", lambda: all(pod["status"]["phase"] == "Pending" for pod in rest_pods(cluster)))
    cluster.scale("cpu", 1)
    generation = cluster.nodeset("cpu")["metadata"]["generation"]
    until("it says so", lambda: ready(cluster)["observedGeneration"] == generation and stuck(cluster))
    assert uids(cluster) == before
    cluster.patch("slurmcluster", "demo", {"spec": {"rest": {"podTemplate": None}}})
    until("one is gone", lambda: len(cluster.pods("cpu")) == 1)
    cluster.wait_ready()


def stuck(cluster: Cluster) -> bool:
    found = ready(cluster)
    return found["status"] != "True" and "can't be" in found["message"]


def rest_pods(cluster: Cluster) -> list[dict[str, Any]]:
    return [pod for name, pod in cluster.pods().items() if "slurmrestd" in name]
