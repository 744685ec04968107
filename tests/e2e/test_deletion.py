"""What is deleted waits for its jobs, leaves nothing behind but what was asked to stay, and never hangs."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.harness import Cluster, Sandbox, until

GRACE = 5
MANAGED = "--selector=app.kubernetes.io/managed-by=seltzer"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    """For tests that leave the cluster alone, all but the last of those that use it."""
    cluster = Cluster(installed, "deletion", "demo")
    cluster.create(one={"replicas": 2}, two={"replicas": 1}, last={"replicas": 1})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


@pytest.fixture
def doomed(installed: Sandbox) -> Iterator[Cluster]:
    """A cluster that a test deletes, in a namespace of its own: the last one's may still be going."""
    cluster = Cluster(installed, f"doomed-{uuid4().hex[:8]}", "demo")
    # A node whose job nobody can ask about has its whole grace: a short one, so that nobody waits for it here.
    hasty = {"podTemplate": {"spec": {"terminationGracePeriodSeconds": GRACE}}}
    cluster.create({"controller": {"storage": {"onDelete": "delete"}}}, cpu={"replicas": 1, **hasty})
    cluster.wait_ready()
    yield cluster
    cluster.delete_namespace_later()


def left(cluster: Cluster) -> set[str]:
    """All of Seltzer's objects in the namespace, of whatever kind, such as pod/cpu-0."""
    listable = cluster.sandbox.kubectl("api-resources", "--verbs=list", "--namespaced", "--output=name").stdout
    kinds = [kind for kind in listable.split() if kind not in ("events", "events.events.k8s.io")]
    return set(cluster.kubectl("get", ",".join(kinds), MANAGED, "--output=name").stdout.split())


def message(cluster: Cluster, name: str) -> str:
    return str(cluster.condition(f"nodeset/{name}", "Ready").get("message"))


def partitions(cluster: Cluster) -> set[str]:
    return set(cluster.login("sinfo", "--noheader", "--format=%R").split())


def test_a_deleted_nodeset_waits_for_its_job_and_leaves_no_record(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=one-1", "--partition=one")
    cluster.kubectl("delete", "nodeset/one", "--wait=false")
    until("the idle node is gone", lambda: set(cluster.pods("one")) == {"one-1"})
    until("it says whom it waits for", lambda: message(cluster, "one") == "waiting for the jobs on one-1 to end")
    assert cluster.condition("nodeset/one", "Ready")["reason"] == "Deleting"
    assert cluster.jobs()[job] == "RUNNING"
    cluster.release(job)
    until("it is gone", lambda: not cluster.nodeset("one"))
    assert not [name for name in cluster.slurm_nodes() if name.startswith("one-")]
    until("nothing of it is left", lambda: not [name for name in left(cluster) if "/one" in name])
    until("its partition is gone too", lambda: "one" not in partitions(cluster))
    assert cluster.job(job)["Restarts"] == "0"


def test_a_deleted_nodeset_waits_for_jobs_that_would_be_lost_with_its_partition(cluster: Cluster) -> None:
    job = cluster.sbatch("true", "--partition=two", "--hold")
    cluster.kubectl("delete", "nodeset/two", "--wait=false")
    until("its pods are gone", lambda: not cluster.pods("two"))
    until("it says why it stays", lambda: "1 jobs wait in partition two" in message(cluster, "two"))
    assert "two" in partitions(cluster)
    assert cluster.jobs()[job] == "PENDING"
    cluster.login("scancel", job)
    until("it is gone", lambda: not cluster.nodeset("two"))
    assert not [name for name in cluster.slurm_nodes() if name.startswith("two-")]


def test_a_nodeset_of_no_cluster_is_deleted_at_once(cluster: Cluster) -> None:
    spec = {"clusterRef": {"name": "nobody"}}
    cluster.apply({"apiVersion": "seltzer.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": "lone"}, "spec": spec})
    cluster.wait("nodeset/lone", "Accepted", "False")
    assert cluster.condition("nodeset/lone", "Accepted")["reason"] == "ClusterNotFound"
    cluster.kubectl("delete", "nodeset/lone", "--timeout=180s")


def test_a_deleted_cluster_waits_for_its_job_and_leaves_only_its_volume(cluster: Cluster) -> None:
    job, last = (cluster.hold("--partition=last", "--mem=1M") for _ in range(2))
    cluster.kubectl("delete", "slurmclusters,nodesets", "--all", "--wait=false")
    until("the node is drained", lambda: "DRAIN" in cluster.slurm_nodes()["last-0"])
    assert cluster.jobs()[job] == "RUNNING"
    until("it says so", lambda: cluster.condition("slurmcluster/demo", "Ready")["reason"] == "Deleting")
    cluster.release(job)
    assert cluster.jobs()[last] == "RUNNING"
    # Nobody waits for the end of this one: slurmctld goes with it, and its record may never be seen.
    cluster.login("scancel", "--batch", "--signal=USR1", last)
    until("both are gone", lambda: not cluster.get("slurmclusters,nodesets").get("items"))
    until("only the volume is left", lambda: left(cluster) == {"persistentvolumeclaim/demo-slurmctld"})

    # Made anew it goes on with what is on the volume: the job IDs do, and no node of former days is there.
    cluster.create(fresh={"replicas": 1})
    cluster.wait_ready()
    assert set(cluster.slurm_nodes()) == {"fresh-0"}
    assert int(cluster.sbatch("true")) > int(last)


def test_the_volume_goes_too_if_that_was_asked_for(doomed: Cluster) -> None:
    doomed.kubectl("delete", "slurmclusters,nodesets", "--all", "--timeout=180s")
    until("nothing is left", lambda: not left(doomed))


def test_a_cluster_whose_slurmctld_was_deleted_does_not_hang(doomed: Cluster) -> None:
    """Who deletes that has ended the jobs: there is nobody left to ask about them."""
    doomed.hold()
    doomed.kubectl("delete", "slurmclusters,nodesets", "--all", "--wait=false")
    until("the node is drained", lambda: "DRAIN" in doomed.slurm_nodes()["cpu-0"])
    doomed.kubectl("delete", "deployment/demo-slurmctld")
    # The pod of the job has its whole grace.
    until("both are gone", lambda: not doomed.get("slurmclusters,nodesets").get("items"))
    until("nothing is left", lambda: not left(doomed))


def test_a_namespace_that_is_deleted_at_once_does_not_hang(doomed: Cluster) -> None:
    doomed.hold()
    # Its job may go on for as long as its pod is given to end.
    doomed.sandbox.kubectl("delete", "namespace", doomed.namespace, "--timeout=180s")


def test_a_cluster_that_never_started_is_deleted_at_once(installed: Sandbox) -> None:
    cluster = Cluster(installed, "stillborn", "demo")
    cluster.create({"controller": {"image": "127.0.0.1:1/slurmctld:nonsense"}}, cpu={"replicas": 1})
    until("its pod is there", lambda: "cpu-0" in cluster.pods("cpu"))
    cluster.kubectl("delete", "slurmclusters,nodesets", "--all", "--timeout=180s")
    until("only the volume is left", lambda: left(cluster) <= {"persistentvolumeclaim/demo-slurmctld"})
    cluster.delete_namespace_later()
