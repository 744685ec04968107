"""Each node as Slurm and Kubernetes see it, and what only one of them knows."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from tests.builders.facts import drained, known, pod
from tests.builders.objects import machine, nodeset, patched
from tests.builders.slurm import CLOCK, job, node
from tests.builders.slurm import snapshot as slurm

from seltzer.api.core import ObjectCondition
from seltzer.api.labels import SLURM_READY
from seltzer.plan.nodeset import pod_conditions
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Job
from seltzer.view import nodes
from seltzer.view.facts import Facts

POOL = known(
    slurm(drained(), node("cpu-1", "MIXED"), job("7", "RUNNING", "cpu-1")), pod("cpu-0"), pod("cpu-1", "n2")
)  # fmt: skip


def row(found: Facts, name: str = "cpu-0") -> nodes.Row:
    (one,) = [each for each in nodes.rows(found) if each.name == name]
    return one


def test_a_node_is_reported_as_both_sides_see_it() -> None:
    told = slurm(
        drained(state="MIXED DRAIN"),
        job("7", "RUNNING", "cpu-0"),
        job("8", "RUNNING", "cpu-0", "cpu-1", end=CLOCK + 7200),
    )
    one = row(known(told, pod("cpu-0", "n2"), machines=[machine("n2", cordoned=True)]))
    assert (one.nodeset, one.pod, one.machine) == ("cpu", "Running", "n2 (cordoned)")
    assert (one.kind, one.state, one.jobs, one.free) == ("draining", "draining", "7 8", "in 2h")
    assert (one.by, one.reason) == ("ann 5m ago", "bad disk")


@pytest.mark.parametrize(
    ("record", "kind", "words"),
    [
        (node(state="IDLE"), "idle", "idle"),
        (node(state="IDLE DRAIN"), "drained", "drained"),
        (node(state="MIXED DRAIN"), "draining", "draining"),
        (node(state="DOWN"), "down", "down"),
        (node(state="DOWN DRAIN"), "down", "down, drained"),
        (node(state="IDLE NOT_RESPONDING"), "down", "idle, not responding"),
        (node(state="IDLE RESERVED"), "idle", "idle, reserved"),
        (node(state="UNKNOWN"), "other", "unknown"),
        (None, "unknown", "no record"),
    ],
)
def test_every_state_has_words(record: Node | None, kind: str, words: str) -> None:
    assert (nodes.kind(record), nodes.state_words(record)) == (kind, words)


@pytest.mark.parametrize(
    ("jobs", "free"),
    [
        ([], "now"),
        ([job("7", "RUNNING", "cpu-0"), job("8", "RUNNING", "cpu-0", end=None)], "unlimited"),
        ([job("7", "RUNNING", "cpu-0", end=CLOCK - 5)], "any moment"),
        ([job("7", "COMPLETED", "cpu-0", end=CLOCK + 900)], "now"),
        ([job("7", "RUNNING", "cpu-1")], "now"),
    ],
)
def test_a_node_is_free_when_its_longest_job_reaches_its_limit(jobs: list[Job], free: str) -> None:
    assert row(known(slurm(node(), *jobs), pod("cpu-0"))).free == free


def test_many_jobs_are_counted() -> None:
    jobs = [job(str(each), "RUNNING", "cpu-0") for each in range(1, 6)]
    assert row(known(slurm(node(), *jobs), pod("cpu-0"))).jobs == "1 2 +3"


@pytest.mark.parametrize(
    ("found", "pod_word", "state", "words"),
    [
        (known(slurm(node())), "none", "idle", "Slurm has a record of it, but there is no pod"),
        (known(slurm(node(comment="mine"))), "none", "idle", "not one of Seltzer's"),
        (known(slurm(), pod("cpu-0")), "Running", "no record", "it hasn't registered with slurmctld"),
        (known(slurm(), pod("cpu-0", deleting=True)), "Terminating", "no record", "its pod goes"),
        (known(slurm(node()), pod("cpu-0", state="unready")), "NotReady", "idle", ""),
        (
            known(slurm(node(address="10.0.0.1")), pod("cpu-0", address="10.0.0.2")),
            "Running",
            "idle",
            "Slurm looks for it at 10.0.0.1, but its pod has 10.0.0.2",
        ),
        (
            known(slurm(), pod("cpu-0", state="Unschedulable", words="0/2 nodes fit. preemption: 0/2 nodes help.")),
            "Unschedulable",
            "no record",
            "0/2 nodes fit; add Kubernetes nodes, or ask for less",
        ),
    ],
)
def test_what_only_one_side_knows_is_a_row_and_says_so(found: Facts, pod_word: str, state: str, words: str) -> None:
    one = row(found)
    assert (one.pod, one.state, one.reason) == (pod_word, state, words)


def test_where_slurm_can_not_be_asked_what_it_told_last_has_a_question_mark() -> None:
    silent = pod("cpu-1")
    told = ObjectCondition(type=SLURM_READY, status="False", reason="Drained", message="bad disk")
    status = msgspec.structs.replace(silent.status, conditions=(*silent.status.conditions, told))
    silent = msgspec.structs.replace(silent, status=status)
    found = known(None, pod("cpu-0"), silent)
    assert (row(found).kind, row(found).state, row(found).jobs, row(found).free) == ("unknown", "?", "?", "?")
    assert row(found, "cpu-1").state == "drained?"
    (taken_back,) = pod_conditions.unknown([silent], "2027-01-15T08:00:00Z")
    later = known(None, pod("cpu-0"), patched(silent, taken_back.patches[0]))
    assert row(later, "cpu-1").state == "drained?", "also when the pod says that nobody knows"


def test_a_machine_that_is_gone_or_unknown_is_told_apart() -> None:
    assert row(known(slurm(node()), pod("cpu-0"), machines=[])).machine == "n1 (gone)"
    assert row(replace(known(slurm(node()), pod("cpu-0")), machines=None)).machine == "n1"
    assert row(known(slurm(node()), pod("cpu-0"), machines=[machine("n1", "Unknown")])).machine == "n1 (not heard of)"


def test_the_end_of_a_long_list_counts() -> None:
    rows = nodes.rows(POOL)
    assert nodes.summary(rows, 2) == "2 nodes: 1 mixed, 1 drained"
    assert nodes.summary(rows[:1], 2) == "1 of 2 nodes: 1 drained"


def test_programs_get_everything_and_null_for_what_nobody_knows() -> None:
    data = json.loads(json.dumps(nodes.as_data(POOL, POOL.names)))
    first, second = data["nodes"]
    assert (data["cluster"], data["unknown"], first["name"], first["nodeSet"]) == ("demo", [], "cpu-0", "cpu")
    assert (first["state"], first["slurm"]["reasonSetBy"], first["slurm"]["reasonTime"]) == (
        "drained",
        "ann",
        "2001-09-09T01:42:40+00:00",
    )
    assert (second["jobs"], second["freeAt"], second["kubernetesNode"]["cordoned"]) == (
        ["7"],
        "2001-09-09T01:52:40+00:00",
        False,
    )
    (blind,) = json.loads(json.dumps(nodes.as_data(known(None, pod("cpu-0")), ["cpu-0"])))["nodes"]
    assert (blind["slurm"], blind["jobs"], blind["state"]) == (None, None, "unknown")


def test_a_node_that_takes_jobs_although_a_check_fails_says_so() -> None:
    checked = nodeset({"replicas": 1, "checks": [{"name": "disk", "use": "disk", "onFail": "comment"}]})
    found = known(slurm(node(extra='{"seltzer-checks":{"disk":"/tmp is full"}}')), pod("cpu-0"), nodesets=[checked])
    assert nodes.row(found, "cpu-0").reason == "check disk: /tmp is full"
    assert nodes.node_data(found, "cpu-0")["failedChecks"] == ["check disk: /tmp is full"]
