"""Placement perNode: one node on each selected machine, named after it, until no job is left on it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import objects
from tests.builders import plan as builders
from tests.builders.objects import machine, nodeset, pod
from tests.builders.plan import seen
from tests.builders.slurm import node

from seltzer.api.core import Node, Pod
from seltzer.api.labels import MACHINE
from seltzer.api.nodeset import NodeSet
from seltzer.plan import conditions
from seltzer.plan.actions import Action, CreatePods, DeletePods, DeleteRecords, DrainNodes, ResumeNodes
from seltzer.plan.nodeset import membership, nodeset_plan, nodeset_status, places
from seltzer.plan.nodeset.drain_causes import Machine
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.places import Places, node_name
from seltzer.slurm import hostlist

PER_NODE = {"placement": "perNode"}
SELECTS = {"nodeSelector": {"pool": "gpu"}}
GPU = {"pool": "gpu"}
MARK = "seltzer ns/gpu"


def gpu(**more: Any) -> NodeSet:
    return nodeset(PER_NODE, name="gpu", **more)


def on(where: str, **more: Any) -> Pod:
    return pod(node_name("gpu", where), machine=where, annotations={MACHINE: where}, **more)


def find(machines: list[Node], *pods: Pod) -> Places:
    return places.find(gpu(), SELECTS, machines, pods)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("n1", "gpu--n1"),
        ("node001", "gpu--node001"),
        ("node001.example.com", "gpu--node001"),
        ("10-0-0-1", "gpu--10-0-0-1"),
        ("ip-10-0-1-17.ec2.internal", "gpu--ip-10-0-1-17"),
    ],
)
def test_a_node_has_the_host_name_of_its_machine(host: str, name: str) -> None:
    assert node_name("gpu", host) == name


def test_names_of_numbered_machines_fold() -> None:
    names = [node_name("gpu", f"node{number:03}.example.com") for number in range(1, 129)]
    assert hostlist.fold(names) == "gpu--node[001-128]"


hosts = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]{1,9}){0,3}", fullmatch=True)


@given(one=hosts, other=hosts, name=st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True))
def test_any_name_is_a_host_name_that_slurm_takes_for_one_node(one: str, other: str, name: str) -> None:
    made = node_name(name, one)
    assert len(made) <= places.LONGEST and places.names_of(nodeset(PER_NODE, name=name)).fullmatch(made)
    assert hostlist.expand(hostlist.fold([made])) == [made]
    assert one.partition(".")[0] == other.partition(".")[0] or made != node_name(name, other)


def test_no_node_of_one_nodeset_has_the_name_of_one_of_another() -> None:
    known = membership.memberships(None, [])
    assert not known
    cluster = objects.cluster()
    sets = [gpu(created="2026-01-01T00:00:00Z"), nodeset(name="gpu--large", created="2026-01-02T00:00:00Z")]
    found = {key.name: each for key, each in membership.memberships(cluster, sets).items()}
    assert found["gpu"].accepted and found["gpu--large"].reason == "NameTaken"
    turned = [gpu(created="2026-01-03T00:00:00Z"), nodeset(name="gpu--large", created="2026-01-02T00:00:00Z")]
    found = {key.name: each for key, each in membership.memberships(cluster, turned).items()}
    assert found["gpu"].reason == "NameTaken" and found["gpu--large"].accepted
    fine = [gpu(), nodeset(name="gpu-large"), nodeset(name="cpu--large"), nodeset(name="cpu")]
    assert all(each.accepted for each in membership.memberships(cluster, fine).values())


# --- which machines ---------------------------------------------------------------------------------------------------


def test_places_are_the_machines_that_match() -> None:
    found = find([machine("n1", labels=GPU), machine("n2"), machine("n3.lan", labels=GPU)])
    assert found.wanted == {"gpu--n1": "n1", "gpu--n3": "n3.lan"}
    assert found.existing == {"gpu--n1": "n1", "gpu--n2": "n2", "gpu--n3": "n3.lan"}


def test_a_machine_that_repels_new_pods_keeps_the_one_that_it_has() -> None:
    tainted = [machine("n1", labels=GPU, taints=["x:NoSchedule"]), machine("n2", labels=GPU, taints=["x:NoSchedule"])]
    assert find(tainted, on("n1")).wanted == {"gpu--n1": "n1"}
    assert not find(tainted, on("n1", deleting=True), on("n2", state="Failed")).wanted


def test_of_two_machines_with_one_host_name_the_one_that_has_the_pod_keeps_it() -> None:
    twins = [machine("n1.east", labels=GPU), machine("n1.west", labels=GPU)]
    first = find(twins)
    assert (first.wanted, first.clashing) == ({"gpu--n1": "n1.east"}, ("n1.west",))
    held = find(twins, on("n1.west"))
    assert (held.wanted, held.clashing) == ({"gpu--n1": "n1.west"}, ("n1.east",))


# --- the plan ---------------------------------------------------------------------------------------------------------


def look(machines: list[Node], *pods: Pod, known: dict[str, Machine] | None = None, **more: Any) -> NodeSetObservation:
    item = more.pop("item", None) or gpu()
    there = {each.metadata.name: Machine(each, 1000.0) for each in machines} if known is None else known
    more.setdefault(
        "slurm", builders.slurm(*(node(each.metadata.name, comment=MARK, partitions=("gpu",)) for each in pods))
    )
    more.setdefault("places", find(machines, *pods))
    return seen(item, *pods, machines=there, **more)


def actions(observation: NodeSetObservation) -> tuple[Action, ...]:
    return nodeset_plan.decide(observation).actions


def test_each_selected_machine_gets_a_node() -> None:
    machines = [machine("n1", labels=GPU), machine("n2", labels=GPU), machine("n3")]
    assert actions(look(machines, on("n1"))) == (CreatePods(("gpu--n2",)),)


def test_no_action_is_planned_while_it_is_not_known_which_machines_are_selected() -> None:
    assert not actions(look([machine("n1")], on("n1"), places=None))


def test_a_node_is_drained_and_waits_for_its_jobs_when_its_machine_is_not_selected_any_more() -> None:
    machines = [machine("n1"), machine("n2", labels=GPU)]
    idle = node("gpu--n2", comment=MARK)
    pods = (on("n1"), on("n2"))

    def then(*states: Any) -> tuple[Action, ...]:
        return actions(look(machines, *pods, slurm=builders.slurm(*states, idle)))

    reason = "seltzer: its Kubernetes node is not selected"
    assert then(node("gpu--n1", "MIXED", comment=MARK, alloc_cpus=1)) == (DrainNodes(("gpu--n1",), reason),)
    assert not then(node("gpu--n1", "MIXED DRAIN", reason=reason, comment=MARK, alloc_cpus=1))
    (deletion,) = then(node("gpu--n1", "IDLE DRAIN", reason=reason, comment=MARK))
    assert isinstance(deletion, DeletePods) and deletion.ask
    assert [each.name for each in deletion.pods] == ["gpu--n1"]


def test_a_node_is_resumed_when_its_machine_is_selected_again() -> None:
    back = node("gpu--n1", "IDLE DRAIN", reason="seltzer: its Kubernetes node is not selected", comment=MARK)
    observation = look([machine("n1", labels=GPU)], on("n1"), slurm=builders.slurm(back))
    assert actions(observation) == (ResumeNodes(("gpu--n1",)),)


def test_a_pod_stays_while_its_machine_is_not_known() -> None:
    observation = look([], on("n1"), known={})
    assert not actions(observation)
    assert nodeset_plan.decide(observation).target == 1
    gone = look([], on("n1"), known={"n1": Machine(None)})
    assert nodeset_plan.decide(gone).target == 0


def test_the_record_of_a_removed_machine_goes_and_that_of_an_unselected_one_only_with_a_persons_drain() -> None:
    held = node("gpu--n1", "IDLE DRAIN", reason="fan is loud", comment=MARK)
    removed = look([], slurm=builders.slurm(held), places=find([]))
    assert actions(removed) == (DeleteRecords(("gpu--n1",), unless_named=True),)
    unselected = look([machine("n1")], slurm=builders.slurm(held), places=find([machine("n1")]))
    assert not actions(unselected)
    deleted = look([machine("n1")], slurm=builders.slurm(held), item=gpu(deleted=objects.NOW - 5))
    assert DeleteRecords(("gpu--n1",), unless_named=True) in actions(deleted)


def test_a_cordon_drains_the_node_and_removes_nothing() -> None:
    (action,) = actions(look([machine("n1", labels=GPU, cordoned=True)], on("n1")))
    assert action == DrainNodes(("gpu--n1",), "seltzer: Kubernetes node n1 is cordoned")


def test_an_update_takes_a_share_of_the_selected_machines() -> None:
    machines = [machine(f"n{number}", labels=GPU) for number in range(8)]
    pods = [on(f"n{number}", template="old") for number in range(8)]
    (drain,) = actions(look(machines, *pods))
    assert isinstance(drain, DrainNodes) and len(drain.names) == 2, "25 %"


# --- the status -------------------------------------------------------------------------------------------------------


def placed(observation: NodeSetObservation) -> tuple[str, str, str]:
    decision = nodeset_plan.decide(observation)
    status = nodeset_status.status(observation, decision, [], "2026-01-01T00:00:00Z")
    found = conditions.find(status.conditions, "Placed")
    assert found
    return found.status, found.reason, found.message


def test_the_status_counts_the_selected_machines() -> None:
    observation = look([machine("n1", labels=GPU), machine("n2", labels=GPU)], on("n1"), on("n2"))
    decision = nodeset_plan.decide(observation)
    status = nodeset_status.status(observation, decision, [], "2026-01-01T00:00:00Z")
    assert (status.desired_replicas, status.ready_replicas) == (2, 2)
    assert placed(observation) == ("True", "OnSelected", "2 Kubernetes nodes are selected")


def test_a_status_says_that_none_is_selected_and_which_cannot_be() -> None:
    assert placed(look([machine("n1")]))[:2] == ("True", "NoneSelected")
    twins = [machine("n1.east", labels=GPU), machine("n1.west", labels=GPU)]
    status, reason, message = placed(look(twins))
    assert (status, reason) == ("False", "HostNameTaken")
    assert message.startswith("n1.west: another Kubernetes node has the same host name")
