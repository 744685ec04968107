"""Whether a cluster's Slurm is known, unreachable, or certainly gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from seltzer.api.core import Deployment, Lease, Pod
from seltzer.api.labels import EPOCH
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.plan import pod_state
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.slurm.models import Node

# The Slurm of a deleted cluster that hasn't answered for so long is lost.
GONE_AFTER = 300.0


@dataclass(frozen=True)
class SlurmState:
    """What is known of a cluster's Slurm."""

    # None: unknown.
    nodes: Mapping[str, Node] | None
    # slurmctld's clock.
    now: int | None = None
    # There is no slurmctld and none will come, so there is no job to lose. Silence alone never sets this.
    gone: bool = False
    # Slurm has been silent for so long that its earlier answers no longer count. Right after a write of ours, and
    # before the first answer to a new leader, the nodes are unknown too, but only for a moment.
    unreachable: bool = False


@dataclass(frozen=True)
class ControlPlane:
    """What Kubernetes shows of a cluster's slurmctld. `pods` may include finished ones."""

    cluster: SlurmCluster | None
    deployment: Deployment | None = None
    lease: Lease | None = None
    pods: tuple[Pod, ...] = ()


@dataclass(frozen=True)
class Contact:
    """What Slurm answered: its nodes and its clock, or for how many seconds it has been silent.

    A new leader that hasn't asked yet counts from its start. Answers older than `stale` seconds don't count.
    """

    nodes: Mapping[str, Node] | None
    clock: int | None
    silent_for: float
    stale: float


def slurm(plane: ControlPlane, contact: Contact, now: float) -> SlurmState:
    """What the plans may assume about Slurm."""
    if plane.cluster is None or _is_removed(plane, plane.cluster):
        return SlurmState(None, gone=True)  # earlier answers don't matter any more
    if contact.nodes is not None:
        return SlurmState(contact.nodes, contact.clock)
    gone = _is_gone(plane, plane.cluster, contact, now)
    return SlurmState(None, gone=gone, unreachable=not gone and contact.silent_for > contact.stale)


def can_be_asked(lease: Lease | None, rest: Deployment | None) -> bool:
    """Whether a connection to Slurm can succeed: an earlier attempt would only time out, after ten seconds."""
    return GuardReport(lease).runs and rest is not None and rest.status.ready_replicas > 0


def _is_removed(plane: ControlPlane, cluster: SlurmCluster) -> bool:
    """Whether the cluster is being deleted and its slurmctld is already deleted, including its pods."""
    return cluster.metadata.deletion_timestamp is not None and plane.deployment is None and not _running(plane)


def _is_gone(plane: ControlPlane, cluster: SlurmCluster, contact: Contact, now: float) -> bool:
    """Whether a silent slurmctld certainly doesn't exist, so that there is no job to lose. Two ways:

    1. No controller has ever held the Lease, and none runs.
    2. The cluster has been deleted for GONE_AFTER seconds, and Slurm has been silent for as long.
    """
    lease, controllers = plane.lease, _running(plane)
    if lease is None and not controllers:
        return True
    # A missing Lease beside a controller was deleted by somebody: it proves nothing.
    never_held = lease is not None and not lease.spec.holder_identity and EPOCH not in lease.metadata.annotations
    if never_held and not any(pod_state.ready(pod) for pod in controllers):
        return True
    if cluster.metadata.deletion_timestamp is None:
        return False
    deleted = datetime.fromisoformat(cluster.metadata.deletion_timestamp).timestamp()
    return now - deleted >= GONE_AFTER and contact.silent_for >= GONE_AFTER


def _running(plane: ControlPlane) -> list[Pod]:
    """The controller's pods that run, or may."""
    return [pod for pod in plane.pods if not pod_state.finished(pod)]
