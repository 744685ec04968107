"""Why pods go and why nodes take jobs again, in words for a person."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.builders.objects import NOW, nodeset, pod
from tests.builders.plan import GONE, machine, seen, slurm
from tests.builders.slurm import node

from seltzer.api.core import Pod
from seltzer.plan.actions import DeletePods, ResumeNodes
from seltzer.plan.nodeset import aging, drain_causes
from seltzer.plan.nodeset.drain_causes import Machine
from seltzer.plan.nodeset.nodeset_plan import decide
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.resume_reason import why

DRAINED = slurm(node("cpu-0"), node("cpu-1", "IDLE DRAIN", reason="seltzer: scale-in"))
EMPTY = slurm(node(state="IDLE DRAIN", reason="seltzer: update"))


def evicted() -> Pod:
    item = pod(state="Failed")
    return msgspec.structs.replace(item, status=msgspec.structs.replace(item.status, reason="Evicted"))


def lost() -> NodeSetObservation:
    known = slurm(node(state="DOWN DRAIN", reason="seltzer: Kubernetes node worker is not heard of"))
    machines = {"worker": machine("Unknown")}
    item = pod(address="10.0.0.1")
    return replace(seen(nodeset(1), item, slurm=known, machines=machines), answers={"cpu-0": False})


def aged(observation: NodeSetObservation) -> NodeSetObservation:
    """All that has to be so for a while has been."""
    return replace(observation, ages=dict.fromkeys(aging.things(observation), 60.0))


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (seen(nodeset(1), pod("cpu-0"), pod("cpu-1"), slurm=DRAINED), "fewer are wanted"),
        (seen(nodeset(1), pod(template="old"), slurm=EMPTY), "the NodeSet has changed, and it is made anew"),
        (seen(nodeset(deleted=NOW), pod(), slurm=GONE), "the NodeSet is being deleted"),
        (seen(nodeset(), pod(), slurm=GONE, closing=True), "the SlurmCluster is being deleted"),
        (seen(nodeset(1), pod(state="Failed"), slurm=slurm()), "it had ended"),
        (seen(nodeset(1), evicted(), slurm=slurm()), "it had ended (Evicted)"),
        (lost(), "neither its Kubernetes node nor its slurmd is heard of"),
        (
            aged(replace(seen(nodeset(1), pod(since=NOW - 100), slurm=slurm()), controller_started=NOW - 50)),
            "Slurm has no record of it any more, and only a new pod registers",
        ),
    ],
)
def test_a_pod_goes_since(observation: NodeSetObservation, words: str) -> None:
    (found,) = [each for each in decide(observation).actions if isinstance(each, DeletePods)]
    assert found.why == words


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (machine("False"), "is ready again"),
        (machine("Unknown"), "is heard of again"),
        (Machine(None), "is back"),
        (machine(deleting=True), "is no longer being removed"),
        (machine("True", "karpenter.sh/x:NoSchedule"), "is no longer about to be removed (taint karpenter.sh/x)"),
        (machine(cordoned=True), "is no longer cordoned"),
        (machine(NetworkUnavailable="True"), "has its network again"),
        (machine(DiskPressure="True"), "is no longer under disk pressure"),
        (machine("True", "a=b:NoSchedule"), "no longer repels it (taint a=b:NoSchedule)"),
    ],
)
def test_a_node_takes_jobs_again_since_its_machine(item: Machine, words: str) -> None:
    """Whatever `causes` can say of a machine has its opposite."""
    reason = drain_causes.of_machine("worker", item, ())
    for said in (reason, f"{reason} : Not responding"):
        assert why(pod(), node(state="IDLE DRAIN", reason=said)) == f"Kubernetes node worker {words}"


@pytest.mark.parametrize(
    ("state", "reason", "item", "words"),
    [
        ("DOWN", "Not responding", pod(), "its slurmd answers again, the outage is over"),
        ("DOWN", "seltzer: its pod is gone", pod(), "its pod is ready"),
        ("IDLE DRAIN", "seltzer: its pod is being deleted", pod(), "its pod is ready"),
        (
            "IDLE DRAIN",
            "seltzer: its pod is not ready",
            pod(state="unready"),
            "nothing is the matter with its pod any more",
        ),
        ("DOWN", "seltzer: slurmd's container ended (OOMKilled), 2 times", pod(), "slurmd's container runs again"),
        ("IDLE DRAIN", "seltzer: scale-in", pod(), "now it stays (it was drained for: scale-in)"),
        (
            "IDLE DRAIN",
            "seltzer: Kubernetes node n1 is cordoned",
            pod(machine="n2"),
            "its pod is on Kubernetes node n2 now, no longer on n1",
        ),
    ],
)
def test_a_node_takes_jobs_again_since(state: str, reason: str, item: Pod, words: str) -> None:
    assert why(item, node(state=state, reason=reason)) == words


def test_one_call_resumes_them_all_and_knows_why_each() -> None:
    known = slurm(
        node("cpu-0", "IDLE DRAIN", reason="seltzer: Kubernetes node worker is cordoned"),
        node("cpu-1", "IDLE DRAIN", reason="seltzer: scale-in"),
    )
    found = decide(seen(nodeset(2), pod("cpu-0"), pod("cpu-1"), slurm=known, machines={"worker": machine()})).actions
    assert found == (ResumeNodes(("cpu-0", "cpu-1")),)
    assert isinstance(found[0], ResumeNodes)
    assert found[0].why == {
        "cpu-0": "Kubernetes node worker is no longer cordoned",
        "cpu-1": "now it stays (it was drained for: scale-in)",
    }
