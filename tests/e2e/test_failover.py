"""slurmctld moves: on purpose, to a standby when its node dies, past a pod that cannot end; or is held where it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.saved import saved_job
from tests.harness import Answer, Cluster, Sandbox, until

from seltzer.guard.recovery.slurm import NODE_THREADS

HOSTNAME = "kubernetes.io/hostname"
# What it takes at worst is the fault campaign's to tell.
MOVED = 180.0


def on(*nodes: str) -> dict[str, Any]:
    """A podTemplate that keeps pods to these Kubernetes nodes."""
    wanted = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": wanted}}}
    return {"podTemplate": {"spec": {"affinity": affinity}}}


def made(sandbox: Sandbox, namespace: str, **controller: Any) -> Cluster:
    """A cluster whose controllers are on nodes that may die, and all else beside DNS on the one that may not."""
    (dns,) = sandbox.pods("k8s-app=kube-dns", "kube-system")
    steady = dns["spec"]["nodeName"]
    mortal = [name for name in ("n1", "n2", "n3") if name != steady]
    cluster = Cluster(sandbox, namespace, "demo")
    spec = {"controller": {**controller, **on(*mortal)}, "rest": on(steady), "login": on(steady)}
    cluster.create(spec, cpu={"replicas": 1, **on(steady)})
    cluster.wait_ready()
    return cluster


@pytest.fixture(scope="module")
def pair(installed: Sandbox) -> Iterator[Cluster]:
    """A controller and a standby on a volume that both may mount."""
    cluster = made(installed, "pair", standby=1, storage={"accessMode": "ReadWriteMany", "size": "1Gi"})
    yield cluster
    cluster.delete_later()


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves the pair as it found it: one works, one stands by, nobody is held."""
    yield
    if "pair" in request.fixturenames:
        cluster: Cluster = request.getfixturevalue("pair")
        for node in ("n1", "n2", "n3"):
            cluster.sandbox.command("node", "heal", node)
        cluster.patch("slurmcluster", "demo", {"spec": {"controller": {"hold": False}}})
        cluster.wait("slurmcluster/demo", "Ready")
        cluster.wait("slurmcluster/demo", "StandbyReady")


def controller(cluster: Cluster) -> dict[str, Any]:
    """What the cluster's status says about it: pod, node, epoch, standbys and so on."""
    found: dict[str, Any] = cluster.status().get("controller", {})
    return found


def lease(cluster: Cluster) -> tuple[str, str]:
    """Who holds it, and in which phase slurmctld is there."""
    found = cluster.get(f"lease/{cluster.name}-slurmctld")
    return found["spec"].get("holderIdentity", ""), found["metadata"]["annotations"].get("seltzer.dev/phase", "")


def beside(cluster: Cluster, pod: str, *command: str, check: bool = True) -> Answer:
    """Run a command in a controller's pod."""
    return cluster.kubectl("exec", pod, "--container=slurmctld", "--", *command, check=check)


def slurmctld(cluster: Cluster, pod: str) -> str:
    """The process that the guard in a pod looks after; empty where there is none."""
    return beside(
        cluster, pod, "sh", "-c", "ps --ppid 1 -o pid=,args= | awk '/slurmctld -D/ {print $1}'"
    ).stdout.strip()


def answers(cluster: Cluster) -> bool:
    """Whether slurmctld takes a job and it runs."""
    return cluster.run("timeout", "30", "srun", "--immediate=25", "true").code == 0


def event(cluster: Cluster, reason: str, words: str) -> str:
    """The first of the cluster's Events of this reason that has these words."""

    def find() -> str | None:
        found = [each["message"] for each in cluster.events() if each["reason"] == reason]
        return next((message for message in found if words in message), None)

    return until(f"an Event {reason} with {words!r}", find)


