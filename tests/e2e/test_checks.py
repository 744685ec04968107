"""Health checks: what fails, hangs, floods, daemonises or dies drains its node; only its own passing gives it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

FILE = Path(__file__).with_name("checks.yaml")
NODES = [f"cpu-{number}" for number in range(5)]
FAILED_CHECKS, REPLACE_MACHINE = "seltzer.dev/failed-checks", "seltzer.dev/replace-machine"
FAULTS = {
    "cpu-0": ("echo asking the disk; sleep 1000", "no result after 10 s: asking the disk"),
    "cpu-1": ("head -c 1048576 /dev/zero | tr '\\0' x; exit 1", "x" * 160),
    "cpu-2": ("echo leaves a daemon; (setsid sleep 4321 &); exit 1", "leaves a daemon"),
    "cpu-3": ("kill -KILL $$", "killed, as by a lack of memory"),
    "cpu-4": ("echo fails; exit 1", "fails"),
}


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "checks", "demo")
    cluster.create_from(FILE)
    cluster.wait("slurmcluster/demo", "Ready")
    cluster.wait("nodeset/cpu", "Ready")
    yield cluster
    cluster.delete_later()


def reason(cluster: Cluster, node: str) -> str:
    """Why a node is drained; empty while it isn't."""
    lines = cluster.login("scontrol", "--json", "show", "node", node)
    (found,) = json.loads(lines)["nodes"]
    return str(found["reason"]) if "DRAIN" in found["state"] else ""


def as_root(cluster: Cluster, *command: str) -> None:
    answer = cluster.run(*command, user="root")
    assert answer.code == 0, answer.stderr


def file(cluster: Cluster, node: str, name: str, text: str | None) -> None:
    """Write a file for the checks of a node, or remove it."""
    script = f"rm -f /root/{name}" if text is None else f"printf '%s\\n' \"$1\" >/root/{name}"
    cluster.kubectl("exec", node, "--container=slurmd", "--", "sh", "-c", script, "sh", text or "")


def marks(cluster: Cluster, pod: str) -> dict[str, str]:
    found: dict[str, str] = cluster.get(f"pod/{pod}")["metadata"]["annotations"]
    return found


def uids(cluster: Cluster) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in cluster.pods("cpu").items()}


def test_a_node_without_its_gpu_begins_drained_and_asks_for_another_machine(cluster: Cluster) -> None:
    words = "check hardware: there are 0 GPUs, and should be 1"
    until("it is drained", lambda: reason(cluster, "gpu-0") == f"seltzer: {words}")
    until("its pod asks", lambda: marks(cluster, "gpu-0").get(REPLACE_MACHINE) == words)
    until("there are Events", lambda: "ReplaceMachine" in cluster.told("NodeSet", "gpu"))
    said = cluster.told("NodeSet", "gpu")["CheckFailed"]
    assert said == "check hardware fails on gpu-0: there are 0 GPUs, and should be 1"
    until("it is a condition", lambda: cluster.condition("nodeset/gpu", "ChecksPassed").get("status") == "False")
    ready = "gpu-0 is drained by a health check"
    until("Ready names it", lambda: ready in cluster.condition("nodeset/gpu", "Ready")["message"])
    assert words in cluster.seltzer("nodes", "demo").stdout
    assert words in cluster.seltzer("explain", "gpu-0").stdout
    assert "hardware fails on gpu-0" in cluster.seltzer("status", "demo", check=False).stdout


def test_another_list_reaches_the_pod_and_gives_the_node_back(cluster: Cluster) -> None:
    before = cluster.pods("gpu")["gpu-0"]["metadata"]["uid"]
    check = {"name": "hardware", "command": "true", "when": "start", "onFail": "replace", "interval": "10s"}
    cluster.patch("nodeset", "gpu", {"spec": {"checks": [check]}})
    cluster.wait("nodeset/gpu", "Ready")
    assert cluster.pods("gpu")["gpu-0"]["metadata"]["uid"] == before, "its pod is replaced"
    until("its pod asks no more", lambda: REPLACE_MACHINE not in marks(cluster, "gpu-0"))
    passed = "check hardware passes again on gpu-0"
    until("there is an Event", lambda: cluster.told("NodeSet", "gpu").get("CheckPassed") == passed)


