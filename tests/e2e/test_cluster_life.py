"""From an empty spec to jobs, through the deaths of slurmctld; what kubectl shows of it; nodes of other namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.saved import report, saved_job
from tests.harness import Cluster, Sandbox, until

GUESTS = "life-guests"
SHARED = {"name": "shared"}


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    """An empty spec is a working cluster."""
    cluster = Cluster(installed, "life", "demo")
    cluster.create({}, cpu={"replicas": 2}, big={"partition": SHARED}, small={"partition": SHARED})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def test_events_tell_of_a_life_without_trouble(cluster: Cluster) -> None:
    """First: on a busy machine a later test may bring Warnings."""
    ready = "jobs can be submitted"
    until("the cluster is Ready", lambda: cluster.told("SlurmCluster", "demo").get("Ready") == ready)
    wanted = {"Created": "created cpu-[0-1]", "Ready": "all 2 nodes take jobs"}
    until("the NodeSet is Ready", lambda: cluster.told("NodeSet", "cpu") == wanted)
    ours = [each for each in cluster.events() if each.get("reportingComponent") == "seltzer"]
    assert {each["type"] for each in ours} == {"Normal"}, ours


def test_ending_an_interactive_job_keeps_nobody_waiting(cluster: Cluster) -> None:
    """slurmctld looks for the host of srun, which no DNS knows, and would do so for ten seconds with its locks held."""
    job = cluster.sbatch("srun sleep 900", "--mem=1M", "--job-name=with-srun")
    step = f"{job}.0"
    until("its srun runs", lambda: step in cluster.login("squeue", "--steps", "--noheader", "--format=%i").split())
    before = len(log(cluster))
    cluster.login("scancel", job)
    cluster.wait_for_job(job, "CANCELLED")
    said = log(cluster)[before:]
    assert f"job_signal: 9 of running JobId={job} successful" in said
    assert "getaddrinfo" not in said
    assert cluster.in_controller("getent", "hosts", "no-such-host.example", check=False).code, "only hosts, no services"


def log(cluster: Cluster) -> str:
    return cluster.in_controller("cat", "/run/slurmctld-state/slurmctld.log").stdout


def test_an_empty_spec_runs_jobs_across_nodes(cluster: Cluster) -> None:
    answers = cluster.login("srun", "--partition=cpu", "--nodes=2", "hostname").split()
    assert sorted(answers) == ["cpu-0", "cpu-1"]


def test_a_job_runs_across_nodesets_that_share_a_partition(cluster: Cluster) -> None:
    answers = cluster.login("srun", "--partition=shared", "--nodes=2", "hostname").split()
    assert sorted(answers) == ["big-0", "small-0"]
    only = cluster.login("srun", "--partition=shared", "--constraint=small", "hostname").split()
    assert only == ["small-0"], "a NodeSet's name is a feature of its nodes"


def test_kubectl_shows_the_truth_at_a_glance(cluster: Cluster) -> None:
    job = cluster.hold("--partition=cpu", "--nodelist=cpu-0")
    version = cluster.login("sinfo", "--version").split()[1]
    wanted = {"READY": "True", "REASON": "Running", "SLURM": version, "NODES": "4", "DOWN": "0", "RUNNING": "1"}
    until("the cluster is shown as it is", lambda: wanted.items() <= row(cluster, "slurmclusters", "demo").items())
    pool = {"CLUSTER": "demo", "DESIRED": "2", "READY": "2", "IDLE": "1", "DOWN": "0", "REASON": "AllAvailable"}
    until("the NodeSet is shown as it is", lambda: pool.items() <= row(cluster, "nodesets", "cpu").items())
    assert cluster.nodeset("cpu")["status"]["observedGeneration"] == cluster.nodeset("cpu")["metadata"]["generation"]
    cluster.release(job)


def row(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    """What `kubectl get` shows of an object, by column."""
    titles, *rows = [line.split() for line in cluster.kubectl("get", kind).stdout.splitlines()]
    return next(dict(zip(titles, words, strict=True)) for words in rows if words[0] == name)


def test_a_nodeset_of_another_namespace_joins_only_when_it_may(cluster: Cluster) -> None:
    guests = Cluster(cluster.sandbox, GUESTS, "demo")
    guests.sandbox.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GUESTS}})
    spec = {"clusterRef": {"name": "demo", "namespace": cluster.namespace}, "replicas": 1}
    guests.apply(guests.manifest("NodeSet", "guest", spec))
    guests.wait("nodeset/guest", "Accepted", "False")
    refused = guests.condition("nodeset/guest", "Accepted")
    assert refused["reason"] == "NotAllowed"
    assert "add it to spec.nodeSets.namespaces" in refused["message"]
    assert not guests.pods("guest")

    cluster.patch("slurmcluster", "demo", {"spec": {"nodeSets": {"namespaces": [GUESTS]}}})
    guests.wait("nodeset/guest", "Ready")
    until("its partition is there", lambda: cluster.run("srun", "--partition=guest", "true").code == 0)
    assert cluster.login("srun", "--partition=guest", "hostname").split() == ["guest-0"]

    guests.kubectl("delete", "nodeset/guest", "--timeout=180s")
    assert "guest-0" not in cluster.slurm_nodes()
    until("nothing is left", lambda: not guests.get("pods,secrets,networkpolicies").get("items"))
    guests.sandbox.kubectl("delete", "namespace", GUESTS, "--wait=false")


def test_a_slurmctld_that_is_killed_starts_again_in_its_container(cluster: Cluster) -> None:
    job = saved_job(cluster, "--partition=cpu", "--nodelist=cpu-1")
    before = controller(cluster)
    nodes = set(cluster.slurm_nodes())
    died, started = cluster.slurmctld(), report(cluster)["seltzer.dev/started"]
    cluster.in_controller("pkill", "-KILL", "-P", "1", "slurmctld")
    # After the repair it is started once more.
    until("another slurmctld runs", lambda: runs_since(cluster, started))
    assert cluster.slurmctld() != died
    until("it answers", lambda: cluster.run("scontrol", "ping").code == 0)
    assert set(cluster.slurm_nodes()) == nodes, "no node is forgotten"
    after = controller(cluster)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [each["restartCount"] for each in after["status"]["containerStatuses"]] == [0]
    cluster.wait_ready()
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "0"
    assert len(cluster.login("srun", "--partition=cpu", "--nodes=2", "hostname").split()) == 2


def runs_since(cluster: Cluster, started: str) -> bool:
    """Whether slurmctld was started again since, and its guard has nothing left to do."""
    now = report(cluster)
    return now["seltzer.dev/started"] != started and now["seltzer.dev/phase"] == "running"


def controller(cluster: Cluster) -> dict[str, Any]:
    (pod,) = (pod for name, pod in cluster.pods().items() if "-slurmctld-" in name)
    return pod


def test_jobs_and_nodes_outlive_the_pod_of_slurmctld(cluster: Cluster) -> None:
    job = cluster.hold("--partition=cpu", "--nodelist=cpu-0")
    nodes = set(cluster.slurm_nodes())
    pods = {name: pod["metadata"]["uid"] for name, pod in cluster.pods("cpu").items()}
    cluster.kubectl("delete", "pod", controller(cluster)["metadata"]["name"])
    until("slurmctld answers again", lambda: cluster.run("scontrol", "ping").code == 0)
    assert set(cluster.slurm_nodes()) == nodes
    assert cluster.jobs()[job] == "RUNNING"
    cluster.wait_ready()
    assert {name: pod["metadata"]["uid"] for name, pod in cluster.pods("cpu").items()} == pods
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "0"
    until("the failover is told", lambda: "FailedOver" in cluster.told("SlurmCluster", "demo"))
    until("the status has it", lambda: cluster.status().get("lastFailoverTime"))
