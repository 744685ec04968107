"""Pods, Slurm nodes, NodeSets and clusters as a plan sees them, in one line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from seltzer.api.common import PodTemplate
from seltzer.api.core import (
    ContainerState,
    ContainerStatus,
    NodeCondition,
    NodeMeta,
    NodeSpec,
    NodeStatus,
    ObjectCondition,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Taint,
    Terminated,
    Waiting,
)
from seltzer.api.core import Node as KubeNode
from seltzer.api.labels import FINALIZER, TEMPLATE
from seltzer.api.nodeset import ClusterRef, Drain, NodeSet, NodeSetSpec, NodeSetStatus, Update
from seltzer.api.slurmcluster import NodeSetAccess, SlurmCluster, SlurmClusterSpec
from seltzer.plan.actions import Action, PodPatch
from seltzer.plan.nodeset import aging
from seltzer.plan.nodeset.drain_causes import Machine
from seltzer.plan.nodeset.membership import Membership
from seltzer.plan.nodeset.node_records import mark
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.slurm_presence import SlurmState
from seltzer.plan.stages import stages
from seltzer.slurm.models import Node, Number

NOW = 1_800_000_000.0
MEMBER = Membership(True, True, "Accepted", "its nodes belong to SlurmCluster ns/demo")
DRAIN, UPDATE = Drain(), Update()


def part_of(actions: Sequence[Action], order: int, count: int) -> list[Action]:
    """Some of them, in some order that their stages allow."""
    turned = [*actions[order % 7 :], *actions[: order % 7]]
    done = (turned[::-1] if order // 7 % 2 else turned)[:count]
    return [action for stage in stages(done) for action in stage]


def time_at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def nodeset(
    replicas: int = 2,
    *,
    name: str = "cpu",
    namespace: str = "ns",
    cluster: str = "demo",
    cluster_namespace: str | None = None,
    created: float = NOW - 1000,
    deleted: float | None = None,
    finalizer: bool = True,
    drain: Drain = DRAIN,
    update: Update = UPDATE,
    status: NodeSetStatus | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
) -> NodeSet:
    return NodeSet(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{namespace}-{name}",
            generation=7,
            creation_timestamp=time_at(created),
            deletion_timestamp=time_at(deleted) if deleted is not None else None,
            finalizers=(FINALIZER,) if finalizer else (),
        ),
        spec=NodeSetSpec(
            cluster_ref=ClusterRef(name=cluster, namespace=cluster_namespace),
            replicas=replicas,
            drain=drain,
            update=update,
            pod_template=PodTemplate(spec={"tolerations": [dict(each) for each in tolerations]} if tolerations else {}),
        ),
        status=status or NodeSetStatus(),
    )


def cluster(
    name: str = "demo",
    namespace: str = "ns",
    *,
    allows: Iterable[str] = (),
    spec: SlurmClusterSpec | None = None,
    deleted: float | None = None,
) -> SlurmCluster:
    wanted = spec or SlurmClusterSpec(node_sets=NodeSetAccess(namespaces=tuple(allows)))
    until = time_at(deleted) if deleted is not None else None
    metadata = ObjectMeta(name=name, namespace=namespace, generation=3, deletion_timestamp=until)
    return SlurmCluster(metadata=metadata, spec=wanted)


def pod(
    name: str = "cpu-0",
    *,
    state: str = "ready",
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
    """`state`: created, waiting, ready, unready, ended (its container, for now), Failed, Succeeded, or why it waits,
    as ImagePullBackOff or, with `restarts`, CrashLoopBackOff. `finished` is when its last container ended, `deleted` is
    when its grace ends."""
    metadata = ObjectMeta(
        name=name,
        namespace="ns",
        uid=uid or f"uid-{name}",
        resource_version=version,
        labels={TEMPLATE: template},
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
    ready: str = "True",
    *taints: str,
    name: str = "worker",
    cordoned: bool = False,
    deleting: bool = False,
    calm: float = 1000.0,
    changes: int = 0,
    **conditions: str,
) -> Machine:
    """A Kubernetes node; `ready` may be empty, as of one that has just come. Well, and for long, unless it is said."""
    told = {"Ready": ready, **conditions} if ready else conditions
    item = KubeNode(
        metadata=NodeMeta(name=name, deletion_timestamp=time_at(NOW) if deleting else None),
        spec=NodeSpec(unschedulable=cordoned, taints=tuple(taint(each) for each in taints)),
        status=NodeStatus(conditions=tuple(NodeCondition(type=key, status=value) for key, value in told.items())),
    )
    return Machine(item, calm, changes)


def node(
    name: str = "cpu-0", state: str = "IDLE", *, reason: str = "", since: int = int(NOW) - 60, **more: Any
) -> Node:
    """`state` is as sinfo has it, such as `MIXED DRAIN`. What says no `comment` was marked before, and has an owner."""
    more.setdefault("comment", mark(nodeset(name=name.rpartition("-")[0])))
    more.setdefault("partitions", (name.rpartition("-")[0],))
    base = state.split()[0]
    more.setdefault("alloc_cpus", 1 if base in ("MIXED", "ALLOCATED") else 0)
    more.setdefault("reasoned", Number(set=True, number=since) if reason else None)
    return Node(name=name, state=(*state.split(), "DYNAMIC_NORM"), reason=reason, **more)


def slurm(*nodes: Node, now: float | None = NOW) -> SlurmState:
    return SlurmState({each.name: each for each in nodes}, int(now) if now is not None else None)


UNKNOWN = SlurmState(None)
GONE = SlurmState(None, gone=True)


def seen(
    item: NodeSet | None = None,
    *pods: Pod,
    slurm: SlurmState = UNKNOWN,
    membership: Membership = MEMBER,
    template: str | None = "new",
    refusal: str = "",
    closing: bool = False,
    named: frozenset[str] | None = frozenset(),
    queued: int | None = 0,
    ending_partition: str = "cpu",
    deadlines_age: float = 0.0,
    age: float = 1000.0,
    **more: Any,
) -> NodeSetObservation:
    """What a plan for a NodeSet looks at. No job waits, and all has been so for long, unless it is said."""
    observation = NodeSetObservation(
        nodeset=item or nodeset(),
        membership=membership,
        pods=pods,
        template=template,
        slurm=slurm,
        now=NOW,
        refusal=refusal,
        closing=closing,
        named=named,
        queued=queued,
        ending_partition=ending_partition,
        deadlines_age=deadlines_age,
    )
    return aged(replace(observation, **more), age)


def aged(observation: NodeSetObservation, age: float) -> NodeSetObservation:
    """What depends on time has been so for `age` seconds, by the operator's own clock."""
    return replace(observation, ages=dict.fromkeys(aging.things(observation), age))
