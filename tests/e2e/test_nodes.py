"""A person's tools on the real thing: `seltzer nodes`, `explain`, `drain` and `resume` join what both sides know."""

from __future__ import annotations

import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.harness import Answer, Cluster, Sandbox, until

SPACE = "nodes"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, SPACE, "demo")
    cluster.create(cpu={"replicas": 2}, big={"replicas": 1})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def said(cluster: Cluster, *words: str) -> str:
    """What a command that succeeds prints, without the line's end."""
    return cluster.seltzer(*words).stdout.rstrip("\n")


def refused(cluster: Cluster, *words: str) -> str:
    """The one line of a command that can't do what it was asked."""
    answer = cluster.seltzer(*words, check=False)
    assert answer.code == 1 and answer.stderr.startswith("error: ") and answer.stderr.count("\n") == 1, answer
    return answer.stderr


def rows(cluster: Cluster, *words: str) -> dict[str, list[str]]:
    """The lines of `seltzer nodes` by node, split where there are two blanks."""
    lines = said(cluster, "nodes", "demo", *words).splitlines()
    return {line.split()[0]: re.split(r"  +", line.strip()) for line in lines[1:]}


def listed(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """The same for programs."""
    return {each["name"]: each for each in json.loads(said(cluster, "nodes", "demo", "-o", "json"))["nodes"]}


def in_terminal(cluster: Cluster, columns: int, *words: str) -> list[str]:
    """What is on the screen of a terminal of that width when the command has ended."""
    name = f"seltzer-{uuid.uuid4().hex[:8]}"
    tmux = ["tmux", "-L", name, "-f", os.devnull]
    env = {**cluster.sandbox.environment, "TERM": "xterm-256color"}
    for size in ("COLUMNS", "LINES"):  # they would count for more than the terminal's own
        env.pop(size, None)
    command = " ".join(["seltzer", "--namespace", SPACE, *words, "2>&1; echo the-end; sleep 600"])

    def run(*more: str) -> str:
        return subprocess.run([*tmux, *more], env=env, capture_output=True, text=True, check=True).stdout

    def screen() -> list[str] | None:
        lines = [line.rstrip() for line in run("capture-pane", "-p").splitlines()]
        return lines[: lines.index("the-end")] if "the-end" in lines else None

    run("new-session", "-d", "-x", str(columns), "-y", "50", command)
    try:
        return until(f"{words} has ended", screen)
    finally:
        run("kill-server")


def test_each_node_is_a_row_with_what_both_sides_know(cluster: Cluster) -> None:
    job = cluster.hold("--partition=big", "--time=20:00:00")
    try:
        shown = rows(cluster)
        pods = cluster.pods()
        assert list(shown) == ["big-0", "cpu-0", "cpu-1"]
        assert shown["cpu-0"] == ["cpu-0", "Running", pods["cpu-0"]["spec"]["nodeName"], "idle", "-", "now"]
        assert shown["big-0"][3:5] == ["mixed", job] and re.fullmatch(r"in (19|20)h", shown["big-0"][5])
        assert list(rows(cluster, "--nodeset", "cpu")) == ["cpu-0", "cpu-1"]
        assert list(rows(cluster, "--state", "mixed,down")) == ["big-0"]
        data = listed(cluster)["big-0"]
        assert (data["nodeSet"], data["pod"]["phase"], data["jobs"]) == ("big", "Running", [job])
        assert data["freeAt"] and data["slurm"]["address"] == pods["big-0"]["status"]["podIP"]
        words = said(cluster, "explain", job)
        assert words.startswith(f"Job {job} (wrap, of user) runs on big-0 in partition big, for "), words
    finally:
        cluster.release(job)
    assert said(cluster, "explain", job).endswith("on big-0: all went well.")


def test_what_is_not_there_is_one_line(cluster: Cluster) -> None:
    assert "there is no SlurmCluster 'dmo'" in refused(cluster, "nodes", "dmo")
    assert "demo has no NodeSet 'cpo'; did you mean 'cpu'?" in refused(cluster, "nodes", "demo", "--nodeset", "cpo")
    assert "'drained!' is no state of a node" in refused(cluster, "nodes", "demo", "--state", "drained!")
    assert "Slurm doesn't know job 999999 of demo" in refused(cluster, "explain", "999999")
    assert "there is no node 'cpu-7' in namespace" in refused(cluster, "explain", "cpu-7")
    assert "cpu is a NodeSet" in refused(cluster, "explain", "cpu")
    assert "name one at a time" in refused(cluster, "explain", "cpu-[0-1]")


def test_a_whole_nodeset_is_drained_and_resumed_by_its_name(cluster: Cluster) -> None:
    me = said(cluster, "drain", "cpu-1", "--reason", "a broken fan")
    assert me.startswith("cpu-1 of demo takes no new jobs (a broken fan)")
    try:
        answer = cluster.seltzer("drain", "cpu", "--reason", "new racks")
        assert answer.stdout.startswith("cpu-0 of demo takes no new jobs (new racks)")
        assert "cpu-1 is drained already, and stays so (" in answer.stderr and "a broken fan" in answer.stderr
        data = listed(cluster)
        assert {name: each["state"] for name, each in data.items()} == {
            "big-0": "idle",
            "cpu-0": "drained",
            "cpu-1": "drained",
        }
        who = {each["slurm"]["reasonSetBy"] for name, each in data.items() if name != "big-0"}
        assert len(who) == 1 and not who & {"Slurm", "Seltzer", "slurm"}, "it is told by name whose drain it is"
        words = said(cluster, "explain", "cpu-1")
        assert f"{who.pop()} drained it" in words and "says: a broken fan." in words
        assert words.endswith("Seltzer never undoes what a person did: 'seltzer resume cpu-1' brings it back.")
        said(cluster, "resume", "cpu-1", "--reason", "a new fan")
        told = [each["message"] for each in cluster.events() if each["reason"] == "Resumed"]
        assert any(words.startswith("cpu-1 resumed: a new fan [") for words in told), told
    finally:
        answer = cluster.seltzer("resume", "cpu")
    assert answer.stdout == "cpu-0 of demo takes jobs again\n"
    assert answer.stderr == "cpu-1 is neither drained nor down: nothing to resume there\n"
    assert "no node of cpu is drained or down, so there is nothing to resume" in refused(cluster, "resume", "cpu")
    cluster.wait_ready()


def test_a_job_that_waits_is_told_which_nodes_could_take_it_and_why_they_do_not(cluster: Cluster) -> None:
    running = cluster.hold("--partition=cpu", "--nodelist=cpu-0", "--exclusive", "--time=20:00:00")
    said(cluster, "drain", "cpu-1", "--reason", "a broken fan")
    waiting = cluster.sbatch("true", "--partition=cpu", "--exclusive")
    held = cluster.sbatch("true", "--partition=cpu", "--hold")
    never = cluster.sbatch("true", "--partition=cpu", "--nodes=5")
    try:
        words = until("its reason is known", lambda: _explained(cluster, waiting, "cpu-0 is full"))
        assert f"Job {waiting} (wrap, of user) has waited in partition cpu for " in words
        assert "cpu-1 is drained (" in words and "a broken fan" in words
        assert re.search(r"(The next node to be free is cpu-0,|Slurm expects to start it) in (19|20)h", words), words
        assert said(cluster, "explain", held).endswith(f"'seltzer scontrol demo release {held}' lets it go.")
        words = until("that one's too", lambda: _explained(cluster, never, "it asks for 5 nodes"))
        assert words.endswith("and its partition has 2. 'seltzer scale cpu 5' makes it possible.")
        data = json.loads(said(cluster, "explain", waiting, "-o", "json"))
        assert (data["kind"], data["jobs"][0]["state"]) == ("job", "PENDING")
        assert [each["state"] for each in data["nodes"]] == ["allocated", "drained"]
    finally:
        cluster.login("scancel", waiting, held, never)
        said(cluster, "resume", "cpu-1")
        cluster.release(running)
    cluster.wait_ready()


def _explained(cluster: Cluster, job: str, words: str) -> str | None:
    text = said(cluster, "explain", job)
    return text if words in text else None


def test_a_job_that_waits_for_kubernetes_is_told_so(cluster: Cluster) -> None:
    spec = {"clusterRef": {"name": "demo"}, "replicas": 1, "resources": {"requests": {"cpu": "1000"}}}
    cluster.apply(cluster.manifest("NodeSet", "huge", spec))
    try:
        until("its partition is there", lambda: cluster.run("sinfo", "--noheader", "--partition=huge").stdout)
        job = cluster.sbatch("true", "--partition=huge")
        words = until("it is told", lambda: _explained(cluster, job, "NodeSet huge waits for Kubernetes"))
        assert "Insufficient cpu" in words and "preemption" not in words
        assert rows(cluster)["huge-0"][1:5] == ["Unschedulable", "-", "no record", "-"]
        assert "Kubernetes can't place its pod: " in said(cluster, "explain", "huge-0")
        cluster.login("scancel", job)
    finally:
        cluster.kubectl("delete", "nodeset", "huge", "--timeout=180s")
    cluster.wait_ready()


def test_a_drain_of_seltzers_is_reported_with_its_cause_and_a_resume_is_warned_of(cluster: Cluster) -> None:
    machine = cluster.pods("cpu")["cpu-1"]["spec"]["nodeName"]
    cause = f"Kubernetes node {machine} is cordoned"
    cluster.sandbox.kubectl("cordon", machine)
    try:
        until("Seltzer has drained it", lambda: listed(cluster)["cpu-1"]["slurm"]["reasonSetBy"] == "Seltzer")
        row = rows(cluster)["cpu-1"]
        assert (row[2], row[3]) == (f"{machine} (cordoned)", "drained")
        assert row[6].startswith("Seltzer ") and row[6].endswith(f"ago: {cause}")
        words = said(cluster, "explain", "cpu-1")
        assert f"ago: {cause}." in words
        assert words.endswith(f"Seltzer resumes it by itself when that is over: 'kubectl uncordon {machine}'.")
        answer = cluster.seltzer("resume", "cpu-1")
        assert answer.stderr == f"note: Seltzer drains cpu-1 again for as long as this is so: {cause}\n"
        until("and so it does", lambda: listed(cluster)["cpu-1"]["slurm"]["reasonSetBy"] == "Seltzer")
    finally:
        cluster.sandbox.kubectl("uncordon", machine)
    until("it takes jobs again", lambda: {each["state"] for each in listed(cluster).values()} == {"idle"})


def test_a_node_that_is_none_of_seltzers_is_a_row_too(cluster: Cluster) -> None:
    cluster.in_controller("scontrol", "create", "NodeName=far-away-0", "State=CLOUD")
    try:
        row = rows(cluster)["far-away-0"]
        assert (row[1], row[-1]) == ("none", "not one of Seltzer's")
        assert "It isn't one of Seltzer's nodes" in said(cluster, "explain", "far-away-0")
    finally:
        cluster.in_controller("scontrol", "delete", "NodeName=far-away-0")


def test_a_narrow_terminal_shows_reasons_below_their_nodes(cluster: Cluster) -> None:
    said(cluster, "drain", "cpu-0", "--reason", "a fan that makes a lot of noise and smells of fish")
    try:
        wide, narrow = in_terminal(cluster, 140, "nodes", "demo"), in_terminal(cluster, 50, "nodes", "demo")
        assert len(wide) == 5 and wide[0].split() == ["NODE", "POD", "ON", "STATE", "JOBS", "FREE", "REASON"]
        assert wide[2].endswith("ago: a fan that makes a lot of noise and smells of fish")
        assert wide[4] == "3 nodes: 2 idle, 1 drained"
        at = next(number for number, line in enumerate(narrow) if line.startswith("cpu-0"))
        assert narrow[at + 1].startswith("  ") and "ago: a fan that makes" in narrow[at + 1]
        assert all(len(line) <= 50 for line in narrow)
        assert "drained it" in " ".join(in_terminal(cluster, 50, "explain", "cpu-0"))
    finally:
        said(cluster, "resume", "cpu-0")
    cluster.wait_ready()


def test_where_slurm_can_not_be_asked_the_rest_is_reported_and_that_it_is_not_all(cluster: Cluster) -> None:
    cluster.seltzer("debug", "demo", "--no-shell")
    try:
        answer = cluster.seltzer("nodes", "demo")
        why = "Slurm can't be asked: slurmctld is held; 'seltzer debug demo --release' lets it go"
        assert answer.stderr == f"note: {why}\n"
        assert [line.split()[1] for line in answer.stdout.splitlines()[1:]] == ["Running"] * 3
        assert all("?" in line for line in answer.stdout.splitlines()[1:])
        assert refused(cluster, "explain", "1") == f"error: {why}\n"
        assert refused(cluster, "drain", "cpu") == f"error: {why}\n"
        assert "cpu-0 of demo is in a state that isn't known" in said(cluster, "explain", "cpu-0")
    finally:
        cluster.seltzer("debug", "demo", "--release")
    cluster.wait_ready()


def test_who_may_see_little_is_told_what_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    answer = _as_a_viewer(cluster, tmp_path, "nodes", "demo")
    assert answer.code == 0
    assert answer.stderr.splitlines()[0] == "note: Slurm can't be asked: you may not run commands in slurmctld's pod"
    assert "note: you may not see Kubernetes' nodes" in answer.stderr
    assert [line.split()[:2] for line in answer.stdout.splitlines()[1:]] == [
        ["big-0", "Running"],
        ["cpu-0", "Running"],
        ["cpu-1", "Running"],
    ]
    assert _as_a_viewer(cluster, tmp_path, "drain", "cpu-0").code == 1


def _as_a_viewer(cluster: Cluster, folder: Path, *words: str) -> Answer:
    """A command of somebody who may see clusters, NodeSets and pods of the namespace, and nothing else."""
    rules = [
        {"apiGroups": ["seltzer.dev"], "resources": ["slurmclusters", "nodesets"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "viewer"}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "viewer"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "viewer"},
            "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": SPACE}],
        },
    )
    token = cluster.kubectl("create", "token", "viewer").stdout.strip()
    config = yaml.safe_load(Path(cluster.sandbox.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": token}
    file = folder / "viewer"
    file.write_text(yaml.safe_dump(config))
    line = f"KUBECONFIG={file} seltzer --namespace {SPACE} {' '.join(words)}"
    return cluster.sandbox.shell(line)
