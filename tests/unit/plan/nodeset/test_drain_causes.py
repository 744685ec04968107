"""Why a node takes no new jobs as far as Kubernetes knows, and when that is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.builders.objects import NOW, pod
from tests.builders.plan import machine
from tests.builders.slurm import node

from seltzer.api.core import ContainerState, ContainerStatus, Pod, Terminated, Waiting
from seltzer.plan.nodeset import drain_causes
from seltzer.plan.nodeset.drain_causes import Machine
from seltzer.slurm.models import Number

CORDONED = "seltzer: Kubernetes node n1 is cordoned"
RESTLESS = drain_causes.RESTLESS_CHANGES
UNWELL = "seltzer: Kubernetes node n1 is not ready"


def matter(item: Machine, *tolerations: Mapping[str, Any]) -> str:
    """What is the matter with machine n1, without the words that every reason begins with."""
    return drain_causes.of_machine("n1", item, tolerations).removeprefix("seltzer: Kubernetes node n1 ")


# --- machines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (machine(), ""),
        (machine(MemoryPressure="False", NetworkUnavailable="False"), ""),
        (machine("False"), "is not ready"),
        (machine("Unknown"), "is not heard of"),
        (machine("", MemoryPressure="False"), "is not heard of"),
        (machine(""), "is not heard of"),
        (Machine(None), "is gone"),
        (machine(deleting=True), "is being removed"),
        (machine(cordoned=True), "is cordoned"),
        (machine(NetworkUnavailable="True"), "has no network"),
        (machine(MemoryPressure="True"), "is under memory pressure"),
        (machine(DiskPressure="True"), "is under disk pressure"),
        (machine(PIDPressure="True"), "is under process pressure"),
        (machine(MemoryPressure="Unknown", NetworkUnavailable="Unknown"), ""),
        (machine("True", "maintenance:NoSchedule"), "has taint maintenance:NoSchedule"),
        (machine("True", "upgrade=tonight:NoExecute"), "has taint upgrade=tonight:NoExecute"),
        (machine("True", "crowded=yes:PreferNoSchedule"), ""),
        (machine("True", "ToBeDeletedByClusterAutoscaler=17:NoSchedule"), "is about to be removed (taint ToBe"),
        (machine("True", "karpenter.sh/disrupted:NoSchedule"), "is about to be removed (taint karpenter.sh/disrupted)"),
        (
            machine("True", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
            "is about to be removed (taint node.kubernetes.io/out-of-service)",
        ),
        (machine("True", "DeletionCandidateOfClusterAutoscaler=17:PreferNoSchedule"), ""),
        # What conditions and the cordon tell already, Kubernetes itself tells by taints as well, and a little later.
        (machine("True", "node.kubernetes.io/unschedulable:NoSchedule"), ""),
        (machine("True", "node.kubernetes.io/not-ready:NoExecute"), ""),
        (machine("True", "node.kubernetes.io/memory-pressure:NoSchedule"), ""),
    ],
)
def test_what_is_the_matter_with_a_machine(item: Machine, words: str) -> None:
    assert matter(item).startswith(words)
    assert bool(matter(item)) == bool(words)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (machine("Unknown", "a:NoSchedule", cordoned=True), "is not heard of"),
        (machine("False", cordoned=True), "is not ready"),
        (machine("True", "ToBeDeletedByClusterAutoscaler=1:NoSchedule", cordoned=True), "is about to be removed"),
        (machine("True", "a:NoSchedule", cordoned=True, DiskPressure="True"), "is cordoned"),
        (machine("True", "a:NoSchedule", DiskPressure="True"), "is under disk pressure"),
        (machine("True", "a:PreferNoSchedule", "b:NoSchedule"), "has taint b:NoSchedule"),
    ],
)
def test_of_several_causes_the_worst_is_reported(item: Machine, words: str) -> None:
    assert matter(item).startswith(words)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "a100"}, True),
        ({"key": "gpu", "value": "a100", "effect": ""}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "", "operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "h100"}, False),
        ({"key": "gpu"}, False),
        ({"key": "gpus", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "a100"}, False),
        ({"operator": "Equal", "value": "a100"}, False),
        ({}, False),
    ],
)
def test_who_tolerates_a_taint_stays_as_in_kubernetes(toleration: dict[str, Any], tolerated: bool) -> None:
    assert (matter(machine("True", "gpu=a100:NoSchedule"), toleration) == "") == tolerated


def test_a_toleration_without_a_value_is_for_a_taint_without_one() -> None:
    assert matter(machine("True", "gpu:NoSchedule"), {"key": "gpu"}) == ""


def test_one_toleration_of_several_is_enough_and_each_taint_needs_one() -> None:
    item = machine("True", "a:NoSchedule", "b:NoSchedule")
    one, two = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}
    assert matter(item, one, two) == ""
    assert matter(item, one) == "has taint b:NoSchedule"


@pytest.mark.parametrize("odd", ["x", 5, None, ["a"]])
def test_what_a_user_wrote_in_place_of_a_toleration_tolerates_nothing(odd: Any) -> None:
    assert matter(machine("True", "a:NoSchedule"), odd)


@pytest.mark.parametrize(
    "item",
    [
        machine("True", "ToBeDeletedByClusterAutoscaler=1:NoSchedule"),
        machine("True", "karpenter.sh/disruption=disrupting:NoSchedule"),
        machine("True", "cloud.google.com/impending-node-termination:NoSchedule"),
        machine("True", "aws-node-termination-handler/spot-itn=1:NoSchedule"),
        machine("True", "node.kubernetes.io/out-of-service:NoExecute"),
        machine(cordoned=True),
        machine("False"),
        machine(DiskPressure="True"),
    ],
)
def test_who_tolerates_everything_still_leaves_a_machine_that_goes_or_is_unwell(item: Machine) -> None:
    assert matter(item, {"operator": "Exists"})


@pytest.mark.parametrize(
    ("item", "silent"),
    [
        (machine(), False),
        (machine("False"), False),
        (machine(cordoned=True), False),
        (machine("Unknown"), True),
        (machine(""), True),
        (Machine(None), True),
    ],
)
def test_a_machine_is_silent_if_its_kubelet_isnt_heard_of(item: Machine, silent: bool) -> None:
    assert item.is_silent == silent


# --- pods ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "seen_for", "words"),
    [
        (pod(), 60.0, ""),
        (pod(deleting=True), 0.0, "seltzer: its pod is being deleted"),
        (pod(state="unready"), 5.0, "seltzer: its pod is not ready"),
        (pod(state="unready"), 4.9, ""),
        # Whatever time it is on its machine.
        (pod(state="unready", since=NOW + 3600), 5.0, "seltzer: its pod is not ready"),
        (pod(state="unready", since=NOW - 3600), 4.9, ""),
        (pod(state="created"), 60.0, ""),
        (pod(state="waiting"), 60.0, ""),
    ],
)
def test_what_is_the_matter_with_a_pod(item: Pod, seen_for: float, words: str) -> None:
    assert drain_causes.of_pod(item, seen_for) == words


def test_an_unready_pod_starts_over_with_its_condition_and_with_its_slurmd() -> None:
    """A slurmd has as long to become ready as any, however long its image took."""
    item, known = pod(state="unready"), node(started=Number(set=True, number=int(NOW)))
    same = drain_causes.unready(item, known)
    assert drain_causes.unready(item, msgspec.structs.replace(known, reason="x")) == same
    assert drain_causes.unready(item, node(started=Number(set=True, number=int(NOW) + 1))) != same
    assert drain_causes.unready(item, node()) != same
    assert drain_causes.unready(pod(state="unready", since=NOW), known) != same
    assert drain_causes.unready(pod(state="unready", uid="another"), known) != same


def container(
    name: str = "slurmd",
    *,
    restarts: int = 0,
    over: Terminated | None = None,
    waits: Waiting | None = None,
    last: Terminated | None = None,
) -> ContainerStatus:
    state = ContainerState(terminated=over, waiting=waits)
    return ContainerStatus(name=name, restart_count=restarts, state=state, last_state=ContainerState(terminated=last))


def with_containers(*containers: ContainerStatus) -> Pod:
    item = pod()
    return msgspec.structs.replace(item, status=msgspec.structs.replace(item.status, container_statuses=containers))


KILLED = Terminated(exit_code=137, signal=9, reason="OOMKilled")
FAILED = Terminated(exit_code=1, reason="Error")
LOOP = Waiting(reason="CrashLoopBackOff")
CREATING = Waiting(reason="ContainerCreating")


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        ((container(),), ""),
        ((container(restarts=3, last=KILLED),), ""),
        ((container(over=KILLED),), "slurmd's container ended with exit code 137 (OOMKilled)"),
        ((container(over=FAILED, restarts=2),), "slurmd's container ended with exit code 1 (Error), 3 times"),
        ((container(over=Terminated(reason="Completed")),), "slurmd's container ended (Completed)"),
        ((container(over=Terminated()),), "slurmd's container ended (ended)"),
        (
            (container(waits=LOOP, restarts=4, last=FAILED),),
            "slurmd's container ended with exit code 1 (Error), 5",
        ),
        ((container(waits=LOOP, restarts=4),), "slurmd's container ended (CrashLoopBackOff), 5 times"),
        ((container(waits=CREATING, last=KILLED),), "slurmd's container ended with exit code 137 (OOMKilled)"),
        # It has never run.
        ((container(waits=CREATING),), ""),
        ((container(waits=Waiting(reason="ErrImagePull")),), ""),
        ((), ""),
        # Somebody else's container.
        ((container("sssd", over=KILLED), container()), ""),
        ((container("sssd", over=KILLED),), ""),
        ((container("sssd"), container(over=KILLED)), "slurmd's container ended with exit code 137 (OOMKilled)"),
    ],
)
def test_how_slurmds_container_ended(containers: tuple[ContainerStatus, ...], words: str) -> None:
    found = drain_causes.ended(with_containers(*containers))
    assert found.startswith(f"seltzer: {words}" if words else "")
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("started", "finished", "ends"),
    [
        (int(NOW) - 60, NOW - 10, True),
        (int(NOW) - 9, NOW - 10, False),
        # In the same second: which of both it was isn't known.
        (int(NOW) - 10, NOW - 9.5, False),
        (None, NOW - 10, False),
    ],
)
def test_a_slurmd_that_registered_after_that_runs_whatever_a_late_kubelet_says(
    started: int | None, finished: float, ends: bool
) -> None:
    registered = node(started=Number(set=True, number=started) if started else None)
    assert bool(drain_causes.ended(pod(state="ended", finished=finished), registered)) == ends
    looping = pod(state="CrashLoopBackOff", restarts=2, finished=finished)
    assert bool(drain_causes.ended(looping, registered)) == ends


# --- when it is over -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "item", "over"),
    [
        # Somebody has decided: at once.
        (CORDONED, machine(calm=0.0), True),
        ("seltzer: Kubernetes node n1 has taint a:NoSchedule", machine(calm=0.0), True),
        ("seltzer: Kubernetes node n1 is about to be removed (taint a)", machine(calm=0.0), True),
        ("seltzer: Kubernetes node n1 is gone", machine(calm=0.0), True),
        # It was unwell: not before it has been well for a while.
        (UNWELL, machine(calm=4.9), False),
        (UNWELL, machine(calm=5.0), True),
        ("seltzer: Kubernetes node n1 is not heard of", machine(calm=4.9), False),
        ("seltzer: Kubernetes node n1 has no network", machine(calm=4.9), False),
        ("seltzer: Kubernetes node n1 is under disk pressure", machine(calm=4.9), False),
        ("seltzer: Kubernetes node n1 is under disk pressure : Not responding", machine(calm=5.0), True),
        # It can't make up its mind, or people can't.
        (UNWELL, machine(calm=29.9, changes=RESTLESS), False),
        (UNWELL, machine(calm=30.0, changes=RESTLESS), True),
        (CORDONED, machine(calm=29.9, changes=RESTLESS), False),
        (CORDONED, machine(calm=30.0, changes=RESTLESS + 1), True),
        (UNWELL, machine(calm=5.0, changes=RESTLESS - 1), True),
        # Unknown is never yes.
        (CORDONED, None, False),
        (UNWELL, None, False),
        # What isn't about machines doesn't ask them.
        ("seltzer: scale-in", None, True),
        ("seltzer: its pod is not ready", machine(calm=0.0, changes=9), True),
    ],
)
def test_a_drain_of_ours_is_over(reason: str, item: Machine | None, over: bool) -> None:
    assert drain_causes.is_over(node(state="IDLE DRAIN", reason=reason), item) == over


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (CORDONED, True),
        ("seltzer: its pod is being deleted", True),
        ("seltzer: its pod is not ready", True),
        ("seltzer: its pod is gone", True),
        ("seltzer: slurmd's container ended (Error)", True),
        (f"{CORDONED} : Not responding", True),
        ("seltzer: scale-in", False),
        ("seltzer: update", False),
        ("seltzer: deleted", False),
        ("seltzer: cluster deleted", False),
        ("Kubernetes node n1 is cordoned", False),
        ("disk is full", False),
        ("", False),
    ],
)
def test_a_cause_is_told_from_a_removal_and_from_other_peoples_reasons(reason: str, cause: bool) -> None:
    assert drain_causes.is_cause(reason) == cause


def test_slurmctlds_own_words_dont_make_another_cause_of_it() -> None:
    assert drain_causes.tells(CORDONED, CORDONED)
    assert drain_causes.tells(f"{CORDONED} : Not responding", CORDONED)
    assert not drain_causes.tells(UNWELL, CORDONED)
    assert not drain_causes.tells(f"{UNWELL} : Not responding", CORDONED)
    assert not drain_causes.tells("", CORDONED)


@pytest.mark.parametrize("item", [machine("False"), machine("Unknown"), machine(cordoned=True), Machine(None)])
def test_every_reason_for_a_machine_is_known_as_ours_and_as_a_cause(item: Machine) -> None:
    assert drain_causes.is_cause(drain_causes.of_machine("n1", item, ()))
