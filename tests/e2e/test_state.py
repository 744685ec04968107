"""State goes both ways: what Kubernetes knows of a machine reaches Slurm, what Slurm knows of a node is on its pod, and
whatever dies is made whole again without a hand."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

READY, BUSY = "seltzer.dev/SlurmReady", "seltzer.dev/SlurmBusy"
HOSTNAME = "kubernetes.io/hostname"


def only_on(*nodes: str) -> dict[str, Any]:
    wanted = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}}
    return {"podTemplate": {"spec": {"affinity": affinity}}}


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    """What is broken here is on n2 and n3; who has to see it is on n1."""
    cluster = Cluster(installed, "state", "demo")
    spec = {part: only_on("n1") for part in ("controller", "rest", "login")}
    cluster.create(spec, cpu={"replicas": 2, **only_on("n2", "n3")})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def machine(cluster: Cluster, name: str) -> str:
    return str(cluster.pods("cpu")[name]["spec"]["nodeName"])


def condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((each for each in pod["status"].get("conditions", []) if each["type"] == kind), {})


def tells(cluster: Cluster, name: str, reason: str) -> bool:
    pod = cluster.pods("cpu").get(name)
    return pod is not None and condition(pod, READY).get("reason") == reason


def slurmd(cluster: Cluster, name: str) -> int:
    """The process of slurmd itself, and not the shell that starts it."""
    return until("one slurmd runs", lambda: other(cluster, name))


def other(cluster: Cluster, name: str, than: int = 0) -> int | None:
    """The process of slurmd, if there is only one and not this one. A child is another one until it is executed."""
    found = cluster.sandbox.processes_of(name, cluster.namespace, "/usr/sbin/slurmd")
    ours = [pid for pid in found if first_word(pid) == "/usr/sbin/slurmd"]
    return ours[0] if len(ours) == 1 and ours[0] != than else None


def first_word(pid: int) -> str:
    """Empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").partition("\0")[0]
    except OSError:
        return ""


def state(cluster: Cluster, name: str) -> set[str]:
    return set(cluster.slurm_nodes().get(name, "").split("+"))


def reason(cluster: Cluster, name: str) -> str:
    return cluster.login("sinfo", "--noheader", "--nodes", name, "--format=%E")


def drained(cluster: Cluster, name: str) -> bool:
    return "DRAIN" in state(cluster, name)


def idle(cluster: Cluster) -> set[str]:
    """The nodes that take jobs and have none."""
    shut = {"DRAIN", "DOWN", "NOT_RESPONDING"}
    return {
        name for name, words in cluster.slurm_nodes().items() if "IDLE" in words and not shut & set(words.split("+"))
    }


def test_a_cordon_drains_and_an_uncordon_resumes_but_not_what_a_person_drained(cluster: Cluster) -> None:
    where = machine(cluster, "cpu-0")
    cluster.sandbox.kubectl("cordon", where)
    try:
        until("it is drained", lambda: drained(cluster, "cpu-0"))
        assert f"seltzer: Kubernetes node {where} is cordoned" in reason(cluster, "cpu-0")
        until("the pod tells", lambda: tells(cluster, "cpu-0", "Drained"))
        assert "is cordoned" in condition(cluster.pods("cpu")["cpu-0"], READY)["message"]
    finally:
        cluster.sandbox.kubectl("uncordon", where)
    until("it is resumed", lambda: "cpu-0" in idle(cluster))
    cluster.sandbox.kubectl("cordon", where)
    try:
        until("it is drained", lambda: drained(cluster, "cpu-0"))
        cluster.login("scontrol", "update", "NodeName=cpu-0", "State=DRAIN", "Reason=a loud fan", user="root")
    finally:
        cluster.sandbox.kubectl("uncordon", where)
    until("Kubernetes is over it", lambda: "unschedulable" not in cluster.sandbox.get("node", where)["spec"])
    until("the pod tells whose it is", lambda: "loud fan" in condition(cluster.pods("cpu")["cpu-0"], READY)["message"])
    assert drained(cluster, "cpu-0")
    cluster.login("scontrol", "update", "NodeName=cpu-0", "State=RESUME", user="root")
    until("the pod tells", lambda: tells(cluster, "cpu-0", "Idle"))


