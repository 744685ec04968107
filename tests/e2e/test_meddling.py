"""Somebody else taints machines, kills containers, deletes pods and writes into Slurm: Slurm is told, jobs go on or go
back to the queue, and in the end all is as it should be. What a person wants stays theirs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, pod, until

MACHINE = "n2"
BOTH = {"cpu-0", "cpu-1"}
SYSTEM = "seltzer-system"
TAINT = "maintenance=fan:NoSchedule"
TAINTED = f"seltzer: Kubernetes node {MACHINE} has taint {TAINT}"
CORDONED = f"seltzer: Kubernetes node {MACHINE} is cordoned"
# Nobody listens there, so that it fails at once.
NO_IMAGE = "127.0.0.1:1/nonsense:dev"


@pytest.fixture(scope="module")
def whole(installed: Sandbox) -> Iterator[Cluster]:
    """Both nodes are on one machine: what is true of it is true of both, and one tells when the other must know."""
    cluster = Cluster(installed, "meddling", "demo")
    there = {"spec": {"nodeSelector": {"kubernetes.io/hostname": MACHINE}}}
    cluster.create(cpu={"replicas": 2, "podTemplate": there})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


@pytest.fixture
def cluster(whole: Cluster) -> Iterator[Cluster]:
    """After each test both nodes take jobs, by themselves, and the operator has seen it."""
    yield whole
    until("both take jobs", lambda: open_nodes(whole) == BOTH)
    whole.wait_ready()
    assert sorted(whole.login("srun", "--nodes=2", "hostname").split()) == sorted(BOTH)


def open_nodes(cluster: Cluster) -> set[str]:
    """The nodes that take jobs."""
    shut = {"DRAIN", "DOWN", "NOT_RESPONDING"}
    return {name for name, words in cluster.slurm_nodes().items() if not shut & set(words.replace("*", "").split("+"))}


def drained(cluster: Cluster) -> dict[str, str]:
    """The nodes that are drained, with the reason of each."""
    names = sorted(name for name, words in cluster.slurm_nodes().items() if "DRAIN" in words.split("+"))
    return {name: reason(cluster, name) for name in names}


def reason(cluster: Cluster, name: str) -> str:
    return cluster.login("sinfo", "--noheader", f"--nodes={name}", "--format=%E").strip()


def times(cluster: Cluster, reason: str, words: str) -> int:
    """How often an Event was told."""
    found = [each for each in cluster.events() if each["reason"] == reason and words in each["message"]]
    return sum(each["count"] for each in found)


@contextmanager
def tainted(cluster: Cluster) -> Iterator[None]:
    cluster.sandbox.kubectl("taint", "node", MACHINE, TAINT)
    try:
        yield
    finally:
        cluster.sandbox.kubectl("taint", "node", MACHINE, f"{TAINT}-")


@contextmanager
def cordoned(cluster: Cluster) -> Iterator[None]:
    cluster.sandbox.kubectl("cordon", MACHINE)
    try:
        yield
    finally:
        cluster.sandbox.kubectl("uncordon", MACHINE)


def put_back(cluster: Cluster, job: str) -> None:
    cluster.wait_for_job(job, "PENDING")
    assert cluster.job(job)["Restarts"] == "1"


def test_a_taint_drains_both_nodes_beside_their_job_and_they_are_resumed_when_it_goes(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=cpu-0")
    with tainted(cluster):
        until("both are drained", lambda: drained(cluster) == dict.fromkeys(BOTH, TAINTED))
        assert cluster.jobs()[job] == "RUNNING"
    until("both are resumed during the job", lambda: open_nodes(cluster) == BOTH)
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "0"


def test_a_container_that_is_killed_gives_its_job_back(cluster: Cluster) -> None:
    """At once, by the operator; where it doesn't see that in time, Slurm notices when the next slurmd registers."""
    causes = (("Requeued", "slurmd's container ended with exit code 137"), ("Draining", "its pod is not ready"))
    before = told(cluster, causes)
    job = cluster.hold("--nodelist=cpu-0")
    os.kill(until("its first process is found", lambda: first_process(cluster, "cpu-0")), signal.SIGKILL)
    put_back(cluster, job)
    until("it is told", lambda: told(cluster, causes) > before)
    cluster.login("scancel", job)


