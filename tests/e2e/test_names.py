"""Every node of a cluster has a name that all of its pods and jobs know, from the moment it is idle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.harness import Cluster, Sandbox, until

SPACE, TEAM = "names", "names-team"
# Each name is asked for once, without retries.
ASK = 'for each; do getent ahostsv4 "$each" | head -n 1 | cut -d " " -f 1; done'
ASK_BACK = 'for each; do getent hosts "$each" | head -n 1 | tr -s " " | cut -d " " -f 2; done'


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, SPACE, "demo")
    for space in (SPACE, TEAM):
        installed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    installed.kubectl("apply", "-f", str(Path(__file__).with_name("names.yaml")))
    cluster.wait_ready()
    installed.kubectl("wait", "-n", TEAM, "--for=condition=Ready", "nodeset/gpu", "--timeout=180s")
    yield cluster
    cluster.delete_later()
    installed.later(lambda: installed.delete("namespace", TEAM, "--wait=false"))


def address(cluster: Cluster, node: str) -> str:
    """The address of a node's pod, as Kubernetes knows it."""
    space = TEAM if node.startswith("gpu") else SPACE
    found: str = cluster.sandbox.get("pod", node, "-n", space)["status"].get("podIP", "")
    return found


def addressed(cluster: Cluster, node: str) -> str:
    """The address of a node's pod, once Kubernetes knows it: Slurm may know the node first."""
    return until(f"the pod of {node} has an address", lambda: address(cluster, node))


def full(cluster: Cluster, node: str) -> str:
    """A node's full name, as its own `hostname -f` has it."""
    space = TEAM if node.startswith("gpu") else SPACE
    return cluster.sandbox.kubectl("exec", "-n", space, node, "-c", "slurmd", "--", "hostname", "-f").stdout.strip()


def asked(cluster: Cluster, where: str, *names: str, ask: str = ASK) -> list[str]:
    """The addresses of names (ASK_BACK: the other way). `where`: login, job (on cpu-0), or a container of cpu-0."""
    command = ("sh", "-c", ask, "sh", *names)
    if where == "login":
        return cluster.login(*command).split()
    if where == "job":
        return cluster.login("srun", "--partition=all", "--nodelist=cpu-0", *command).split()
    return cluster.kubectl("exec", "cpu-0", "-c", where, "--", *command).stdout.split()


def is_idle(cluster: Cluster, node: str) -> bool:
    return cluster.slurm_nodes().get(node, "").startswith("IDLE+DYNAMIC")


def test_a_node_has_its_names_everywhere_as_soon_as_it_is_idle(cluster: Cluster) -> None:
    for where in ("login", "slurmd", "beside"):
        assert asked(cluster, where, "cpu-1") == [], "and nobody remembers that there was no such name"
    cluster.scale("cpu", 2)
    until("cpu-1 is idle", lambda: is_idle(cluster, "cpu-1"))
    nodes = ["cpu-0", "cpu-1", "gpu-0"]
    wanted = [addressed(cluster, node) for node in nodes]
    for where in ("login", "slurmd", "beside", "job"):
        assert asked(cluster, where, *nodes) == wanted, where
    names = [full(cluster, node) for node in nodes]
    assert names[1] == f"cpu-1.demo-slurmd.{SPACE}.svc.cluster.local"
    for where in ("login", "slurmd", "beside", "job"):
        assert asked(cluster, where, *names) == wanted, where
        assert asked(cluster, where, *wanted, ask=ASK_BACK) == names, where
    # And from where another namespace is one's own.
    there = cluster.login("srun", "--partition=all", "--nodelist=gpu-0", "sh", "-c", ASK, "sh", *nodes, *names)
    assert there.split() == wanted * 2


def test_a_replaced_node_is_found_at_once(cluster: Cluster) -> None:
    until("cpu-1 is idle", lambda: is_idle(cluster, "cpu-1"))
    before = address(cluster, "cpu-1")
    name = full(cluster, "cpu-1")
    for where in ("login", "slurmd", "beside", "job"):
        assert asked(cluster, where, "cpu-1", name) == [before] * 2
    cluster.kubectl("delete", "pod", "cpu-1")
    until("cpu-1 is another pod", lambda: address(cluster, "cpu-1") not in ("", before))
    job = ("srun", "--partition=all", "--nodelist=cpu-0,cpu-1", "--ntasks-per-node=1")

    def answers() -> list[str]:
        return cluster.login(*job, "sh", "-c", ASK, "sh", "cpu-1", name).split()

    now = address(cluster, "cpu-1")
    assert until("cpu-1 takes jobs", answers) == [now] * 4
    for where in ("login", "slurmd", "beside", "job"):
        assert asked(cluster, where, "cpu-1", name) == [now] * 2, where
        assert asked(cluster, where, now, ask=ASK_BACK) == [name], where


