"""Facts to explain: a cluster with nodes, pods, machines and jobs, as Slurm and Kubernetes would tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from tests.fakes.plan_model.things import node, nodeset
from tests.fakes.plan_model.things import pod as made

from seltzer.api.core import Node as Machine
from seltzer.api.core import NodeCondition, NodeMeta, NodeSpec, NodeStatus, Pod, PodSpec
from seltzer.api.labels import CLUSTER, CLUSTER_NAMESPACE, NODESET
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Job, Partition, Snapshot
from seltzer.view.facts import Facts

CLOCK = 1_000_000_060
"""slurmctld's; ours is another."""
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def cluster(name: str = "demo", namespace: str = "ns", **spec: Any) -> SlurmCluster:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, SlurmCluster)


def pod(name: str, machine: str = "n1", state: str = "ready", address: str = "", **more: Any) -> Pod:
    one = made(name, state=state, **more)
    labels = {CLUSTER: "demo", CLUSTER_NAMESPACE: "ns", NODESET: name.rpartition("-")[0]}
    where = "" if state in ("created", "Unschedulable") else machine
    status = msgspec.structs.replace(one.status, pod_ip=address)
    metadata = msgspec.structs.replace(one.metadata, labels=labels)
    return Pod(metadata=metadata, spec=PodSpec(node_name=where), status=status)


def machine(name: str, ready: str = "True", cordoned: bool = False) -> Machine:
    conditions = (NodeCondition(type="Ready", status=ready),)
    return Machine(
        metadata=NodeMeta(name=name), spec=NodeSpec(unschedulable=cordoned), status=NodeStatus(conditions=conditions)
    )


def job(id_: str = "7", state: str = "RUNNING", *on: str, end: int | None = CLOCK + 300, **more: Any) -> Job:
    number = more.pop("number", int("".join(each for each in id_ if each.isdigit())[:4]))
    fields = {"user": "ann", "name": "train", "reason": "", "partition": "cpu", "start": CLOCK - 60, **more}
    return Job(id=id_, number=number, state=state, nodes=on, end=end, **fields)


def slurm(*told: Node | Job, partitions: Sequence[Partition] = ()) -> Snapshot:
    return Snapshot(
        CLOCK,
        {each.name: each for each in told if isinstance(each, Node)},
        tuple(each for each in told if isinstance(each, Job)),
        {each.name: each for each in partitions},
    )


def known(
    told: Snapshot | None = None,
    *pods: Pod,
    machines: Sequence[Machine] | None = None,
    gaps: Sequence[str] = (),
    **more: Any,
) -> Facts:
    seen = [machine("n1"), machine("n2")] if machines is None else machines
    return Facts(
        cluster(),
        NOW,
        more.pop("nodesets", [nodeset(2)]),
        {each.metadata.name: each for each in pods},
        {each.metadata.name: each for each in seen},
        slurm=told,
        gaps=gaps,
        **more,
    )


def drained(name: str = "cpu-0", reason: str = "bad disk [ann]", by: str = "slurm", state: str = "IDLE DRAIN") -> Node:
    return node(name, state, reason=reason, reason_set_by_user=by, since=CLOCK - 300)
