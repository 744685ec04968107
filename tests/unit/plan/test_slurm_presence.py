"""When a silent Slurm certainly doesn't exist: only then may its nodes' pods go without being asked for."""

from __future__ import annotations

import pytest
from tests.builders.objects import NOW, cluster, lease
from tests.builders.slurm import node

from seltzer.api.core import (
    Deployment,
    DeploymentStatus,
    Lease,
    ObjectCondition,
    ObjectMeta,
    Pod,
    PodStatus,
)
from seltzer.plan.slurm_presence import Contact, ControlPlane, SlurmState, can_be_asked, slurm

META = ObjectMeta(name="demo-slurmctld", namespace="ns")
MADE = Deployment(metadata=META)
POD = Pod(metadata=META)
READY = Pod(metadata=META, status=PodStatus(conditions=(ObjectCondition(type="Ready", status="True"),)))
ENDED = Pod(metadata=META, status=PodStatus(phase="Failed"))


def silent_for(seconds: float) -> Contact:
    return Contact(None, None, seconds, stale=60.0)


def state(plane: ControlPlane, contact: Contact | None = None) -> SlurmState:
    return slurm(plane, contact or silent_for(0.0), NOW)


HELD = lease("demo-slurmctld-x")


@pytest.mark.parametrize(
    ("found", "pods", "gone"),
    [
        pytest.param(None, (), True, id="nothing has been made yet"),
        pytest.param(lease(""), (POD,), True, id="its first pod hasn't begun"),
        pytest.param(lease(""), (READY,), False, id="its first pod is ready"),
        pytest.param(HELD, (), False, id="its pod is away, its jobs may not be"),
        pytest.param(lease("", epoch="3"), (), False, id="it has run"),
        pytest.param(None, (POD,), False, id="somebody deleted the Lease beside a controller"),
        pytest.param(None, (ENDED,), True, id="a pod that has ended is no controller"),
    ],
)
def test_a_silent_slurm_is_gone_only_when_that_is_certain(
    found: Lease | None, pods: tuple[Pod, ...], gone: bool
) -> None:
    assert state(ControlPlane(cluster(), MADE, found, pods)).gone is gone


def test_without_its_cluster_slurm_is_gone_whatever_it_answered() -> None:
    answered = Contact({"cpu-0": node()}, int(NOW), 0.0, 60.0)
    assert state(ControlPlane(None), answered) == SlurmState(None, gone=True)


def test_a_deleted_clusters_slurm_is_gone_with_the_last_pod_of_a_deleted_controller() -> None:
    answered = Contact({"cpu-0": node()}, int(NOW), 0.0, 60.0)
    deleted = cluster(deleted=NOW)
    assert state(ControlPlane(deleted, None, HELD, ()), answered).gone
    assert not state(ControlPlane(deleted, None, HELD, (POD,)), answered).gone, "its pod may still run"
    assert not state(ControlPlane(deleted, MADE, HELD, ()), answered).gone, "its Deployment makes another pod"
    assert not state(ControlPlane(cluster(), None, HELD, ()), answered).gone, "the operator makes another Deployment"


@pytest.mark.parametrize(("seconds", "unreachable"), [(59.0, False), (61.0, True)])
def test_a_silent_slurm_is_unreachable_after_a_minute(seconds: float, unreachable: bool) -> None:
    expected = SlurmState(None, unreachable=unreachable)
    assert state(ControlPlane(cluster(), MADE, HELD, (POD,)), silent_for(seconds)) == expected


@pytest.mark.parametrize(
    ("why", "deleted", "silent", "gone"),
    [
        ("it answered a while ago", 900.0, 299.0, False),
        ("it was deleted a while ago", 299.0, 900.0, False),
        ("it hasn't answered for long", 301.0, 301.0, True),
    ],
)
def test_a_deleted_cluster_that_stays_silent_is_gone_after_five_minutes(
    why: str, deleted: float, silent: float, gone: bool
) -> None:
    plane = ControlPlane(cluster(deleted=NOW - deleted), MADE, HELD, (POD,))
    assert state(plane, silent_for(silent)).gone is gone, why


def test_a_slurm_that_is_gone_is_not_unreachable() -> None:
    assert not state(ControlPlane(cluster()), silent_for(900.0)).unreachable


@pytest.mark.parametrize(
    ("found", "ready", "asked"),
    [
        (lease(phase="running"), 1, True),
        (lease(phase="running"), 0, False),
        (lease(phase="running"), None, False),
        (lease(phase="starting"), 1, False),
        (None, 1, False),
    ],
)
def test_slurm_is_asked_once_slurmctld_and_slurmrestd_run(found: Lease | None, ready: int | None, asked: bool) -> None:
    status = DeploymentStatus(ready_replicas=ready or 0)
    assert can_be_asked(found, None if ready is None else Deployment(metadata=META, status=status)) is asked