@contextmanager
def without_dns(cluster: Cluster, pod: str) -> Iterator[None]:
    """The pod's name server is an address where nobody answers."""
    inside = ("exec", pod, "-c", "slurmd", "--", "sh", "-c")
    cluster.kubectl(*inside, "cp /etc/resolv.conf /tmp/resolv.conf")
    nobody = "sed 's/^nameserver.*/nameserver 192.0.2.1/' /tmp/resolv.conf >/etc/resolv.conf"
    cluster.kubectl(*inside, f"{nobody}; echo options timeout:30 >>/etc/resolv.conf")
    try:
        yield
    finally:
        cluster.kubectl(*inside, "cat /tmp/resolv.conf >/etc/resolv.conf; rm /tmp/resolv.conf")


def test_a_job_finds_its_own_nodes_while_dns_is_down(cluster: Cluster) -> None:
    until("cpu-1 is idle", lambda: is_idle(cluster, "cpu-1"))
    names = ["cpu-1", full(cluster, "cpu-1")]
    wait = "rm -f /tmp/names.*; touch /tmp/names.waits; until test -e /tmp/names.go; do sleep 0.1; done"
    # Whoever asks DNS waits for longer.
    ask = f"timeout 20 sh -c '{ASK}' sh {' '.join(names)} >/tmp/names.answer; mv /tmp/names.answer /tmp/names.answers"
    cluster.sbatch(f"{wait}; {ask}", "--partition=all", "--nodelist=cpu-[0-1]", "--nodes=2")
    cat = ("exec", "cpu-0", "-c", "slurmd", "--")
    until("the job waits", lambda: cluster.kubectl(*cat, "ls", "/tmp/names.waits"))
    with without_dns(cluster, "cpu-0"):
        cluster.kubectl(*cat, "touch", "/tmp/names.go")
        until("the job has asked", lambda: cluster.kubectl(*cat, "ls", "/tmp/names.answers"))
        answers = cluster.kubectl(*cat, "cat", "/tmp/names.answers").stdout.split()
    assert answers == [address(cluster, "cpu-1")] * 2


def test_while_dns_is_down_jobs_go_on_and_a_condition_says_so(cluster: Cluster) -> None:
    dns = ("-n", "kube-system", "scale", "deployment/coredns")
    job = cluster.hold()

    def names() -> str:
        found = [
            each for each in cluster.get("slurmcluster/demo")["status"]["conditions"] if each["type"] == "NamesReady"
        ]
        return found[0]["status"] if found else ""

    try:
        cluster.sandbox.kubectl(*dns, "--replicas=0")
        until("a condition says so", lambda: names() == "False")
        assert "name server" in cluster.seltzer("status", "demo", check=False).stdout
    finally:
        cluster.sandbox.kubectl(*dns, "--replicas=1")
    until("it is over", lambda: names() == "True")
    until("slurmctld answers", lambda: cluster.run("scontrol", "ping").code == 0)
    assert (cluster.jobs()[job], cluster.job(job)["Restarts"]) == ("RUNNING", "0")
    cluster.release(job)


def test_a_change_of_users_reaches_nodes_in_another_namespace(cluster: Cluster) -> None:
    """The last test: the cluster's user is another one then."""
    nodes = (("cpu-0", SPACE), ("gpu-0", TEAM))

    def known(user: str) -> set[str]:
        ask = ("--container=slurmd", "--", "getent", "passwd", user)
        return {cluster.sandbox.kubectl("exec", "-n", space, node, *ask, check=False).stdout for node, space in nodes}

    def list_users(*users: tuple[str, int]) -> None:
        listed = [{"name": name, "uid": uid} for name, uid in users]
        cluster.patch("slurmcluster", "demo", {"spec": {"users": {"inline": {"users": listed}}}})

    list_users(("dave", 2004))
    until("both know dave", lambda: known("dave") == {"dave:*:2004:2004::/home/dave:/bin/bash\n"})
    list_users(("dave", 2004), ("erin", 2005))
    until("both know erin", lambda: known("erin") == {"erin:*:2005:2005::/home/erin:/bin/bash\n"})
    list_users(("erin", 2005))
    gone = "dave:*:2004:2004::/home/dave:/usr/sbin/nologin\n"
    until("both know that dave has left", lambda: known("dave") == {gone})