def first_process(cluster: Cluster, pod: str) -> int | None:
    """The first process of slurmd's container: a shell that has slurmd's command among its words.

    Its children have these too until they execute something else. The smallest of their numbers may be another's: they
    begin again when they are used up.
    """
    parents = {}
    for process in cluster.sandbox.processes_of(pod, cluster.namespace, "/usr/sbin/slurmd"):
        with suppress(OSError):  # it has just ended
            if "bash" in Path(f"/proc/{process}/cmdline").read_text().split("\0")[0]:
                parents[process] = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    first = [process for process, parent in parents.items() if parent not in parents]
    return first[0] if len(first) == 1 else None


def told(cluster: Cluster, causes: Iterable[tuple[str, str]]) -> int:
    return sum(times(cluster, reason, f"cpu-0 (seltzer: {words}") for reason, words in causes)


def test_a_pod_that_is_deleted_in_haste_gives_its_job_to_the_other(cluster: Cluster) -> None:
    job = cluster.hold()
    name = cluster.job(job)["NodeList"]
    (other,) = BOTH - {name}
    before = uid(cluster, name)
    cluster.kubectl("delete", "pod", name, "--grace-period=3", "--wait=false")
    put_back(cluster, job)
    # Slurm lets a job that was put back wait for two minutes: what it still has to tell its node would end it there.
    cluster.login("scontrol", "update", f"jobid={job}", "starttime=now", f"reqnodelist={other}")
    cluster.wait_for_job(job, "RUNNING")
    cluster.release(job)
    until("another pod is there", lambda: uid(cluster, name) not in (None, before))


def uid(cluster: Cluster, name: str) -> str | None:
    found: str | None = cluster.pods("cpu").get(name, {}).get("metadata", {}).get("uid")
    return found


@pytest.mark.parametrize("wrong", ["10.255.255.1", "cpu-1"], ids=["nobody's", "another node's"])
def test_an_address_that_is_wrong_is_corrected(cluster: Cluster, wrong: str) -> None:
    addresses = {name: its["status"]["podIP"] for name, its in cluster.pods("cpu").items()}
    before = times(cluster, "Readdressed", f"cpu-0 is at {addresses['cpu-0']}")
    nodeaddr = f"nodeaddr={addresses.get(wrong, wrong)}"
    cluster.login("scontrol", "update", "nodename=cpu-0", nodeaddr, user="root")
    until("it is told", lambda: times(cluster, "Readdressed", f"cpu-0 is at {addresses['cpu-0']}") > before)
    until("Slurm knows better", lambda: cluster.slurm_node("cpu-0")["NodeAddr"] == addresses["cpu-0"])


def test_copies_of_a_pod_by_another_name_or_of_another_owner_are_let_be_and_are_no_nodes(cluster: Cluster) -> None:
    strangers = {"cpu-copy", "cpu-9"}
    copy, foreign = (pod(name, "sleep 600") for name in ("cpu-copy", "cpu-9"))
    for each in (copy, foreign):
        each["metadata"]["labels"] = cluster.pods("cpu")["cpu-0"]["metadata"]["labels"]
    foreign["metadata"]["ownerReferences"] = [owner(cluster)]
    cluster.apply(copy, foreign)
    try:
        cluster.wait("pod/cpu-copy", "Ready")
        cluster.wait("pod/cpu-9", "Ready")
        cluster.scale("cpu", 3)
        until("a third one is there", lambda: open_nodes(cluster) == {*BOTH, "cpu-2"})
        until("it is counted", lambda: cluster.nodeset("cpu")["status"]["replicas"] == 3)
        cluster.scale("cpu", 2)
        until("it is gone", lambda: set(cluster.pods("cpu")) == BOTH | strangers)
        until("it is counted", lambda: cluster.nodeset("cpu")["status"]["replicas"] == 2)
        assert {cluster.get(f"pod/{name}")["status"]["phase"] for name in strangers} == {"Running"}
    finally:
        cluster.kubectl("delete", "pod", *strangers, "--now")


def owner(cluster: Cluster) -> dict[str, str]:
    """Somebody who is there, and isn't the NodeSet."""
    found = cluster.get(f"slurmcluster/{cluster.name}")
    its = {key: found["metadata"][key] for key in ("name", "uid")}
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], **its}


