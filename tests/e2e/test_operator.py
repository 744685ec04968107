"""The operator as it is installed: one of two leads, it tells what it does, and it may do no more than it must."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

SYSTEM = "seltzer-system"
SPACE = "operator"
OPERATOR = "app.kubernetes.io/name=seltzer-operator"
GUARD = f"system:serviceaccount:{SPACE}:demo-slurmctld"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, SPACE, "demo")
    cluster.create({"login": {"replicas": 1}}, cpu={"replicas": 1})
    cluster.wait_ready()
    yield cluster
    if cluster.get("slurmclusters").get("items"):
        cluster.delete_later()


def leader(sandbox: Sandbox) -> str:
    """The pod that holds the operator's Lease."""
    found: str = sandbox.get("lease", "seltzer-operator", "--namespace", SYSTEM)["spec"].get("holderIdentity", "")
    return found


def replicas(sandbox: Sandbox) -> dict[str, dict[str, Any]]:
    """The operator's pods that aren't going, once both are ready."""

    def ready() -> dict[str, dict[str, Any]] | None:
        found = {pod["metadata"]["name"]: pod for pod in sandbox.pods(OPERATOR, SYSTEM)}
        states = [each["ready"] for pod in found.values() for each in pod["status"].get("containerStatuses", [])]
        return found if states == [True, True] else None

    return until("two replicas are ready", ready)


def ask(sandbox: Sandbox, pod: str, path: str) -> str:
    """GET from a replica."""
    return sandbox.kubectl("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:8080/proxy{path}").stdout


def log(sandbox: Sandbox, pod: str) -> list[dict[str, Any]]:
    """A replica's log; every line of it must be JSON."""
    lines = sandbox.kubectl("logs", "--namespace", SYSTEM, pod, "--tail=-1").stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_two_run_and_one_leads(cluster: Cluster) -> None:
    found = replicas(cluster.sandbox)
    assert len(found) == 2
    leading = {name: "seltzer_leading 1.0" in ask(cluster.sandbox, name, "/metrics") for name in found}
    assert [name for name, leads in leading.items() if leads] == [leader(cluster.sandbox)]
    for name in found:
        assert ask(cluster.sandbox, name, "/healthz") == "ok\n"
        assert ask(cluster.sandbox, name, "/readyz") == "ok\n"


def test_the_metrics_tell_how_it_does(cluster: Cluster) -> None:
    job = cluster.hold()
    cluster.patch("nodeset", "cpu", {"spec": {"replicas": 0}})
    draining = f'seltzer_draining_nodes{{nodeset="{SPACE}/cpu"}}'

    def metrics() -> str:
        return ask(cluster.sandbox, leader(cluster.sandbox), "/metrics")

    until("a drain is in flight", lambda: f"{draining} 1.0" in metrics())
    text = metrics()
    values = dict(re.findall(r"(?m)^(seltzer_\S+) (\S+)$", text))
    for wanted in (
        'seltzer_passes_total{controller="slurmcluster",outcome="done"}',
        'seltzer_passes_total{controller="nodeset",outcome="failed"}',
        'seltzer_queue_length{controller="nodeset"}',
        'seltzer_slurm_call_seconds_count{call="DrainNodes"}',
        'seltzer_pass_seconds_count{controller="nodeset"}',
    ):
        assert wanted in values
    for kind in ("Pod", "SlurmCluster", "NodeSet", "Lease"):
        stale = float(values[f'seltzer_cache_stale_seconds{{kind="{kind}"}}'])
        assert 0 <= stale < 120, f"the cache of {kind} is {stale} s old"
    assert float(values['seltzer_passes_total{controller="nodeset",outcome="done"}']) > 0
    cluster.patch("nodeset", "cpu", {"spec": {"replicas": 1}})
    until("it is no longer", lambda: f"{draining} 0.0" in metrics())
    cluster.wait_ready()
    cluster.release(job)


def test_a_log_line_is_json_with_object_and_step(cluster: Cluster) -> None:
    # Another one may have led before.
    entries = [entry for name in replicas(cluster.sandbox) for entry in log(cluster.sandbox, name)]
    steps = [entry for entry in entries if entry.get("object") == f"NodeSet/{SPACE}/cpu"]
    assert {"CreatePods", "DrainNodes", "ResumeNodes"} <= {entry["step"] for entry in steps}
    for entry in entries:
        assert {"time", "level", "logger", "message"} <= set(entry)


def test_it_runs_restricted_and_its_rights_have_no_wildcard(cluster: Cluster) -> None:
    labels = cluster.sandbox.get("namespace", SYSTEM)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    rules = cluster.sandbox.get("clusterrole", "seltzer-operator")["rules"]
    rules += cluster.sandbox.get("role", "seltzer-operator", "--namespace", SYSTEM)["rules"]
    said = [word for rule in rules for part in ("apiGroups", "resources", "verbs") for word in rule.get(part, [])]
    assert "pods" in said
    assert not [word for word in said if "*" in word]
    assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(said)


def may(cluster: Cluster, who: str, *words: str) -> bool:
    answer = cluster.kubectl("auth", "can-i", *words, f"--as={who}", check=False).stdout.strip()
    assert answer in ("yes", "no"), answer
    return answer == "yes"


