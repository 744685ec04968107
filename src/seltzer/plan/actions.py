"""What a plan can ask for. Each action may be done twice, or again after a crash: the outcome is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from seltzer.api.core import Lease, ObjectCondition

Manifest = Mapping[str, Any]

# --- Kubernetes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Apply:
    """Make an object so (server-side apply)."""

    manifest: Manifest


@dataclass(frozen=True)
class Create:
    """Make an object that isn't there. One that is there stays as it is."""

    manifest: Manifest


@dataclass(frozen=True)
class Delete:
    """Delete this very object."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class CreatePods:
    """Make the NodeSet's pods with these names."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class PodRef:
    """A pod that is to be deleted, this very one and no other of its name."""

    name: str
    uid: str
    # Set where only this very state of the pod is safe to delete: one that hasn't started, and might any moment.
    resource_version: str = ""


@dataclass(frozen=True)
class DeletePods:
    """Delete pods that no job can be on.

    `ask` says that this is known from Slurm's nodes: right before the deletion Slurm is asked once more, and a pod
    whose node isn't as it was (drained, without a job, or not registered) stays.
    """

    pods: tuple[PodRef, ...]
    ask: bool
    # For a person; it makes no other action of it.
    why: str = field(default="", compare=False)


@dataclass(frozen=True)
class Poke:
    """Change an annotation of a pod, so that its kubelet looks after its volumes now and not in a minute."""

    namespace: str
    name: str
    annotation: str
    value: str


@dataclass(frozen=True)
class Hold:
    """Tell the guards by their Lease whether slurmctld has to stay down. Nothing else of the Lease is ours."""

    namespace: str
    name: str
    held: bool


@dataclass(frozen=True)
class RemoveStuckPod:
    """Remove the object of this very pod without waiting for its node, which is gone, not ready or not heard of.

    If its silence is the reason, then only while the Lease is as it was seen.
    """

    namespace: str
    name: str
    uid: str
    node: str
    state: str
    silent: Lease | None = None


@dataclass(frozen=True)
class PodPatch:
    """What a pod doesn't tell yet; None removes."""

    name: str
    uid: str
    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    conditions: tuple[ObjectCondition, ...]


@dataclass(frozen=True)
class MirrorPods:
    """Write onto the NodeSet's pods what Slurm knows of them."""

    patches: tuple[PodPatch, ...]


@dataclass(frozen=True)
class SetFinalizer:
    """Add our finalizer to the object that the plan is about, or remove it.

    `if_empty` names a partition that ends with the object: the finalizer stays while jobs wait in it.
    """

    present: bool
    if_empty: str = ""


# --- Slurm: each is one call, for any number of nodes -------------------------------------------------------------


@dataclass(frozen=True)
class DrainNodes:
    """No new job on these nodes."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class ResumeNodes:
    """Jobs may come again. Only for what we drained or set down ourselves, or what an outage did."""

    names: tuple[str, ...]
    # What is over, for a person, by name; it makes no other action of it.
    why: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class DownNodes:
    """Take the jobs off these nodes; those that may are put back into the queue."""

    names: tuple[str, ...]
    reason: str
    # Those of them that are given up for lost, with their addresses: not if they answer by now.
    silent: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class KillJobs:
    """End the jobs on these nodes."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class MarkNodes:
    """Write a comment into these records. slurmctld saves a record that was changed, so it survives a crash."""

    names: tuple[str, ...]
    comment: str


@dataclass(frozen=True)
class SetAddress:
    """Tell slurmctld where a node really is."""

    names: tuple[str, ...]
    address: str


@dataclass(frozen=True)
class DeleteRecords:
    """Remove these nodes from Slurm; their pods are gone.

    `unless_named` keeps the records of nodes that waiting jobs name: those jobs would be lost.
    """

    names: tuple[str, ...]
    unless_named: bool = False


OnSlurm = DrainNodes | ResumeNodes | DownNodes | KillJobs | MarkNodes | SetAddress | DeleteRecords
OnKubernetes = (
    Apply | Create | Delete | CreatePods | DeletePods | Poke | Hold | RemoveStuckPod | MirrorPods | SetFinalizer
)
Action = OnKubernetes | OnSlurm


@dataclass(frozen=True)
class PlannedEvent:
    """An Event: something that a person would want to know."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str
