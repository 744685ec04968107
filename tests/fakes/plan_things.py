"""Pods, Slurm nodes, NodeSets and clusters as a plan sees them, in one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from seltzer.api.core import (
    ContainerState,
    ContainerStatus,
    ObjectCondition,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Terminated,
    Waiting,
)
from seltzer.api.labels import FINALIZER, TEMPLATE
from seltzer.api.nodeset import ClusterRef, Drain, NodeSet, NodeSetSpec, NodeSetStatus, Update
from seltzer.api.slurmcluster import NodeSetAccess, SlurmCluster, SlurmClusterSpec
from seltzer.plan.actions import Action, SetFinalizer
from seltzer.plan.membership import Verdict
from seltzer.plan.nodeset import Observation, mark
from seltzer.plan.removal import Slurm
from seltzer.slurm.models import Node, Number

NOW = 1_800_000_000.0
MEMBER = Verdict(True, True, "Accepted", "its nodes belong to SlurmCluster ns/demo")
DRAIN, UPDATE = Drain(), Update()


def part_of(actions: Sequence[Action], order: int, count: int) -> list[Action]:
    """Some of them, in some order; only a finalizer is always removed last."""
    turned = [*actions[order % 7 :], *actions[: order % 7]]
    done = (turned[::-1] if order // 7 % 2 else turned)[:count]
    return sorted(done, key=lambda action: action == SetFinalizer(False))


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
        ),
        status=status or NodeSetStatus(),
    )


def cluster(
    name: str = "demo", namespace: str = "ns", *, allows: Iterable[str] = (), spec: SlurmClusterSpec | None = None
) -> SlurmCluster:
    wanted = spec or SlurmClusterSpec(node_sets=NodeSetAccess(namespaces=tuple(allows)))
    return SlurmCluster(metadata=ObjectMeta(name=name, namespace=namespace, generation=3), spec=wanted)


def pod(
    name: str = "cpu-0",
    *,
    state: str = "ready",
    template: str = "new",
    deleting: bool = False,
    since: float = NOW - 100,
    uid: str = "",
    version: str = "1",
    words: str = "",
) -> Pod:
    """`state`: created, waiting, ready, unready, Failed, Succeeded, or why it waits, such as ImagePullBackOff."""
    metadata = ObjectMeta(
        name=name,
        namespace="ns",
        uid=uid or f"uid-{name}",
        resource_version=version,
        labels={TEMPLATE: template},
        deletion_timestamp=time_at(NOW) if deleting else None,
    )
    bound = PodSpec(node_name="" if state in ("created", "Unschedulable") else "worker")
    return Pod(metadata=metadata, spec=bound, status=_status(state, since, words))


def _status(state: str, since: float, words: str) -> PodStatus:
    when = time_at(since)
    scheduled = ObjectCondition(type="PodScheduled", status="True", last_transition_time=when)
    if state == "created":
        return PodStatus(phase="Pending")
    if state == "Unschedulable":
        never = ObjectCondition(
            type="PodScheduled", status="False", reason=state, message=words, last_transition_time=when
        )
        return PodStatus(phase="Pending", conditions=(never,))
    if state in ("Failed", "Succeeded"):
        ended = Terminated(exit_code=int(state == "Failed"), message=words)
        return PodStatus(phase=state, reason="", message=words, container_statuses=(_container(terminated=ended),))
    if state in ("ready", "unready"):
        ready = "True" if state == "ready" else "False"
        condition = ObjectCondition(type="Ready", status=ready, last_transition_time=when)
        return PodStatus(phase="Running", conditions=(scheduled, condition), container_statuses=(_container(),))
    why = Waiting(reason="ContainerCreating" if state == "waiting" else state, message=words)
    return PodStatus(phase="Pending", conditions=(scheduled,), container_statuses=(_container(waiting=why),))


def _container(**state: Any) -> ContainerStatus:
    return ContainerStatus(name="slurmd", state=ContainerState(**state))


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


def slurm(*nodes: Node, now: float | None = NOW) -> Slurm:
    return Slurm({each.name: each for each in nodes}, int(now) if now is not None else None)


UNKNOWN = Slurm(None)
GONE = Slurm(None, gone=True)


def seen(
    item: NodeSet | None = None,
    *pods: Pod,
    slurm: Slurm = UNKNOWN,
    verdict: Verdict = MEMBER,
    template: str | None = "new",
    refusal: str = "",
    closing: bool = False,
    named: frozenset[str] | None = frozenset(),
    queued: int | None = 0,
) -> Observation:
    """What a plan for a NodeSet looks at. No job waits, unless it is said."""
    return Observation(
        nodeset=item or nodeset(),
        verdict=verdict,
        pods=pods,
        template=template,
        slurm=slurm,
        now=NOW,
        refusal=refusal,
        closing=closing,
        named=named,
        queued=queued,
    )