def test_a_pod_tells_of_its_job_and_no_eviction_takes_it(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=cpu-1", "--time=20")
    until("it is busy", lambda: cluster.pods("cpu")["cpu-1"]["metadata"]["labels"].get("seltzer.dev/busy") == "true")
    until(
        "it tells until when",
        lambda: cluster.pods("cpu")["cpu-1"]["metadata"]["annotations"].get("seltzer.dev/free-at"),
    )
    pod = cluster.pods("cpu")["cpu-1"]
    assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert condition(pod, BUSY)["status"] == "True"
    where, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
    words = ("drain", where, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    ours = ("--pod-selector", "seltzer.dev/nodeset=cpu,seltzer.dev/cluster=demo")
    try:
        refused = cluster.sandbox.kubectl(*words, *ours, "--timeout=10s", check=False)
        assert "would violate the pod's disruption budget" in refused.stderr
        assert cluster.jobs()[job] == "RUNNING"
        cluster.release(job)
        cluster.sandbox.kubectl(*words, *ours, "--timeout=180s")
        until("another one is elsewhere", lambda: moved(cluster, "cpu-1", uid, where))
    finally:
        cluster.sandbox.kubectl("uncordon", where)
    cluster.wait("nodeset/cpu", "Ready")
    assert cluster.job(job)["Restarts"] == "0"


def test_nor_is_a_pod_evicted_whose_job_a_scale_in_waits_for(cluster: Cluster) -> None:
    """Kubernetes counts the replicas that are wanted, which are none."""
    job = cluster.hold("--nodelist=cpu-1")
    until("it is busy", lambda: cluster.pods("cpu")["cpu-1"]["metadata"]["labels"].get("seltzer.dev/busy") == "true")
    cluster.scale("cpu", 0)
    try:
        until("it takes no more", lambda: drained(cluster, "cpu-1"))
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "cpu-1"}}
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/cpu-1/eviction"
        refused = cluster.sandbox.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction), check=False)
        assert "disruption budget" in refused.stdout + refused.stderr, refused
        cluster.release(job)
    finally:
        cluster.scale("cpu", 2)
    cluster.wait("nodeset/cpu", "Ready")
    assert cluster.job(job)["Restarts"] == "0"


def moved(cluster: Cluster, name: str, uid: str, where: str) -> bool:
    pod = cluster.pods("cpu").get(name)
    return pod is not None and pod["metadata"]["uid"] != uid and pod["spec"].get("nodeName") not in (None, where)


def test_a_slurmd_that_dies_or_hangs_is_started_again_beside_its_jobs(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=cpu-0")
    first = slurmd(cluster, "cpu-0")
    os.kill(first, signal.SIGKILL)
    second = until("another one runs", lambda: other(cluster, "cpu-0", first))
    until("it is well", lambda: "MIXED" in state(cluster, "cpu-0"))
    os.kill(second, signal.SIGSTOP)
    until("another one runs", lambda: other(cluster, "cpu-0", second))
    assert cluster.jobs()[job] == "RUNNING"
    assert cluster.pods("cpu")["cpu-0"]["status"]["containerStatuses"][0]["restartCount"] == 0
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "0"


def test_a_pod_that_somebody_deletes_lets_its_job_end(cluster: Cluster) -> None:
    cluster.wait("nodeset/cpu", "Ready")
    job = cluster.hold("--nodelist=cpu-0")
    uid = cluster.pods("cpu")["cpu-0"]["metadata"]["uid"]
    cluster.kubectl("delete", "pod", "cpu-0", "--wait=false")
    until("no other job comes", lambda: drained(cluster, "cpu-0"))
    assert "seltzer: its pod is being deleted" in reason(cluster, "cpu-0")
    cluster.release(job)
    until(
        "another pod is there",
        lambda: cluster.pods("cpu").get("cpu-0", {}).get("metadata", {}).get("uid") not in (None, uid),
    )
    cluster.wait("nodeset/cpu", "Ready")
    assert (cluster.jobs()[job], cluster.job(job)["Restarts"]) == ("COMPLETED", "0")


def test_a_record_that_somebody_deletes_comes_back(cluster: Cluster) -> None:
    cluster.wait("nodeset/cpu", "Ready")
    until("the pod tells", lambda: tells(cluster, "cpu-1", "Idle"))
    cluster.login("scontrol", "delete", "NodeName=cpu-1", user="root")
    until("it is back", lambda: "cpu-1" in idle(cluster))


def test_a_dead_machines_pods_are_replaced_and_its_jobs_go_back_to_the_queue(cluster: Cluster) -> None:
    cluster.wait("nodeset/cpu", "Ready")
    job = cluster.hold("--nodelist=cpu-0")
    where = machine(cluster, "cpu-0")
    lost = [name for name in cluster.pods("cpu") if machine(cluster, name) == where]
    cluster.sandbox.command("node", "kill", where)
    try:
        cluster.wait_for_job(job, "PENDING")
        until("others are there", lambda: len(idle(cluster)) == 2)
        assert not set(lost) & idle(cluster)
        assert "Requeued" in cluster.told("NodeSet", "cpu")
    finally:
        cluster.sandbox.command("node", "heal", where)
        cluster.sandbox.wait_for_node(where, "True")
    until("what was lost is gone", lambda: not set(lost) & cluster.slurm_nodes().keys() or at_rest(cluster))
    cluster.wait("nodeset/cpu", "Ready")
    cluster.login("scancel", job, user="root")


def at_rest(cluster: Cluster) -> bool:
    """Of what was lost nothing is left but the record that a waiting job names."""
    return set(cluster.slurm_nodes()) - set(cluster.pods("cpu")) <= {"cpu-0"}