def test_each_way_to_fail_drains_its_node_and_disturbs_no_job(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=cpu-0", "--partition=cpu")
    pods = uids(cluster)
    as_root(cluster, "scontrol", "update", "nodename=cpu-4", "state=drain", "reason=fan is loud")
    for node, (fault, _) in FAULTS.items():
        file(cluster, node, "fault", fault)
    file(cluster, "cpu-4", "lost", "")
    for node, (_, output) in FAULTS.items():
        wanted = "fan is loud" if node == "cpu-4" else f"seltzer: check fault: {output}"
        until(f"{node} is drained", lambda node=node, wanted=wanted: reason(cluster, node) == wanted)  # type: ignore[misc]
    until("cpu-4 says so, too", lambda: "fault" in marks(cluster, "cpu-4").get(FAILED_CHECKS, ""))
    # The check may just run again, and its next daemon be there for a moment.
    until("the daemon is ended", lambda: not cluster.sandbox.processes_of("cpu-2", "checks", "4321"))
    note = "check scratch: scratch is lost"
    until("the comment of cpu-4 says so", lambda: note in _comment(cluster, "cpu-4"))
    for node in FAULTS:
        file(cluster, node, "fault", None)
    file(cluster, "cpu-4", "lost", None)
    for node in NODES[:4]:
        until(f"{node} takes jobs", lambda node=node: not reason(cluster, node))  # type: ignore[misc]
    until("all pass", lambda: cluster.condition("nodeset/cpu", "ChecksPassed")["status"] == "True")
    until("the comment is gone", lambda: note not in _comment(cluster, "cpu-4"))
    assert reason(cluster, "cpu-4") == "fan is loud", "a person's drain is undone"
    as_root(cluster, "scontrol", "update", "nodename=cpu-4", "state=resume")
    assert cluster.jobs()[job] == "RUNNING"
    cluster.release(job)
    assert uids(cluster) == pods


def _comment(cluster: Cluster, node: str) -> str:
    (found,) = json.loads(cluster.login("scontrol", "--json", "show", "node", node))["nodes"]
    return str(found["comment"])


def test_a_job_doesnt_start_behind_a_shut_gate_and_isnt_held(cluster: Cluster) -> None:
    file(cluster, "cpu-1", "shut", "")
    job = cluster.sbatch("true", "--nodelist=cpu-1", "--partition=cpu")
    until("it is drained", lambda: reason(cluster, "cpu-1") == "seltzer: check gate: the gate is shut")
    cluster.wait_for_job(job, "PENDING")
    assert cluster.job(job)["Restarts"] == "1"
    file(cluster, "cpu-1", "shut", None)
    until("it takes jobs again", lambda: not reason(cluster, "cpu-1"))
    cluster.login("scontrol", "update", f"jobid={job}", "starttime=now")
    cluster.wait_for_job(job, "COMPLETED")


def test_what_a_job_leaves_behind_drains_its_node_and_no_job_fails(cluster: Cluster) -> None:
    file(cluster, "cpu-2", "dirty", "")
    job = cluster.sbatch("true", "--nodelist=cpu-2", "--partition=cpu")
    words = f"seltzer: check clean: job {job} left dirt"
    until("it is drained", lambda: reason(cluster, "cpu-2") == words)
    cluster.wait_for_job(job, "COMPLETED")
    file(cluster, "cpu-2", "dirty", None)
    until("it takes jobs again", lambda: not reason(cluster, "cpu-2"))


@pytest.mark.parametrize(
    ("check", "says"),
    [
        ({"name": "Disk", "use": "disk"}, "not the name of a check"),
        ({"name": "disk"}, "a check needs something to run"),
        ({"name": "disk", "use": "disk", "command": "true"}, "a check needs something to run"),
        ({"name": "disk", "command": "true", "args": ["/"]}, "args are for the checks that use names"),
        ({"name": "disk", "use": "disk", "interval": "1s"}, "set it between 10s and 24h"),
        ({"name": "disk", "use": "disk", "when": "before", "timeout": "2m"}, "set a timeout of at most 60s"),
        ({"name": "disk", "use": "disk", "timeout": "1h"}, "set it between 1s and 10m"),
        ({"name": "disk", "use": "disk", "args": ["$(reboot)"]}, "not an argument of a check"),
    ],
)
def test_a_check_that_makes_no_sense_is_refused_with_what_to_do(
    cluster: Cluster, check: dict[str, Any], says: str
) -> None:
    patch = f"--patch={json.dumps({'spec': {'checks': [check]}})}"
    answer = cluster.kubectl("patch", "nodeset", "gpu", "--type=merge", patch, "--dry-run=server", check=False)
    assert answer.code
    assert says in answer.stderr