def test_a_standby_waits_on_another_node_and_is_shown(pair: Cluster) -> None:
    pair.wait("slurmcluster/demo", "StandbyReady")
    told = controller(pair)
    (standby,) = told["standbys"]
    assert standby["node"] and standby["node"] != told["node"]
    assert slurmctld(pair, told["pod"]) and not slurmctld(pair, standby["pod"])
    said = pair.seltzer("status", "demo").stdout
    assert f"active   {told['pod']} on {told['node']}, epoch {told['epoch']}" in said
    assert f"standby  {standby['pod']} on {standby['node']}" in said


def test_slurmctld_tells_whether_it_waits_for_nodes(pair: Cluster) -> None:
    """After a repair, nodes register again when it doesn't."""
    pod = controller(pair)["pod"]
    until("it waits for none", lambda: NODE_THREADS.findall(beside(pair, pod, "sdiag").stdout) == ["0"])


def test_failover_on_purpose_loses_nothing_and_tells_from_where_to_where(pair: Cluster) -> None:
    job, before = pair.hold(), controller(pair)
    waiting = pair.sbatch("true", "--hold")
    took = json.loads(pair.seltzer("failover", "demo", "-o", "json").stdout)
    assert took["from"] == {"pod": before["pod"], "node": before["node"]}
    assert took["to"] == {"pod": before["standbys"][0]["pod"], "node": before["standbys"][0]["node"]}
    assert 0 < took["seconds"] < MOVED
    assert lease(pair) == (took["to"]["pod"], "running")
    assert pair.jobs()[job] == "RUNNING" and pair.jobs()[waiting] == "PENDING"
    sides = [f"{took[side]['pod']} on {took[side]['node']}" for side in ("to", "from")]
    event(pair, "FailedOver", " has taken over as the controller from ".join(sides))
    pair.release(job)
    pair.login("scancel", waiting)
    until("the next standby is there", lambda: controller(pair)["standbys"] or None)
    assert controller(pair)["epoch"] == before["epoch"] + 1


def test_with_a_standby_a_killed_node_costs_no_job(pair: Cluster) -> None:
    job, before = saved_job(pair), controller(pair)
    pair.sandbox.command("node", "kill", before["node"])
    until("slurmctld answers from the other node", lambda: answers(pair), MOVED)
    assert lease(pair)[0] == before["standbys"][0]["pod"]
    assert pair.jobs()[job] == "RUNNING"
    until("the status says so", lambda: controller(pair)["pod"] == before["standbys"][0]["pod"])
    # Kubernetes evicts what is on the dead node, and can't end it there; nobody has to wait for that.
    said = event(pair, "RemovingStuckPod", before["pod"])
    assert f"kubectl taint node {before['node']} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in said
    until("the pod on the dead node is gone", lambda: not pair.get(f"pod/{before['pod']}"))
    pair.sandbox.command("node", "heal", before["node"])
    pair.release(job)


def test_a_crash_is_reported_with_its_last_words_and_its_core_is_at_hand(pair: Cluster) -> None:
    pod = controller(pair)["pod"]
    beside(pair, pod, "kill", "-SEGV", slurmctld(pair, pod))
    crash = until("the crash is told", lambda: pair.status().get("crash"))
    assert crash["how"] == "was ended by SIGSEGV"
    until("slurmctld answers again", lambda: answers(pair))
    assert lease(pair) == (pod, "running"), "a crash is mended in place"
    event(pair, "Crashed", "slurmctld was ended by SIGSEGV; its last words: ")
    until("the backtrace is there", lambda: pair.status()["crash"]["backtrace"] or None)
    shown = pair.seltzer("status", "demo").stdout
    assert "ago: slurmctld was ended by SIGSEGV, core /run/cores/" in shown and "#0 " in shown
    said = pair.seltzer("debug", "demo", "--no-shell").stdout
    core = pair.status()["crash"]["core"]
    assert f"gdb slurmctld {core}" in said
    assert "#" in beside(pair, pod, "gdb", "--batch", "-ex", "bt", "slurmctld", core).stdout


