"""The actions of plans. Each may be done twice, or again after a crash: the outcome is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from seltzer.api.core import Lease, ObjectCondition

Manifest = Mapping[str, Any]

# --- Kubernetes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Apply:
    """Apply an object (server-side apply)."""

    manifest: Manifest


@dataclass(frozen=True)
class Create:
    """Create an object. One that exists stays as it is."""

    manifest: Manifest


@dataclass(frozen=True)
class Delete:
    """Delete this object and no other of its name."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class CreatePods:
    """Create the NodeSet's pods with these names."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class PodRef:
    """A pod to delete: this one and no other of its name."""

    name: str
    uid: str
    # Set where the pod is safe to delete only in this state: it hasn't started, and may at any moment.
    resource_version: str = ""


@dataclass(frozen=True)
class DeletePods:
    """Delete pods that no job can be on.

    `ask` says that this is known from Slurm's nodes: right before the deletion Slurm is asked again, and a pod whose
    node is neither drained and empty nor unregistered stays.
    """

    pods: tuple[PodRef, ...]
    ask: bool
    # The reason, for people.
    why: str = field(default="", compare=False)


@dataclass(frozen=True)
class RefreshVolumes:
    """Change an annotation of a pod, so that its kubelet updates the pod's volumes now and not in a minute."""

    namespace: str
    name: str
    annotation: str
    value: str


@dataclass(frozen=True)
class Hold:
    """Set on the guards' Lease whether slurmctld has to stay down. Nothing else of the Lease is ours."""

    namespace: str
    name: str
    held: bool


@dataclass(frozen=True)
class RemoveStuckPod:
    """Remove the object of this pod without waiting for its node, which is gone, not ready or silent.

    If the guard's silence is the reason, only while the Lease is unchanged (`silent`).
    """

    namespace: str
    name: str
    uid: str
    node: str
    state: str
    silent: Lease | None = None


@dataclass(frozen=True)
class PodPatch:
    """What a pod doesn't show yet; None removes a label or an annotation."""

    name: str
    uid: str
    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    conditions: tuple[ObjectCondition, ...]


@dataclass(frozen=True)
class PatchPods:
    """Write Slurm's state of their nodes onto the NodeSet's pods."""

    patches: tuple[PodPatch, ...]


@dataclass(frozen=True)
class SetFinalizer:
    """Add our finalizer to the plan's object, or remove it.

    `if_empty` names a partition that ends with the object: the finalizer stays while jobs wait in it.
    """

    present: bool
    if_empty: str = ""


@dataclass(frozen=True)
class SetReplicas:
    """Write the number of replicas into the spec of the plan's object, which has none."""

    count: int


# --- Slurm: each is one call, for any number of nodes -------------------------------------------------------------


@dataclass(frozen=True)
class DrainNodes:
    """Take no new jobs on these nodes."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class ResumeNodes:
    """Take jobs again. Only for nodes that we drained or set down, or that went down in an outage."""

    names: tuple[str, ...]
    # What is over, by name, for people.
    why: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class DownNodes:
    """Take the jobs off these nodes. Jobs that may be requeued go back into the queue."""

    names: tuple[str, ...]
    reason: str
    # The nodes among them that are given up as lost, with their addresses. Those that answer by now are left out.
    silent: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class KillJobs:
    """End the jobs on these nodes."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class MarkNodes:
    """Write a comment into these records. slurmctld saves a changed record, so it survives a crash."""

    names: tuple[str, ...]
    comment: str


@dataclass(frozen=True)
class SetAddress:
    """Correct the address that slurmctld has of a node."""

    names: tuple[str, ...]
    address: str


@dataclass(frozen=True)
class SetTopology:
    """Say where in Slurm's topology these nodes are; empty: nowhere. Their jobs go on."""

    names: tuple[str, ...]
    topology: str


@dataclass(frozen=True)
class SetFeatures:
    """Replace the features of these nodes. Their jobs go on."""

    names: tuple[str, ...]
    features: tuple[str, ...]


@dataclass(frozen=True)
class DeleteRecords:
    """Remove these nodes from Slurm; their pods are gone.

    `unless_named` keeps the records of nodes that waiting jobs name: those jobs would be lost.
    """

    names: tuple[str, ...]
    unless_named: bool = False


OnSlurm = (
    DrainNodes | ResumeNodes | DownNodes | KillJobs | MarkNodes | SetAddress | SetTopology | SetFeatures | DeleteRecords
)
OnKubernetes = (
    Apply
    | Create
    | Delete
    | CreatePods
    | DeletePods
    | RefreshVolumes
    | Hold
    | RemoveStuckPod
    | PatchPods
    | SetFinalizer
    | SetReplicas
)
Action = OnKubernetes | OnSlurm


@dataclass(frozen=True)
class PlannedEvent:
    """A Kubernetes Event."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str
