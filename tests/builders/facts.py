"""Facts about a cluster, as Slurm and Kubernetes report them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tests.builders import objects
from tests.builders.objects import cluster, machine, nodeset
from tests.builders.slurm import CLOCK, node

from seltzer.api.core import Node as Machine
from seltzer.api.core import Pod
from seltzer.api.labels import CLUSTER, CLUSTER_NAMESPACE, NODESET
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Snapshot
from seltzer.view.facts import Facts

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def pod(name: str = "cpu-0", machine: str = "n1", **more: Any) -> Pod:
    """slurmd's pod of a node of the cluster demo."""
    labels = {CLUSTER: "demo", CLUSTER_NAMESPACE: "ns", NODESET: name.rpartition("-")[0]}
    return objects.pod(name, machine=machine, labels=labels, **more)


def known(
    told: Snapshot | None = None,
    *pods: Pod,
    machines: Sequence[Machine] | None = None,
    gaps: Sequence[str] = (),
    **more: Any,
) -> Facts:
    """The facts of the cluster demo."""
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
    """A node that was drained five minutes ago."""
    return node(name, state, reason=reason, reason_set_by_user=by, since=CLOCK - 300)