def test_a_cordon_while_slurm_is_out_of_reach_is_reported_as_soon_as_it_is_back(cluster: Cluster) -> None:
    broken = {"spec": {"containers": [{"name": "slurmrestd", "image": NO_IMAGE}]}}
    cluster.patch("slurmcluster", "demo", {"spec": {"rest": {"podTemplate": broken}}})
    # A Deployment keeps an old pod until the new one is ready: it has to be made to let it go.
    until("a new slurmrestd is stuck", lambda: len(rest_pods(cluster)) == 2)
    oldest = min(rest_pods(cluster), key=lambda pod: pod["metadata"]["creationTimestamp"])
    cluster.kubectl("delete", "replicaset", oldest["metadata"]["ownerReferences"][0]["name"])
    name = oldest["metadata"]["name"]
    # It answers while it terminates.
    until("the old one is gone", lambda: not cluster.get(f"pod/{name}"))
    until("nobody answers", lambda: not answers(cluster))
    with cordoned(cluster):
        until("the operator can't tell it", lambda: "can't be" in ready(cluster))
        assert not drained(cluster)
        cluster.patch("slurmcluster", "demo", {"spec": {"rest": {"podTemplate": None}}})
        until("slurmrestd answers", lambda: answers(cluster))
        until("both are drained", lambda: drained(cluster) == dict.fromkeys(BOTH, CORDONED))
    cluster.wait_ready()


def ready(cluster: Cluster) -> str:
    return str(cluster.condition("nodeset/cpu", "Ready")["message"])


def rest_pods(cluster: Cluster) -> list[dict[str, Any]]:
    return [pod for name, pod in cluster.pods().items() if "slurmrestd" in name]


def answers(cluster: Cluster) -> bool:
    try:
        return bool(cluster.rest("nodes/"))
    except (AssertionError, ValueError, OSError):  # the API server tells that nobody is there, or takes its time
        return False


def test_a_persons_drain_stays_theirs_while_the_operator_dies_and_a_cordon_comes_and_goes(cluster: Cluster) -> None:
    cluster.login("scontrol", "update", "nodename=cpu-0", "state=drain", "reason=a loud fan", user="root")
    leader = cluster.sandbox.get("lease", "seltzer-operator", "--namespace", SYSTEM)["spec"]["holderIdentity"]
    (process,) = cluster.sandbox.processes_of(leader, SYSTEM, "operator")
    os.kill(process, signal.SIGKILL)
    with cordoned(cluster):
        until("its neighbour is drained", lambda: drained(cluster) == {"cpu-0": "a loud fan", "cpu-1": CORDONED})
    until("its neighbour is resumed", lambda: open_nodes(cluster) == {"cpu-1"})
    assert drained(cluster) == {"cpu-0": "a loud fan"}
    cluster.login("scontrol", "update", "nodename=cpu-0", "state=resume", user="root")


def test_a_node_that_slurm_gave_up_in_an_outage_takes_jobs_again_when_it_answers(cluster: Cluster) -> None:
    words = "cpu-0: its slurmd answers again"
    before = times(cluster, "Resumed", words)
    cluster.patch("slurmcluster", "demo", {"spec": {"config": {"slurm.conf": "SlurmdTimeout=5"}}})
    try:
        until(
            "Slurm knows it", lambda: "SlurmdTimeout           = 5 sec" in cluster.login("scontrol", "show", "config")
        )
        processes = cluster.sandbox.processes_of("cpu-0", cluster.namespace, "/usr/sbin/slurmd")
        signal_all(processes, signal.SIGSTOP)
        try:
            until("Slurm gives it up", lambda: reason(cluster, "cpu-0") == "Not responding")
        finally:
            signal_all(processes, signal.SIGCONT)
        until("it is told", lambda: times(cluster, "Resumed", words) > before)
    finally:
        cluster.patch("slurmcluster", "demo", {"spec": {"config": None}})


def signal_all(processes: Iterable[int], what: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, what)


def test_a_taint_that_comes_and_goes_again_and_again_soon_drains_no_more(cluster: Cluster) -> None:
    """After a few times its nodes stay drained until it is calm for a while."""
    before = times(cluster, "Draining", TAINTED)
    for _ in range(6):
        with tainted(cluster):
            until("both are drained", lambda: len(drained(cluster)) == 2)
    until("both are resumed", lambda: open_nodes(cluster) == BOTH)
    assert 1 <= times(cluster, "Draining", TAINTED) - before <= 3
