"""Kubernetes objects, ours included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from seltzer.api.common import Condition
from seltzer.api.core import (
    ContainerState,
    ContainerStatus,
    Lease,
    LeaseSpec,
    Node,
    NodeCondition,
    NodeMeta,
    NodeSpec,
    NodeStatus,
    ObjectCondition,
    ObjectMeta,
    ObjectReference,
    Pod,
    PodSpec,
    PodStatus,
    Taint,
    Terminated,
    Waiting,
)
from seltzer.api.labels import FINALIZER, TEMPLATE
from seltzer.api.nodeset import Drain, NodeSet, NodeSetSpec, NodeSetStatus, Update
from seltzer.api.slurmcluster import SlurmCluster, SlurmClusterSpec, SlurmClusterStatus
from seltzer.plan.actions import PodPatch
from seltzer.view.events import Event
from seltzer.wire.annotations import PREFIX

NOW = 1_800_000_000.0
CREATED = "2026-01-01T00:00:00Z"
Time = float | str


def time_at(seconds: float) -> str:
    """As the API server writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _stamp(when: Time | None) -> str | None:
    return time_at(when) if isinstance(when, float | int) else when


def condition(
    kind: str, status: Literal["True", "False", "Unknown"] = "True", reason: str = "Fine", message: str = "it is"
) -> Condition:
    """A condition of a SlurmCluster or a NodeSet."""
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time="")


def cluster(
    spec: Mapping[str, Any] | SlurmClusterSpec | None = None,
    *,
    name: str = "demo",
    namespace: str = "ns",
    allows: Iterable[str] = (),
    status: SlurmClusterStatus | None = None,
    generation: int = 3,
    created: Time | None = CREATED,
    deleted: Time | None = None,
    finalizer: bool = False,
) -> SlurmCluster:
    """A SlurmCluster. `spec` is as a user writes it, or a Struct; `allows` are namespaces of NodeSets."""
    if not isinstance(spec, SlurmClusterSpec):
        guests = {"nodeSets": {"namespaces": list(allows)}} if allows else {}
        spec = msgspec.convert({**guests, **(spec or {})}, SlurmClusterSpec)
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-{namespace}-{name}",
        generation=generation,
        creation_timestamp=_stamp(created),
        deletion_timestamp=_stamp(deleted),
        finalizers=(FINALIZER,) if finalizer else (),
    )
    return SlurmCluster(metadata=metadata, spec=spec, status=status or SlurmClusterStatus())


def nodeset(
    spec: int | Mapping[str, Any] | None = None,
    *,
    name: str = "cpu",
    namespace: str = "ns",
    cluster: str = "demo",
    cluster_namespace: str | None = None,
    created: Time | None = CREATED,
    deleted: Time | None = None,
    finalizer: bool = True,
    generation: int = 7,
    drain: Drain | None = None,
    update: Update | None = None,
    status: NodeSetStatus | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
) -> NodeSet:
    """A NodeSet. `spec` is as a user writes it; a number stands for its replicas."""
    ref = {"name": cluster, **({"namespace": cluster_namespace} if cluster_namespace else {})}
    written = {"replicas": spec} if isinstance(spec, int) else spec or {}
    template = {"podTemplate": {"spec": {"tolerations": [*map(dict, tolerations)]}}} if tolerations else {}
    # The operator writes the default down.
    sized = {} if written.get("placement") == "perNode" else {"replicas": 1}
    made = msgspec.convert({"clusterRef": ref, **sized, **template, **written}, NodeSetSpec)
    made = msgspec.structs.replace(made, drain=drain or made.drain, update=update or made.update)
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-{namespace}-{name}",
        generation=generation,
        creation_timestamp=_stamp(created),
        deletion_timestamp=_stamp(deleted),
        finalizers=(FINALIZER,) if finalizer else (),
    )
    return NodeSet(metadata=metadata, spec=made, status=status or NodeSetStatus())


def pod(
    name: str = "cpu-0",
    *,
    state: str = "ready",
    namespace: str = "ns",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    template: str = "new",
    deleting: bool = False,
    since: float = NOW - 100,
    created: float | None = None,
    uid: str = "",
    version: str = "1",
    words: str = "",
    machine: str = "worker",
    address: str = "",
    restarts: int = 0,
    finished: float = NOW - 100,
    deleted: float = NOW,
) -> Pod:
    """A pod. `state` is created, waiting, ready, unready, ended (its container has ended), Failed, Succeeded, or why it
    waits, such as ImagePullBackOff or, with `restarts`, CrashLoopBackOff. `finished` is when its last container ended,
    `deleted` is when its grace period ends."""
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid or f"uid-{name}",
        resource_version=version,
        labels={TEMPLATE: template, **(labels or {})},
        annotations=annotations or {},
        creation_timestamp=time_at(min(since, NOW) if created is None else created),
        deletion_timestamp=time_at(deleted) if deleting else None,
    )
    bound = PodSpec(node_name="" if state in ("created", "Unschedulable") else machine)
    killed = Terminated(exit_code=137, reason="OOMKilled", message=words, finished_at=time_at(finished))
    status = _status(state, since, words, restarts, killed)
    return Pod(metadata=metadata, spec=bound, status=msgspec.structs.replace(status, pod_ip=address))


