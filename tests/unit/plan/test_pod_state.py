"""What a pod's status and a node's record tell."""

from __future__ import annotations

import pytest
from tests.builders.objects import NOW, pod, time_at
from tests.builders.slurm import node

from seltzer.api.common import NodeCounts
from seltzer.api.core import ContainerState, ContainerStatus, ObjectCondition, Pod, PodStatus, Terminated, Waiting
from seltzer.api.labels import SLURM_READY
from seltzer.plan import pod_state, slurm_state


@pytest.mark.parametrize(
    ("state", "never_started", "finished", "ready"),
    [
        ("created", True, False, False),
        ("Unschedulable", True, False, False),
        ("waiting", True, False, False),
        ("ImagePullBackOff", True, False, False),
        ("unready", False, False, False),
        ("ready", False, False, True),
        ("Failed", False, True, False),
        ("Succeeded", False, True, False),
    ],
)
def test_a_state_tells_whether_it_ever_started_and_whether_it_has_ended(
    state: str, never_started: bool, finished: bool, ready: bool
) -> None:
    item = pod(state=state)
    assert pod_state.never_started(item) == never_started
    assert pod_state.finished(item) == finished
    assert pod_state.ready(item) == ready


def test_a_pod_that_is_being_deleted_isnt_ready_and_has_no_trouble() -> None:
    assert not pod_state.ready(pod(state="ready", deleting=True))
    assert pod_state.trouble(pod(state="ImagePullBackOff", deleting=True)) is None


@pytest.mark.parametrize(
    "status",
    [
        ContainerStatus(
            name="slurmd", restart_count=1, state=ContainerState(waiting=Waiting(reason="CrashLoopBackOff"))
        ),
        ContainerStatus(
            name="slurmd",
            state=ContainerState(waiting=Waiting()),
            last_state=ContainerState(terminated=Terminated(exit_code=1)),
        ),
        ContainerStatus(name="slurmd", state=ContainerState(terminated=Terminated(exit_code=1))),
        ContainerStatus(name="slurmd"),
    ],
)
def test_a_pending_pod_of_which_one_container_has_run_has_started(status: ContainerStatus) -> None:
    item = Pod(metadata=pod().metadata, status=PodStatus(phase="Pending", container_statuses=(status,)))
    assert not pod_state.never_started(item)


def test_how_long_a_pod_is_as_it_is_comes_from_its_newest_condition() -> None:
    assert pod_state.settled_for(pod(state="ready", since=NOW - 30), NOW) == 30
    assert pod_state.settled_for(pod(state="ready", since=NOW + 30), NOW) == 0
    assert pod_state.settled_for(pod(state="created"), NOW) == 0


def test_what_we_tell_by_a_pod_is_no_change_of_it() -> None:
    item = pod(state="unready", since=NOW - 30)
    ours = ObjectCondition(type=SLURM_READY, status="False", reason="Drained", last_transition_time=time_at(NOW))
    status = PodStatus(phase="Running", conditions=(*item.status.conditions, ours))
    assert pod_state.settled_for(Pod(metadata=item.metadata, status=status), NOW) == 30


@pytest.mark.parametrize(
    ("state", "words", "reason", "told"),
    [
        ("ImagePullBackOff", "Back-off pulling image", "ImagePullBackOff", "check the image's name"),
        ("Unschedulable", "0/3 nodes\n are available", "Unschedulable", "pod cpu-0: 0/3 nodes are available; add"),
        (
            "Unschedulable",
            "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.",
            "Unschedulable",
            "anti-affinity rules.; nodes without limits on CPU and memory never share a Kubernetes node",
        ),
        (
            "Unschedulable",
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
            "VolumePending",
            "PersistentVolumeClaims. not found; 'kubectl get pvc' shows its claims",
        ),
        ("CreateContainerConfigError", "", "CreateContainerConfigError", "pod cpu-0: CreateContainerConfigError"),
        ("Failed", "The node was low on memory", "Failed", "pod cpu-0: The node was low on memory"),
    ],
)
def test_trouble_is_reported_with_its_reason_and_what_to_do(state: str, words: str, reason: str, told: str) -> None:
    found = pod_state.trouble(pod(state=state, words=words))
    assert found
    assert found.reason == reason
    assert told in found.message


@pytest.mark.parametrize("state", ["created", "waiting", "unready", "ready"])
def test_what_is_a_matter_of_time_is_no_trouble(state: str) -> None:
    assert pod_state.trouble(pod(state=state)) is None


