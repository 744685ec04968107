"""Clusters and NodeSets as the API server would hand them over, from what a user writes."""

from __future__ import annotations

from typing import Any

from msgspec import convert

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster


def cluster(spec: dict[str, Any] | None = None, *, name: str = "demo", namespace: str = "ns") -> SlurmCluster:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
    return convert({"metadata": metadata, "spec": spec or {}}, SlurmCluster)


def nodeset(
    spec: dict[str, Any] | None = None,
    *,
    name: str = "cpu",
    namespace: str = "ns",
    created: str = "2026-01-01T00:00:00Z",
) -> NodeSet:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "creationTimestamp": created}
    return convert({"metadata": metadata, "spec": {"clusterRef": {"name": "demo"}, **(spec or {})}}, NodeSet)
