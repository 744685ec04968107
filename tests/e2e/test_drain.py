"""A node is emptied before its pod goes: how long that may take is the user's word, and a person's drain is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until


def nodeset(on_timeout: str, **more: Any) -> dict[str, Any]:
    return {"replicas": 1, "drain": {"timeout": "3s", "onTimeout": on_timeout}, **more}


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "drain", "demo")
    cluster.create(
        patient=nodeset("wait"), again=nodeset("requeue"), strict=nodeset("kill"), cpu={"replicas": 2}
    )  # fmt: skip
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def gone(cluster: Cluster, name: str) -> None:
    until(f"{name} has no pod", lambda: not cluster.pods(name))
    until(f"{name} has no record", lambda: f"{name}-0" not in cluster.slurm_nodes())


def message(cluster: Cluster, name: str) -> str:
    return str(cluster.condition(f"nodeset/{name}", "Ready").get("message"))


def test_wait_goes_on_waiting_for_the_job_and_says_so(cluster: Cluster) -> None:
    job = cluster.hold("--partition=patient")
    cluster.scale("patient", 0)
    words = "jobs on patient-0 take longer than drain.timeout=3s; they are waited for"
    until("it says so", lambda: words in message(cluster, "patient"))
    assert "patient-0" in cluster.pods("patient")
    cluster.release(job)
    gone(cluster, "patient")
    assert cluster.job(job)["Restarts"] == "0"


def test_requeue_puts_the_job_back_into_the_queue(cluster: Cluster) -> None:
    job = cluster.hold("--partition=again")
    cluster.scale("again", 0)
    cluster.wait_for_job(job, "PENDING")
    gone(cluster, "again")
    assert "Requeued" in cluster.told("NodeSet", "again")
    cluster.scale("again", 1)
    cluster.wait("nodeset/again", "Ready")
    # Slurm lets a job that was put back wait for two minutes.
    cluster.login("scontrol", "update", f"jobid={job}", "starttime=now")
    cluster.wait_for_job(job, "RUNNING")
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "1"


def test_kill_ends_the_job(cluster: Cluster) -> None:
    job = cluster.hold("--partition=strict")
    cluster.scale("strict", 0)
    gone(cluster, "strict")
    assert cluster.jobs()[job] == "CANCELLED"
    assert "strict-0" in cluster.told("NodeSet", "strict")["Killed"]


def test_jobs_on_a_node_that_a_person_drained_are_waited_for(cluster: Cluster) -> None:
    """Whose timeout began with nothing: who drains a node by hand has decided nothing about its jobs."""
    cluster.scale("strict", 1)
    cluster.wait("nodeset/strict", "Ready")
    job = cluster.hold("--partition=strict")
    drain(cluster, "strict-0")
    cluster.scale("strict", 0)
    until("it is waited for", lambda: "waiting for the jobs on strict-0" in message(cluster, "strict"))
    # Twice the timeout, by slurmctld's own clock.
    until("a while has passed", lambda: running_for(cluster, job) >= 9)
    assert cluster.jobs()[job] == "RUNNING"
    cluster.release(job)
    gone(cluster, "strict")


def running_for(cluster: Cluster, job: str) -> int:
    minutes, seconds = cluster.job(job)["RunTime"].split(":")[-2:]
    return 60 * int(minutes) + int(seconds)


def drain(cluster: Cluster, node: str) -> None:
    cluster.login("scontrol", "update", f"nodename={node}", "state=drain", "reason=bad fan", user="root")


def is_drained(cluster: Cluster, node: str) -> bool:
    record = cluster.slurm_node(node)
    return bool(record) and "DRAIN" in record["State"] and record["Reason"] == "bad"  # its first word


def uid(cluster: Cluster, pod: str) -> str | None:
    found: str | None = cluster.pods("cpu").get(pod, {}).get("metadata", {}).get("uid")
    return found


def test_a_persons_drain_outlives_all_that_happens_around_it(cluster: Cluster) -> None:
    drain(cluster, "cpu-0")
    until("it is told", lambda: "cpu-0 is drained in Slurm (bad fan): resume it" in message(cluster, "cpu"))
    before = cluster.pods("cpu")["cpu-0"]["metadata"]["uid"]

    cluster.scale("cpu", 3)
    until("it grows", lambda: "cpu-2" in cluster.slurm_nodes())
    assert is_drained(cluster, "cpu-0")

    cluster.patch("nodeset", "cpu", {"spec": {"features": ["new"]}})
    until("the others are updated", lambda: cluster.condition("nodeset/cpu", "Updated")["reason"] == "Held")
    assert "cpu-0 is drained in Slurm by somebody else" in cluster.condition("nodeset/cpu", "Updated")["message"]
    assert cluster.pods("cpu")["cpu-0"]["metadata"]["uid"] == before
    assert is_drained(cluster, "cpu-0")

    cluster.kubectl("delete", "pod", "cpu-0", "--wait=false")
    until("the pod is made anew", lambda: uid(cluster, "cpu-0") not in (None, before))
    cluster.wait("pod/cpu-0", "Ready")
    until("it is registered", lambda: "NOT_RESPONDING" not in cluster.slurm_nodes()["cpu-0"])
    assert is_drained(cluster, "cpu-0")

    cluster.kubectl("delete", "pod", "--selector=app.kubernetes.io/component=slurmctld")
    cluster.wait("slurmcluster/demo", "Ready")
    until("slurmctld answers", lambda: cluster.run("scontrol", "ping").code == 0)
    assert is_drained(cluster, "cpu-0")

    cluster.login("scontrol", "update", "nodename=cpu-0", "state=resume", user="root")
    cluster.wait("nodeset/cpu", "Ready")
    cluster.wait("nodeset/cpu", "Updated")
    assert len(cluster.login("srun", "--partition=cpu", "--nodes=3", "hostname").split()) == 3
