"""`seltzer explain` joins what Slurm and Kubernetes know into a paragraph, and says what nobody knows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.builders.facts import drained, known, pod
from tests.builders.objects import machine, nodeset
from tests.builders.slurm import CLOCK, job, node
from tests.builders.slurm import snapshot as slurm

from seltzer.api.core import (
    ContainerState,
    ContainerStatus,
    Lease,
    LeaseSpec,
    ObjectCondition,
    ObjectMeta,
    Pod,
    Terminated,
)
from seltzer.api.labels import RECOVERED, SLURM_READY
from seltzer.errors import SeltzerError
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Job, Partition
from seltzer.view.controller import ControllerFacts
from seltzer.view.explain import job as explain_job
from seltzer.view.explain import node as explain_node
from seltzer.view.facts import Facts

CORDONED = "seltzer: Kubernetes node n2 is cordoned"
N2_CORDONED = [machine("n1"), machine("n2", cordoned=True)]
UP = Partition("cpu")


def about_node(found: Facts, name: str = "cpu-0") -> str:
    return " ".join(explain_node.explain(found, name).sentences)


def about_job(found: Facts, word: str = "7") -> str:
    return " ".join(explain_job.explain(found, word).sentences)


# --- nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (known(slurm(node(cpus=4)), pod("cpu-0")), "cpu-0 of demo is idle: 4 of 4 CPUs are free."),
        (
            known(slurm(node(state="ALLOCATED", cpus=2, alloc_cpus=2), job("7", "RUNNING", "cpu-0")), pod("cpu-0")),
            "cpu-0 of demo is allocated: all its CPUs are in use, and on it is job 7, which ends in 5m at most.",
        ),
        (
            known(slurm(drained()), pod("cpu-0")),
            "cpu-0 of demo is drained: it takes no new jobs, and none is on it. ann drained it 5m ago, and says: bad "
            "disk. Nothing is wrong with its Kubernetes node n1. Seltzer never undoes what a person did: 'seltzer "
            "resume cpu-0' brings it back.",
        ),
        (
            known(
                slurm(
                    drained(reason=CORDONED, state="MIXED DRAIN"),
                    job("7", "RUNNING", "cpu-0", end=None),
                    job("8", "RUNNING", "cpu-0"),
                ),
                pod("cpu-0", "n2"),
                machines=N2_CORDONED,
            ),
            "cpu-0 of demo is draining: it takes no new jobs, and on it are jobs 7, 8, not all of which have a time "
            "limit. Seltzer drained it 5m ago: Kubernetes node n2 is cordoned. Seltzer resumes it by itself when "
            "that is over: 'kubectl uncordon n2'.",
        ),
        (
            known(slurm(drained(reason=CORDONED)), pod("cpu-0", "n2")),
            "cpu-0 of demo is drained: it takes no new jobs, and none is on it. Seltzer drained it 5m ago: "
            "Kubernetes node n2 is cordoned. Nothing is wrong with its Kubernetes node n2. That is over: Seltzer "
            "resumes it by itself when it has been so for some seconds.",
        ),
        (
            known(slurm(drained()), pod("cpu-0", "n2"), machines=N2_CORDONED),
            "cpu-0 of demo is drained: it takes no new jobs, and none is on it. ann drained it 5m ago, and says: bad "
            "disk. Its Kubernetes node n2 is cordoned. Seltzer never undoes what a person did: 'seltzer resume "
            "cpu-0' brings it back, but Seltzer drains it again for as long as n2 is cordoned.",
        ),
        (
            known(slurm(drained(reason="seltzer: scale-in", state="MIXED DRAIN")), pod("cpu-0")),
            "cpu-0 of demo is draining: it takes no new jobs, and what was on it is being cleaned up. Seltzer "
            "drained it 5m ago: NodeSet cpu is to have 2 nodes, and this one is too many. Nothing is wrong with its "
            "Kubernetes node n1. Its pod goes when its jobs have ended; 'seltzer scale cpu N' with a larger N keeps "
            "it.",
        ),
        (
            known(slurm(drained(reason="seltzer: update")), pod("cpu-0")),
            "cpu-0 of demo is drained: it takes no new jobs, and none is on it. Seltzer drained it 5m ago: its "
            "NodeSet was changed, and it is to be replaced. Nothing is wrong with its Kubernetes node n1. A new pod "
            "takes its place now.",
        ),
        (
            known(slurm(drained(reason="Not responding", state="DOWN NOT_RESPONDING")), pod("cpu-0", state="unready")),
            "cpu-0 of demo is down, not responding: it takes no new jobs, and none is on it. Slurm itself set it "
            "down 5m ago, and says: Not responding. Its pod is Running, but not ready. Nothing is wrong with its "
            "Kubernetes node n1. Seltzer resumes it by itself when its slurmd answers. 'seltzer logs demo cpu-0' "
            "shows what its slurmd says.",
        ),
        (
            known(slurm(drained(reason="Kill task failed")), pod("cpu-0")),
            "cpu-0 of demo is drained: it takes no new jobs, and none is on it. Slurm itself drained it 5m ago, and "
            "says: Kill task failed. Nothing is wrong with its Kubernetes node n1. 'seltzer resume cpu-0' brings it "
            "back when it is well.",
        ),
        (
            known(slurm(drained(reason="gres/gpu count reported lower", state="IDLE DRAIN INVALID_REG")), pod("cpu-0")),
            "cpu-0 of demo is drained, registration refused: it takes no new jobs, and none is on it. Slurm itself "
            "drained it 5m ago, and says: gres/gpu count reported lower. Nothing is wrong with its Kubernetes node n1. "
            "Its pod lacks what Slurm expects: delete it for another try, then resume cpu-0. 'seltzer logs demo cpu-0' "
            "shows what its slurmd says.",
        ),
        (
            known(slurm(node(state="IDLE NOT_RESPONDING")), pod("cpu-0"), machines=[machine("n1", "Unknown")]),
            "cpu-0 of demo is idle, not responding: it takes no new jobs, and none is on it. Its Kubernetes node n1 "
            "is not heard of. It comes back when n1 does.",
        ),
        (
            known(slurm(), pod("cpu-0", state="Unschedulable", words="0/2 nodes fit.")),
            "cpu-0 of demo isn't registered with slurmctld, so no job can run on it. Kubernetes can't place its pod: "
            "0/2 nodes fit; add Kubernetes nodes, or ask for less. It registers by itself when its pod runs.",
        ),
        (
            known(slurm(), pod("cpu-0", state="waiting")),
            "cpu-0 of demo isn't registered with slurmctld, so no job can run on it. Its pod is still starting. "
            "Nothing is wrong with its Kubernetes node n1. It registers by itself when its pod runs.",
        ),
        (
            known(slurm(), pod("cpu-0")),
            "cpu-0 of demo isn't registered with slurmctld, so no job can run on it. Nothing is wrong with its "
            "Kubernetes node n1. 'seltzer logs demo cpu-0' shows what its slurmd says.",
        ),
        (
            known(slurm(node(state="DOWN"))),
            "cpu-0 of demo is down: it takes no new jobs, and none is on it. It has no pod. Seltzer makes it a new "
            "pod, or removes the record, as its NodeSet wants.",
        ),
        (
            known(slurm(node(state="DOWN", comment="mine"))),
            "cpu-0 of demo is down: it takes no new jobs, and none is on it. It isn't one of Seltzer's nodes: it is "
            "in slurm.conf, or registered by itself.",
        ),
    ],
)
def test_a_node_is_explained_with_what_would_bring_it_back(found: Facts, words: str) -> None:
    assert about_node(found) == words


def test_a_slurmd_that_was_killed_is_reported() -> None:
    killed = pod("cpu-0", state="unready")
    last = ContainerState(terminated=Terminated(exit_code=137, reason="OOMKilled"))
    status = msgspec.structs.replace(
        killed.status, container_statuses=(ContainerStatus(name="slurmd", last_state=last),)
    )
    found = known(slurm(node(state="DOWN")), msgspec.structs.replace(killed, status=status))
    assert "Its pod is Running, but not ready since slurmd ended (OOMKilled)." in about_node(found)


def test_where_slurm_can_not_be_asked_what_it_told_last_is_reported_as_such() -> None:
    one = pod("cpu-0")
    told = ObjectCondition(type=SLURM_READY, status="False", reason="Drained", message="bad disk [ann]")
    status = msgspec.structs.replace(one.status, conditions=(*one.status.conditions, told))
    found = known(None, msgspec.structs.replace(one, status=status), gaps=["Slurm can't be asked: it is held"])
    assert about_node(found) == (
        "cpu-0 of demo is in a state that isn't known; when Slurm last answered it was drained (bad disk [ann]). "
        "Nothing is wrong with its Kubernetes node n1. Slurm can't be asked: it is held."
    )


def test_what_can_not_be_seen_is_not_taken_for_well() -> None:
    found = replace(known(slurm(drained()), pod("cpu-0")), machines=None, gaps=["you may not see Kubernetes' nodes"])
    said = about_node(found)
    assert "Nothing is wrong" not in said and said.endswith("You may not see Kubernetes' nodes.")


def test_a_node_that_is_not_there_is_one_line() -> None:
    with pytest.raises(SeltzerError, match=r"demo has no node 'cpu-11' that is known; did you mean 'cpu-1'"):
        about_node(known(slurm(node("cpu-1"))), "cpu-11")
    with pytest.raises(SeltzerError, match="that is known; it is held"):
        about_node(known(None, pod("cpu-0"), silence="it is held"), "cpu-1")


# --- jobs: which -----------------------------------------------------------------------------------------------------


def pending(reason: str, id_: str = "7", **more: Any) -> Job:
    start = more.pop("start", None)
    return job(id_, "PENDING", end=None, reason=reason, submit=CLOCK - 600, start=start, **more)


ARRAY = (
    job("7_1", "RUNNING", "cpu-0", number=8),
    job("7_2", "COMPLETED", number=9),
    pending("Resources", "7_[3,5-9:2%1]"),
)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("7", ["7_1", "7_2", "7_[3,5-9:2%1]"]),
        ("7_1", ["7_1"]),
        ("8", ["7_1"]),
        ("7_3", ["7_[3,5-9:2%1]"]),
        ("7_9", ["7_[3,5-9:2%1]"]),
        ("7_6", []),
        ("7_x", []),
        ("1", []),
        ("70", []),
    ],
)
def test_a_job_is_found_by_its_id_its_array_or_its_task(word: str, found: list[str]) -> None:
    assert [each.id for each in explain_job.matching(ARRAY, word)] == found


def test_an_array_is_reported_as_a_whole_and_why_the_rest_waits() -> None:
    said = about_job(known(slurm(node(state="ALLOCATED", cpus=1, alloc_cpus=1), *ARRAY), pod("cpu-0")))
    assert said.startswith(
        "Of job 7, 7_1 runs, 7_[3,5-9:2%1] waits, 1 is over. Job 7_[3,5-9:2%1] (train, of ann) has waited"
    )


def test_a_job_that_never_was_is_one_line() -> None:
    with pytest.raises(SeltzerError, match="Slurm doesn't know job 99 of demo"):
        about_job(known(slurm(job())), "99")
    with pytest.raises(SeltzerError, match="it is held"):
        about_job(known(None, silence="it is held"))


# --- jobs: why -------------------------------------------------------------------------------------------------------

FULL = node("cpu-0", "ALLOCATED", cpus=2, alloc_cpus=2)
HALF = node("cpu-1", "MIXED", cpus=2, alloc_cpus=1)
WAITED = "Job 7 (train, of ann) has waited in partition cpu for 10m: "


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            slurm(FULL, drained("cpu-1"), pending("Resources"), job("6", "RUNNING", "cpu-0")),
            "the nodes that it could run on are busy or out of service. Of the 2 nodes of partition cpu, cpu-0 is "
            "full; cpu-1 is drained (ann: bad disk). The next node to be free is cpu-0, in 5m at most.",
        ),
        (
            slurm(
                FULL,
                HALF,
                pending("Resources"),
                job("6", "RUNNING", "cpu-[0-1]"),
                job("5", "RUNNING", "cpu-0", end=None),
            ),
            "the nodes that it could run on are busy or out of service. Of the 2 nodes of partition cpu, cpu-0 is "
            "full; cpu-1 has 1 of 2 CPUs free. The jobs on its nodes have no time limit, so nobody can tell when one "
            "will be free.",
        ),
        (
            slurm(FULL, pending("Resources", start=CLOCK + 120)),
            "the nodes that it could run on are busy or out of service. cpu-0 is full. Slurm expects to start it in "
            "2m.",
        ),
        (
            slurm(FULL, pending("Resources", start=CLOCK + 364 * 86400), job("6", "RUNNING", "cpu-0", end=None)),
            "the nodes that it could run on are busy or out of service. cpu-0 is full. The jobs on its nodes have no "
            "time limit, so nobody can tell when one will be free.",
        ),
        (
            slurm(
                FULL,
                pending("Priority"),
                pending("Resources", "6"),
                pending("Priority", "9", priority=5),
                pending("JobHeldUser", "3"),
                pending("PartitionConfig", "4"),
                pending("Resources", "5", partition="big"),
            ),
            "2 jobs come first (9, 6). cpu-0 is full.",
        ),
        (slurm(FULL, pending("Priority")), "other jobs come first. cpu-0 is full."),
        (
            slurm(pending("Dependency", dependency="afterok:6(unfulfilled),after:5"), job("6", "RUNNING", "cpu-0")),
            "it waits for job 6 (afterok), which runs and ends in 5m at most, and for job 5 (after).",
        ),
        (
            slurm(pending("DependencyNeverSatisfied")),
            "what it depends on can never happen any more. 'seltzer scancel --user ann demo 7' takes it out of the "
            "queue.",
        ),
        (slurm(pending("BeginTime", eligible=CLOCK + 3600)), "it may begin in 1h, and not before."),
        (slurm(pending("JobHeldUser")), "it is held. 'seltzer scontrol --user ann demo release 7' lets it go."),
        (
            slurm(pending("JobHeldUser", note="moved")),
            "it is held. An administrator noted: moved. 'seltzer scontrol --user ann demo release 7' lets it go.",
        ),
        (
            slurm(pending("JobHeldAdmin")),
            "an administrator holds it. 'seltzer scontrol --user root demo release 7' lets it go.",
        ),
        (
            slurm(
                pending("PartitionTimeLimit", limit=7200),
                partitions=[msgspec.convert({"name": "cpu", "maximums": {"time": 60}}, Partition)],
            ),
            "it asks for 2h, and its partition allows 1h. 'seltzer scontrol --user ann demo update JobId=7 "
            "TimeLimit=MINUTES' makes it shorter.",
        ),
        (
            slurm(pending("PartitionDown")),
            "its partition is down. 'seltzer scontrol --user root demo update PartitionName=cpu State=UP' opens it "
            "again.",
        ),
        (
            slurm(FULL, HALF, pending("PartitionConfig", node_count=5), partitions=[UP]),
            "it asks for 5 nodes, and its partition has 2. 'seltzer scale cpu 5' makes it possible.",
        ),
        (
            slurm(
                FULL,
                pending("PartitionNodeLimit", node_count=5),
                partitions=[msgspec.convert({"name": "cpu", "maximums": {"nodes": 3}}, Partition)],
            ),
            "it asks for 5 nodes, and its partition gives a job at most 3.",
        ),
        (
            slurm(FULL, pending("PartitionConfig", cpus=64)),
            "it asks for 64 CPUs, and all nodes of its partition have 2 together.",
        ),
        (
            slurm(pending("AssocGrpCpuLimit")),
            "a limit of its account or user stands in its way, which Slurm calls AssocGrpCpuLimit.",
        ),
        (
            slurm(pending("QOSMaxJobsPerUserLimit")),
            "a limit of its QOS stands in its way, which Slurm calls QOSMaxJobsPerUserLimit.",
        ),
        (slurm(pending("MaxJobsPerAccount")), "a limit stands in its way, which Slurm calls MaxJobsPerAccount."),
        (
            slurm(drained(), pending("ReqNodeNotAvail, May be reserved for other job", wants=("cpu-0", "cpu-9"))),
            "a node that it needs isn't available. It asks for cpu-9, which Slurm doesn't know. cpu-0 is drained "
            "(ann: bad disk).",
        ),
        (
            slurm(drained(), pending("Nodes required for job are DOWN, DRAINED or reserved for jobs")),
            "no node that it could run on takes jobs, or they are kept for others. cpu-0 is drained (ann: bad disk).",
        ),
        (slurm(node(cpus=1), pending("")), "Slurm hasn't looked at it yet. cpu-0 has 1 of 1 CPUs free."),
        (slurm(node(cpus=1), pending("SomethingNew")), "Slurm says 'SomethingNew'. cpu-0 has 1 of 1 CPUs free."),
    ],
)
def test_a_job_that_waits_is_told_why_in_plain_words(told: Any, words: str) -> None:
    found = known(told, *(pod(name) for name in told.nodes))
    assert about_job(replace(found, nodesets=[nodeset(len(told.nodes))])) == WAITED + words


def test_who_submitted_as_the_usual_user_needs_no_flag() -> None:
    assert "'seltzer scontrol demo release 7' lets it go." in about_job(
        known(slurm(pending("JobHeldUser", user="user")))
    )


def test_a_job_that_waits_for_nodes_that_kubernetes_can_not_place_is_told_so() -> None:
    stuck = pod("cpu-0", state="Unschedulable", words="0/2 nodes fit")
    said = about_job(known(slurm(pending("PartitionConfig", node_count=1)), stuck))
    assert said == (
        f"{WAITED}its partition has no nodes yet. NodeSet cpu waits for Kubernetes: pod cpu-0: 0/2 nodes fit; add "
        "Kubernetes nodes, or ask for less."
    )


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([pod("cpu-0"), pod("cpu-1", state="waiting")], "cpu-1 of NodeSet cpu is starting."),
        ([pod("cpu-0")], "NodeSet cpu is to have 2 nodes, and 1 of them is still to be made."),
        (
            [pod("cpu-0"), pod("cpu-1", deleting=True)],
            "NodeSet cpu is to have 2 nodes, and 1 of them is still to be made.",
        ),
    ],
)
def test_nodes_that_are_on_their_way_are_reported(pods: list[Pod], words: str) -> None:
    assert about_job(known(slurm(FULL, pending("Resources")), *pods)).endswith(f"cpu-0 is full. {words}")


def test_many_nodes_are_reported_together() -> None:
    told = [node(f"cpu-{each}", "ALLOCATED", cpus=1, alloc_cpus=1) for each in range(300)]
    ill = [drained(f"cpu-{each}", f"reason {each} [ann]") for each in range(300, 310)]
    said = about_job(known(slurm(*told, *ill, pending("Resources"))))
    assert "Of the 310 nodes of partition cpu, cpu-[0-299] is full; cpu-300 is drained (ann: reason 300)" in said
    assert "; others are in other states." in said and len(said) < 800


def test_nodes_that_make_no_short_list_are_counted() -> None:
    told = [node(f"cpu-{each}", "IDLE" if each % 2 else "ALLOCATED", cpus=1) for each in range(300)]
    said = about_job(known(slurm(*told, pending("Priority"))))
    assert "cpu-0, cpu-2, cpu-4 and 147 more are full; cpu-1, cpu-3, cpu-5 and 147 more have 1 of 1 CPUs free." in said


HELD = {"outcome": "held", "why": "it may have run."}
EARLIER = [{"time": "2029-01-01T00:00:00Z", "groups": [{**HELD, "jobs": "1,5-9", "count": 6}]}]


@pytest.mark.parametrize("told", [EARLIER[0], {"groups": [], "earlier": EARLIER}])
def test_a_job_that_was_found_again_after_a_crash_says_why_it_is_held(told: dict[str, Any]) -> None:
    lost = json.dumps({"time": "2030-01-01T00:00:00Z", **told})
    lease = Lease(metadata=ObjectMeta(annotations={RECOVERED: lost}), spec=LeaseSpec(holder_identity="c"))
    found = known(slurm(pending("JobHeldUser", note="found again")), controller=ControllerFacts(GuardReport(lease), {}))
    assert "It was found again after a crash of slurmctld: it may have run. 'seltzer scontrol" in about_job(found)


@pytest.mark.parametrize(
    ("records", "one", "machines", "words"),
    [
        ([FULL], job("7", "RUNNING", "cpu-0"), None, "runs on cpu-0 in partition cpu, for 1m, and ends in 5m at most."),
        (
            [FULL],
            job("7", "RUNNING", "cpu-0", end=None),
            None,
            "runs on cpu-0 in partition cpu, for 1m, and has no time limit.",
        ),
        (
            [FULL],
            job("7", "RUNNING", "cpu-0", end=CLOCK),
            None,
            "runs on cpu-0 in partition cpu, for 1m, and ends any moment.",
        ),
        (
            [FULL],
            job("7", "CONFIGURING", "cpu-0"),
            None,
            "is about to start on cpu-0 in partition cpu, and ends in 5m at most.",
        ),
        (
            [drained(state="MIXED DRAIN")],
            job("7", "RUNNING", "cpu-0"),
            None,
            "runs on cpu-0 in partition cpu, for 1m, and ends in 5m at most. cpu-0 is draining (ann: bad disk); that "
            "doesn't end the job.",
        ),
        (
            [node("cpu-0", "MIXED NOT_RESPONDING")],
            job("7", "RUNNING", "cpu-0", requeue=True),
            [machine("n1", "Unknown")],
            "runs on cpu-0 in partition cpu, for 1m, and ends in 5m at most. cpu-0 is mixed, not responding. cpu-0 "
            "is on Kubernetes node n1, which is not heard of. If cpu-0 doesn't answer again, it is set down, and the "
            "job is put back into the queue.",
        ),
        ([FULL], job("7", "COMPLETED", "cpu-0", end=CLOCK - 60), None, "ended 1m ago, on cpu-0: all went well."),
        (
            [FULL],
            job("7", "FAILED", "cpu-0", end=CLOCK - 60, reason="NonZeroExitCode"),
            None,
            "ended 1m ago, on cpu-0: it failed (NonZeroExitCode).",
        ),
    ],
)
def test_a_job_that_runs_or_is_over_is_told_where_and_until_when(
    records: list[Node], one: Job, machines: Any, words: str
) -> None:
    assert about_job(known(slurm(*records, one), pod("cpu-0"), machines=machines)) == f"Job 7 (train, of ann) {words}"


# --- for programs ----------------------------------------------------------------------------------------------------


def test_programs_get_the_paragraph_and_what_it_is_made_of() -> None:
    found = known(slurm(FULL, drained("cpu-1"), pending("Resources")), pod("cpu-0"), pod("cpu-1"))
    data = json.loads(json.dumps(explain_job.explain(found, "7").data()))
    assert (data["kind"], data["jobs"][0]["id"], data["jobs"][0]["reason"]) == ("job", "7", "Resources")
    assert data["explanation"] == about_job(found)
    assert [(each["name"], each["state"], each["freeCpus"]) for each in data["nodes"]] == [
        ("cpu-0", "allocated", 0),
        ("cpu-1", "drained", 0),
    ]
    data = json.loads(json.dumps(explain_node.explain(found, "cpu-1").data()))
    assert (data["kind"], data["node"]["name"], data["node"]["slurm"]["reasonSetBy"]) == ("node", "cpu-1", "ann")
    assert data["explanation"] == about_node(found, "cpu-1")


CHECKED = nodeset({"replicas": 2, "checks": [{"name": "disk", "use": "disk"}, {"name": "net", "command": "true"}]})
REPORT = '{"seltzer-checks":{"disk":"/tmp is full","gone":"x"}}'


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (
            drained(reason="seltzer: check disk: /tmp is full"),
            "Seltzer drained it 5m ago: check disk: /tmp is full. Nothing is wrong with its Kubernetes node n1. "
            "Seltzer resumes it by itself when check disk passes. 'seltzer logs demo cpu-0' shows what its slurmd "
            "says.",
        ),
        (
            drained(),
            "ann drained it 5m ago, and says: bad disk. Check disk: /tmp is full. Nothing is wrong with its Kubernetes "
            "node n1. Seltzer never undoes what a person did: 'seltzer resume cpu-0' brings it back.",
        ),
        (node(cpus=4), "cpu-0 of demo is idle: 4 of 4 CPUs are free. Check disk: /tmp is full."),
    ],
)
def test_a_failed_check_is_explained_whoever_drained_the_node(record: Node, words: str) -> None:
    record = msgspec.structs.replace(record, extra=REPORT)
    found = explain_node.explain(known(slurm(record), pod("cpu-0"), nodesets=[CHECKED]), "cpu-0")
    assert " ".join(found.sentences).endswith(words)