def test_a_crash_is_reported_with_the_last_words_of_the_program() -> None:
    status = ContainerStatus(
        name="slurmd",
        state=ContainerState(waiting=Waiting(reason="CrashLoopBackOff", message="back-off 10s")),
        last_state=ContainerState(terminated=Terminated(exit_code=1, reason="Error", message="a\nfatal: no cgroup\n")),
    )
    found = pod_state.trouble(
        Pod(metadata=pod().metadata, status=PodStatus(phase="Running", container_statuses=(status,)))
    )
    assert found
    assert "slurmd ended with exit code 1 (Error): fatal: no cgroup; see 'seltzer logs'" in found.message


def test_of_many_troubles_the_first_by_name_is_reported() -> None:
    found = pod_state.first_trouble(
        [pod("cpu-1", state="ErrImagePull"), pod("cpu-0", state="InvalidImageName"), pod("cpu-2")]
    )
    assert found
    assert found.reason == "InvalidImageName"


# --- nodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reason", "ours", "others"),
    [
        ("IDLE DRAIN", "seltzer: update", True, False),
        ("IDLE DRAIN", "disk is full", False, True),
        ("IDLE DRAIN", "", False, True),
        ("IDLE", "seltzer: update", False, False),
        ("DOWN", "Not responding", False, False),
    ],
)
def test_whose_drain_it_is(state: str, reason: str, ours: bool, others: bool) -> None:
    item = node(state=state, reason=reason)
    assert slurm_state.drained_by_us(item) == ours
    assert slurm_state.drained_by_others(item) == others


@pytest.mark.parametrize(
    ("state", "reason", "whose"),
    [
        ("DOWN", "seltzer: its pod is gone", "ours"),
        ("DOWN", "Not responding", "an outage's"),
        ("DOWN", "Not responding since Tuesday", "others'"),
        ("DOWN", "fan is loud", "others'"),
        ("DOWN", "fan is loud : Not responding", "others'"),
        ("DOWN", "", ""),
        # It is drained: whose that is is another question.
        ("DOWN DRAIN", "seltzer: its pod is gone", ""),
        ("DOWN DRAIN", "Not responding", ""),
        ("DOWN DRAIN", "fan is loud", ""),
        ("IDLE", "fan is loud", ""),
    ],
)
def test_who_set_it_down(state: str, reason: str, whose: str) -> None:
    item = node(state=state, reason=reason)
    assert slurm_state.down_by_us(item) == (whose == "ours")
    assert slurm_state.down_by_outage(item) == (whose == "an outage's")
    assert slurm_state.down_by_others(item) == (whose == "others'")
    assert slurm_state.held_by_others(item) == (whose == "others'" or slurm_state.drained_by_others(item))


@pytest.mark.parametrize(("by", "outage"), [("slurm", True), ("", True), ("root", False), ("ann", False)])
def test_an_outage_is_reported_by_slurm_itself_and_not_by_a_person_in_its_words(by: str, outage: bool) -> None:
    item = node(state="DOWN", reason="Not responding", reason_set_by_user=by)
    assert (slurm_state.down_by_outage(item), slurm_state.down_by_others(item)) == (outage, not outage)


@pytest.mark.parametrize(
    ("state", "alloc_cpus", "empty", "available"),
    [
        ("IDLE", 0, False, True),
        ("MIXED", 1, False, True),
        ("ALLOCATED", 2, False, True),
        ("IDLE DRAIN", 0, True, False),
        ("IDLE DRAIN", 1, False, False),
        ("MIXED DRAIN", 0, False, False),
        ("IDLE DRAIN COMPLETING", 0, False, False),
        ("DOWN DRAIN", 0, True, False),
        ("DOWN", 0, False, False),
        ("IDLE NOT_RESPONDING", 0, False, False),
        ("IDLE POWERING_UP", 0, False, False),
        ("UNKNOWN", 0, False, False),
        ("SOMETHING_NEW", 0, False, False),
    ],
)
def test_a_node_is_empty_only_if_no_job_is_on_it_and_none_can_come(
    state: str, alloc_cpus: int, empty: bool, available: bool
) -> None:
    item = node(state=state, alloc_cpus=alloc_cpus)
    assert slurm_state.is_empty(item) == empty
    assert slurm_state.is_available(item) == available


def test_each_node_is_counted_once() -> None:
    states = ["IDLE", "MIXED", "ALLOCATED", "MIXED DRAIN", "IDLE DRAIN", "DOWN DRAIN", "IDLE NOT_RESPONDING", "FUTURE"]
    counts = slurm_state.count(node(f"cpu-{number}", state) for number, state in enumerate(states))
    assert counts == NodeCounts(total=8, idle=1, mixed=1, allocated=1, draining=1, drained=1, down=2, other=1)
