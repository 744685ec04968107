"""The parts of Kubernetes' own objects that we read: projections that hold only the fields listed here.

A projection drops everything else when it is decoded, which keeps 10,000 pods small. It must never be written back: a
PUT would erase what it dropped. Write with server-side apply or a patch.

Everything but a name has a default: an object that is just being created lacks most fields, and a reader that fails on
one pod sees none. Times stay text, as the API server writes them; code that needs one parses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class View(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """How all projections are decoded. `gc=False` exempts them from garbage collection: they can't form cycles."""


class OwnerReference(View, frozen=True, kw_only=True):
    """An object's owner. Deleting the owner deletes the object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(View, frozen=True, kw_only=True):
    """An object's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class ObjectCondition(View, frozen=True, kw_only=True):
    """A condition of a core object; `seltzer.api.common.Condition` is the stricter one that we write."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Waiting(View, frozen=True, kw_only=True):
    """Why a container hasn't started: ImagePullBackOff, CrashLoopBackOff …"""

    reason: str = ""
    message: str = ""


class Terminated(View, frozen=True, kw_only=True):
    """How a container ended: OOMKilled, Error, Completed …"""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerState(View, frozen=True, kw_only=True):
    """Waiting or terminated; if neither, running."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(View, frozen=True, kw_only=True):
    """The state of one container of a pod."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodSpec(View, frozen=True, kw_only=True):
    """Where a pod runs; empty until it is scheduled."""

    node_name: str = ""


class PodStatus(View, frozen=True, kw_only=True):
    """The state of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = field(name="podIP", default="")
    conditions: tuple[ObjectCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(View, frozen=True, kw_only=True):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class DeploymentSpec(View, frozen=True, kw_only=True):
    """How many pods are wanted."""

    replicas: int = 1


class DeploymentStatus(View, frozen=True, kw_only=True):
    """How many pods there are."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    conditions: tuple[ObjectCondition, ...] = ()


class Deployment(View, frozen=True, kw_only=True):
    """An apps/v1 Deployment."""

    metadata: ObjectMeta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ClaimSpec(View, frozen=True, kw_only=True):
    """What was claimed, and the volume that it got."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_name: str = ""


class ClaimStatus(View, frozen=True, kw_only=True):
    """Pending, Bound or Lost."""

    phase: str = ""


class PersistentVolumeClaim(View, frozen=True, kw_only=True):
    """A claim for a volume."""

    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ConfigMap(View, frozen=True, kw_only=True):
    """Files, by name."""

    metadata: ObjectMeta
    data: Mapping[str, str] = {}


class Secret(View, frozen=True, kw_only=True):
    """Files with restricted access, by name, in base64."""

    metadata: ObjectMeta
    data: Mapping[str, str] = {}


class Anything(View, frozen=True, kw_only=True):
    """Any object of which only the metadata matters."""

    metadata: ObjectMeta


class Taint(View, frozen=True, kw_only=True):
    """Keeps pods off a node, or evicts them."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(View, frozen=True, kw_only=True):
    """Whether new pods may be scheduled on a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(View, frozen=True, kw_only=True):
    """A condition of a node, without its heartbeat and message: they change often and don't matter here."""

    type: str
    status: str


class NodeStatus(View, frozen=True, kw_only=True):
    """The state of a node."""

    conditions: tuple[NodeCondition, ...] = ()


class NodeMeta(View, frozen=True, kw_only=True):
    """A node's metadata, without annotations: there are many, and many nodes."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}


class Node(View, frozen=True, kw_only=True):
    """A Kubernetes node."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(View, frozen=True, kw_only=True):
    """The holder of a Lease, since when and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(View, frozen=True, kw_only=True):
    """A coordination.k8s.io Lease."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(View, frozen=True, kw_only=True):
    """The object that an Event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(View, frozen=True, kw_only=True):
    """How often an Event was repeated, and when last."""

    count: int = 0
    last_observed_time: str | None = None


class Event(View, frozen=True, kw_only=True):
    """An events.k8s.io Event."""

    metadata: ObjectMeta
    type: str = ""
    reason: str = ""
    note: str = ""
    action: str = ""
    event_time: str | None = None
    regarding: ObjectReference = ObjectReference()
    series: EventSeries | None = None