def _status(state: str, since: float, words: str, restarts: int, killed: Terminated) -> PodStatus:
    when = time_at(since)
    scheduled = ObjectCondition(type="PodScheduled", status="True", last_transition_time=when)
    unready = ObjectCondition(type="Ready", status="False", last_transition_time=when)
    if state == "created":
        return PodStatus(phase="Pending")
    if state == "Unschedulable":
        never = ObjectCondition(
            type="PodScheduled", status="False", reason=state, message=words, last_transition_time=when
        )
        return PodStatus(phase="Pending", conditions=(never,))
    if state in ("Failed", "Succeeded"):
        over = Terminated(exit_code=int(state == "Failed"), message=words)
        return PodStatus(phase=state, reason="", message=words, container_statuses=(_container(terminated=over),))
    if state in ("ready", "unready"):
        condition = msgspec.structs.replace(unready, status="True") if state == "ready" else unready
        status = _container(restarts=restarts)
        return PodStatus(phase="Running", conditions=(scheduled, condition), container_statuses=(status,))
    if state == "ended":
        status = _container(restarts=restarts, terminated=killed)
        return PodStatus(phase="Running", conditions=(scheduled, unready), container_statuses=(status,))
    why = Waiting(reason="ContainerCreating" if state == "waiting" else state, message=words)
    if restarts:
        status = _container(restarts=restarts, last=killed, waiting=why)
        return PodStatus(phase="Running", conditions=(scheduled, unready), container_statuses=(status,))
    return PodStatus(phase="Pending", conditions=(scheduled,), container_statuses=(_container(waiting=why),))


def _container(*, restarts: int = 0, last: Terminated | None = None, **state: Any) -> ContainerStatus:
    before = ContainerState(terminated=last)
    return ContainerStatus(name="slurmd", restart_count=restarts, state=ContainerState(**state), last_state=before)


def patched(item: Pod, patch: PodPatch) -> Pod:
    """The pod as the API server has it after a patch."""

    def merged(old: Mapping[str, str], new: Mapping[str, str | None]) -> dict[str, str]:
        return {key: value for key, value in {**old, **new}.items() if value is not None}

    conditions = {each.type: each for each in (*item.status.conditions, *patch.conditions)}
    metadata = msgspec.structs.replace(
        item.metadata,
        labels=merged(item.metadata.labels, patch.labels),
        annotations=merged(item.metadata.annotations, patch.annotations),
    )
    status = msgspec.structs.replace(item.status, conditions=tuple(conditions.values()))
    return msgspec.structs.replace(item, metadata=metadata, status=status)


def taint(text: str) -> Taint:
    """As kubectl writes it: key=value:effect, or key:effect."""
    what, _, effect = text.rpartition(":")
    key, _, value = what.partition("=")
    return Taint(key=key, value=value, effect=effect)


def machine(
    name: str = "worker",
    ready: str = "True",
    *,
    taints: Iterable[str] = (),
    cordoned: bool = False,
    deleting: bool = False,
    version: str = "",
    labels: Mapping[str, str] | None = None,
    **conditions: str,
) -> Node:
    """A Kubernetes node. `ready` may be empty, as for a node that has just joined."""
    found = {"Ready": ready, **conditions} if ready else conditions
    return Node(
        metadata=NodeMeta(
            name=name,
            resource_version=version,
            deletion_timestamp=time_at(NOW) if deleting else None,
            labels=labels or {},
        ),
        spec=NodeSpec(unschedulable=cordoned, taints=tuple(taint(each) for each in taints)),
        status=NodeStatus(conditions=tuple(NodeCondition(type=key, status=value) for key, value in found.items())),
    )


def lease(
    holder: str = "c-a",
    *,
    transitions: int = 0,
    acquired: str | None = None,
    renewed: str | None = None,
    seconds: int | None = None,
    namespace: str = "ns",
    version: str = "",
    labels: Mapping[str, str] | None = None,
    **annotations: str,
) -> Lease:
    """The controller's Lease. Annotations are given without their prefix: `phase`, `slurm_version`."""
    spec = LeaseSpec(
        holder_identity=holder,
        lease_transitions=transitions,
        acquire_time=acquired,
        renew_time=renewed,
        lease_duration_seconds=seconds,
    )
    metadata = ObjectMeta(
        name="demo-slurmctld",
        namespace=namespace,
        resource_version=version,
        labels=labels or {},
        annotations={f"{PREFIX}{name.replace('_', '-')}": value for name, value in annotations.items()},
    )
    return Lease(metadata=metadata, spec=spec)


def event(
    reason: str = "Happened",
    message: str = "it did",
    *,
    about: str = "NodeSet/cpu",
    time: Time = NOW,
    count: int = 1,
    warns: bool = False,
    uid: str = "",
    namespace: str = "ns",
) -> Event:
    """An Event about an object of that namespace."""
    kind, _, name = about.partition("/")
    return Event(
        metadata=ObjectMeta(name=uid or reason, namespace=namespace, uid=uid or reason),
        type="Warning" if warns else "Normal",
        reason=reason,
        message=message,
        count=count,
        last_timestamp=_stamp(time),
        involved_object=ObjectReference(kind=kind, name=name, namespace=namespace),
    )