def test_the_guard_may_change_its_lease_and_its_addresses_and_nothing_else(cluster: Cluster) -> None:
    for verb in ("get", "update", "patch"):
        assert may(cluster, GUARD, verb, "leases/demo-slurmctld")
        assert may(cluster, GUARD, verb, "endpointslices.discovery.k8s.io/demo-slurmctld")
    forbidden = [
        ("get", "leases/other"),
        ("create", "leases"),
        ("delete", "leases/demo-slurmctld"),
        ("list", "endpointslices.discovery.k8s.io"),
        ("update", "endpointslices.discovery.k8s.io/other"),
        ("get", "secrets"),
        ("list", "pods"),
        ("create", "pods"),
        ("get", "configmaps"),
        ("get", "slurmclusters.seltzer.dev"),
        ("get", "leases/demo-slurmctld", "--namespace=default"),
    ]
    assert not [words for words in forbidden if may(cluster, GUARD, *words)]
    others = [pod for pod in cluster.pods().values() if "slurmctld" not in pod["metadata"]["name"]]
    for pod in others:
        assert pod["spec"]["automountServiceAccountToken"] is False, "who needs no token has none"


def test_a_killed_slurmctld_is_back_in_place(cluster: Cluster) -> None:
    job = cluster.hold()
    saved(cluster, job)
    before = cluster.slurmctld()
    (name,) = (name for name in cluster.pods() if "slurmctld" in name)
    cluster.in_controller("pkill", "-KILL", "-P", "1")
    after = until("another slurmctld runs", lambda: another(cluster, before))
    assert after.split()[0] == before.split()[0], "in the same pod"
    pod = cluster.get(f"pod/{name}")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0, "in the same container"
    cluster.wait_ready()
    assert cluster.jobs()[job] == "RUNNING"
    cluster.release(job)


def saved(cluster: Cluster, job: str) -> None:
    """Wait until slurmctld has saved the job as it is: what it acknowledged in the last five seconds it may forget."""
    cluster.login("scontrol", "update", f"job={job}", "comment=saved-with-this", user="root")
    look = "cat /var/spool/slurmctld/epoch-*/job_state | grep -q saved-with-this"
    until("the job is saved", lambda: cluster.in_controller("sh", "-c", look, check=False).code == 0)


def another(cluster: Cluster, before: str) -> str | None:
    """The slurmctld that runs, if it isn't that one and answers."""
    answers = cluster.run("scontrol", "ping").stdout
    found = cluster.slurmctld()
    return found if "is UP" in answers and found not in ("", before) else None


def test_a_leader_that_hangs_is_replaced_and_slurm_does_not_notice(cluster: Cluster) -> None:
    """The worst way to die: it lets go of nothing, and wakes up later."""
    job = cluster.hold()
    before, old = cluster.slurmctld(), leader(cluster.sandbox)
    pods = {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()}
    generations = {each["metadata"]["name"]: each["metadata"]["generation"] for each in deployments(cluster)}
    (standby,) = set(replicas(cluster.sandbox)) - {old}
    frozen = cluster.sandbox.processes_of(old, SYSTEM, "operator")
    assert frozen
    try:
        signal_all(frozen, signal.SIGSTOP)
        until("the other one leads", lambda: leader(cluster.sandbox) == standby)
        cluster.patch("nodeset", "cpu", {"spec": {"replicas": 2}})
        until("the new leader works", lambda: len(cluster.pods("cpu")) == 2)
    finally:
        signal_all(frozen, signal.SIGCONT)
    cluster.wait_ready()
    until("both are well again", lambda: set(replicas(cluster.sandbox)) == {old, standby})
    until("the old one knows", lambda: "seltzer_leading 0.0" in ask(cluster.sandbox, old, "/metrics"))
    assert leader(cluster.sandbox) == standby
    assert cluster.slurmctld() == before
    now = {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()}
    assert pods.items() <= now.items(), "nothing was made anew"
    assert {each["metadata"]["name"]: each["metadata"]["generation"] for each in deployments(cluster)} == generations
    assert cluster.jobs()[job] == "RUNNING"
    cluster.release(job)


def signal_all(processes: list[int], what: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, what)


@contextmanager
def holders(sandbox: Sandbox) -> Iterator[Iterator[str]]:
    """Who holds the operator's Lease, now and after each write of it; empty where nobody does."""
    words = ["--namespace", SYSTEM, "get", "lease", "seltzer-operator", "--watch"]
    line = [*sandbox.command_words(), *words, '--output=jsonpath={.spec.holderIdentity}{"\\n"}']
    watch = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        assert watch.stdout
        yield (each.rstrip("\n") for each in watch.stdout)
    finally:
        watch.kill()
        watch.communicate()


def test_a_leader_that_is_asked_to_go_hands_over_at_once(cluster: Cluster) -> None:
    old = leader(cluster.sandbox)
    with holders(cluster.sandbox) as seen:
        assert next(seen) == old
        cluster.sandbox.kubectl("delete", "pod", old, "--namespace", SYSTEM, "--wait=false")
        assert next(holder for holder in seen if holder != old) == "", "the old leader releases the Lease"
    until("another leads", lambda: leader(cluster.sandbox) not in ("", old))
    assert old not in replicas(cluster.sandbox)


def deployments(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get("deployments")["items"]
    return found


def test_its_rights_suffice_for_a_whole_life(cluster: Cluster) -> None:
    """Last: made, configured, scaled, updated and deleted, nothing was forbidden to any replica."""
    assert cluster.configure({"slurm.conf": "KillWait=31\n"})["status"] == "True"
    cluster.patch("nodeset", "cpu", {"spec": {"replicas": 1, "features": ["fast"]}})
    cluster.wait("nodeset/cpu", "Updated")
    cluster.patch("slurmcluster", "demo", {"spec": {"controller": {"storage": {"onDelete": "delete"}}}})
    cluster.delete()
    for name in replicas(cluster.sandbox):
        words = [entry["message"] for entry in log(cluster.sandbox, name)]
        # Quotas and namespaces that go forbid things too, whatever one's rights are; other tests have both.
        assert not [each for each in words if "forbidden: User" in each]