def test_a_held_slurmctld_stays_down_with_its_container_and_its_place(pair: Cluster) -> None:
    job, before = pair.hold(), controller(pair)
    pod, standby = before["pod"], before["standbys"][0]["pod"]
    uid = pair.get(f"pod/{pod}")["metadata"]["uid"]
    said = pair.seltzer("debug", "demo").stdout
    assert f"slurmctld is down in {pod} on {before['node']}" in said
    assert "/run/slurmctld-state/slurmctld.log" in said
    assert lease(pair) == (pod, "held")
    assert not slurmctld(pair, pod) and not slurmctld(pair, standby), "nobody takes over"
    pair.wait("slurmcluster/demo", "ControllerReady", "False")
    assert pair.condition("slurmcluster/demo", "ControllerReady")["reason"] == "Held"
    assert beside(pair, pod, "test", "-s", "/run/slurmctld-state/slurmctld.log", check=False).code == 0
    shown = pair.seltzer("status", "demo", check=False)
    assert shown.code == 3 and "'seltzer debug demo --release' lets it go" in shown.stdout
    refused = pair.seltzer("failover", "demo", check=False)
    assert refused.code == 1 and refused.stderr.count("\n") == 1
    assert "release it first with 'seltzer debug demo --release'" in refused.stderr
    assert f"slurmctld runs in {pod}" in pair.seltzer("debug", "demo", "--release").stdout
    pair.wait("slurmcluster/demo", "Ready")
    assert pair.get(f"pod/{pod}")["metadata"]["uid"] == uid and lease(pair) == (pod, "running")
    assert controller(pair)["epoch"] == before["epoch"]
    assert pair.jobs()[job] == "RUNNING"
    event(pair, "Held", "slurmctld is held")
    event(pair, "Released", "no longer held")
    pair.release(job)


def test_a_pod_that_cannot_end_makes_way_for_its_successor(installed: Sandbox) -> None:
    """Of a ReadWriteOncePod volume the scheduler gives nobody a pod before the last one is gone."""
    solo = made(installed, "solo", storage={"accessMode": "ReadWriteOncePod", "size": "1Gi"})
    try:
        job, before = saved_job(solo), controller(solo)
        installed.command("node", "kill", before["node"])
        said = event(solo, "RemovingStuckPod", before["pod"])
        assert "a slurmctld that still runs there can't change the state" in said
        until("slurmctld answers from another node", lambda: answers(solo), MOVED)
        until("the status says so", lambda: controller(solo)["node"] not in ("", before["node"]))
        assert controller(solo)["epoch"] == before["epoch"] + 1
        assert solo.jobs()[job] == "RUNNING"
    finally:
        for node in ("n1", "n2", "n3"):
            installed.command("node", "heal", node)
            installed.wait_for_node(node, "True")
        solo.delete_later()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"standby": 1}, "set storage.accessMode to ReadWriteMany"),
        ({"leaseDuration": "1s"}, "set leaseDuration to between 2s and 5m"),
        ({"leaseDuration": "10m"}, "set leaseDuration to between 2s and 5m"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(installed: Sandbox, spec: dict[str, Any], words: str) -> None:
    manifest = {
        "apiVersion": "seltzer.dev/v1alpha1",
        "kind": "SlurmCluster",
        "metadata": {"name": "bad"},
        "spec": {"controller": spec},
    }
    answer = installed.kubectl("create", "-f", "-", stdin=json.dumps(manifest), check=False)
    assert answer.code != 0 and words in answer.stderr


@pytest.mark.parametrize("verb", ["failover", "debug"])
def test_a_cluster_that_does_not_exist_is_one_clear_line(pair: Cluster, verb: str) -> None:
    answer = pair.seltzer(verb, "nope", check=False)
    assert answer.code == 1 and answer.stderr.count("\n") == 1
    assert "there is no SlurmCluster 'nope' in namespace 'pair'; there is demo" in answer.stderr
