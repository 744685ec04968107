"""The operator may be killed at any moment: who takes over goes on from what there is, and ends the same way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.harness import Cluster, Sandbox, until

NAMESPACE = "seltzer-system"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "operator-killed", "demo")
    cluster.create(cpu={"replicas": 1, "update": {"maxUnavailable": 1}})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def leader(sandbox: Sandbox) -> str:
    lease = sandbox.get("lease", "seltzer-operator", "--namespace", NAMESPACE)
    return str(lease["spec"]["holderIdentity"])


def kill_operator(sandbox: Sandbox) -> None:
    """Kill the leader's process as the kernel does when memory is short: it finishes nothing and tells nobody."""
    name = leader(sandbox)
    uid = sandbox.get("pod", name, "--namespace", NAMESPACE)["metadata"]["uid"]
    killed = [process for process in processes(uid) if "operator" in words(process)]
    assert killed, f"no process of {name}"
    for process in killed:
        os.kill(int(process.name), signal.SIGKILL)
    until("it is dead", lambda: not any(process.exists() for process in killed))


def processes(pod: str) -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"pod{pod}" in (process / "cgroup").read_text():
                yield process


def words(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")
    except OSError:
        return []


def settled(cluster: Cluster, *pods: str) -> None:
    """The NodeSet has these pods, Slurm has these nodes, and all of them take jobs."""
    until(f"pods {pods}", lambda: set(cluster.pods("cpu")) == set(pods))
    until(f"nodes {pods}", lambda: set(cluster.slurm_nodes()) == set(pods))
    cluster.wait("nodeset/cpu", "Ready")
    assert not any("DRAIN" in state for state in cluster.slurm_nodes().values())


def drained(cluster: Cluster) -> list[str]:
    return [name for name, state in cluster.slurm_nodes().items() if "DRAIN" in state]


def test_a_scale_out_is_finished(cluster: Cluster) -> None:
    cluster.scale("cpu", 3)
    until("it has begun", lambda: len(cluster.pods("cpu")) > 1)
    kill_operator(cluster.sandbox)
    settled(cluster, "cpu-0", "cpu-1", "cpu-2")
    marks = {node["name"]: node["comment"] for node in cluster.rest("nodes/")["nodes"]}
    assert set(marks.values()) == {"seltzer operator-killed/cpu"}, "all records are saved"


def test_an_update_is_finished_with_its_job_unharmed(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=cpu-1")
    before = {pod["metadata"]["uid"] for pod in cluster.pods("cpu").values()}
    cluster.patch("nodeset", "cpu", {"spec": {"features": ["new"]}})
    until("it has begun", lambda: drained(cluster) or len(cluster.slurm_nodes()) < 3)
    kill_operator(cluster.sandbox)
    until("the busy one is next", lambda: drained(cluster) == ["cpu-1"])
    cluster.release(job)
    cluster.wait("nodeset/cpu", "Updated")
    settled(cluster, "cpu-0", "cpu-1", "cpu-2")
    assert not before & {pod["metadata"]["uid"] for pod in cluster.pods("cpu").values()}
    assert cluster.job(job)["Restarts"] == "0"


def test_a_scale_in_is_finished_with_its_jobs_unharmed(cluster: Cluster) -> None:
    jobs = {node: cluster.hold(f"--nodelist={node}") for node in ("cpu-0", "cpu-2")}
    cluster.scale("cpu", 1)
    until("a busy one is drained", lambda: set(drained(cluster)) & set(jobs))
    (leaving,) = set(drained(cluster)) & set(jobs)
    (staying,) = set(jobs) - {leaving}
    kill_operator(cluster.sandbox)
    cluster.release(jobs[leaving])
    settled(cluster, staying)
    assert cluster.jobs()[jobs[staying]] == "RUNNING"
    cluster.release(jobs[staying])
    assert {cluster.job(job)["Restarts"] for job in jobs.values()} == {"0"}


def test_a_drain_that_takes_too_long_ends_as_the_user_says(cluster: Cluster) -> None:
    (node,) = cluster.pods("cpu")
    cluster.patch("nodeset", "cpu", {"spec": {"drain": {"timeout": "20s", "onTimeout": "requeue"}}})
    job = cluster.hold("--partition=cpu")
    cluster.scale("cpu", 0)
    until("it is drained", lambda: drained(cluster) == [node])
    kill_operator(cluster.sandbox)
    cluster.wait_for_job(job, "PENDING")
    until("no pod is left", lambda: not cluster.pods("cpu"))
    cluster.scale("cpu", 1)
    settled(cluster, "cpu-0")
    # Slurm lets a job that was put back wait for two minutes.
    cluster.login("scontrol", "update", f"jobid={job}", "starttime=now")
    cluster.wait_for_job(job, "RUNNING")
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "1", "it was put back once"
    cluster.patch("nodeset", "cpu", {"spec": {"drain": None}})


def test_a_change_of_the_configuration_is_finished_with_its_job_unharmed(cluster: Cluster) -> None:
    job = cluster.hold()
    before = cluster.slurmctld()
    cluster.patch("slurmcluster", "demo", {"spec": {"config": {"slurm.conf": "KillWait=31\n"}}})
    trial = "app.kubernetes.io/component=trial"
    generation = cluster.get("slurmcluster/demo")["metadata"]["generation"]
    # Nobody may have looked while the trial was there.
    until(
        "it is tried",
        lambda: (
            cluster.sandbox.pods(trial, cluster.namespace)
            or cluster.condition("slurmcluster/demo", "ConfigValid").get("observedGeneration") == generation
        ),
    )
    kill_operator(cluster.sandbox)
    found = cluster.config_settled()
    assert (found["status"], found["reason"]) == ("True", "Applied"), found["message"]
    assert cluster.setting("KillWait").split()[0] == "31"
    assert cluster.slurmctld() == before, "a reconfigure was enough"
    until("no trial is left", lambda: not cluster.sandbox.pods(trial, cluster.namespace))
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "0"


def test_a_deletion_is_finished_with_its_job_unharmed(cluster: Cluster) -> None:
    (node,) = cluster.pods("cpu")
    job, last = (cluster.hold(f"--nodelist={node}", "--mem=1M") for _ in range(2))
    cluster.kubectl("delete", "slurmclusters,nodesets", "--all", "--wait=false")
    until("it has begun", lambda: drained(cluster))
    kill_operator(cluster.sandbox)
    assert node in cluster.pods("cpu")
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "0"
    assert cluster.jobs()[last] == "RUNNING"
    cluster.login("scancel", last)  # when it has ended, slurmctld may be gone before anybody asks
    until("both are gone", lambda: not cluster.get("slurmclusters,nodesets").get("items"))
    until("no pod is left", lambda: not cluster.pods())
