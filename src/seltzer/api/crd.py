"""The CustomResourceDefinitions of SlurmCluster and NodeSet, generated from their Structs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from . import schema
from .common import GROUP, VERSION
from .nodeset import NodeSet
from .slurmcluster import SlurmCluster

Manifest = dict[str, Any]
READY = ".status.conditions[?(@.type=='Ready')]"


def manifests() -> list[Manifest]:
    """All CRDs, ready to apply."""
    return [slurmcluster(), nodeset()]


def slurmcluster() -> Manifest:
    """The CRD of SlurmCluster."""
    columns = [
        _column("Ready", f"{READY}.status", "Whether jobs can be submitted."),
        _column("Reason", f"{READY}.reason", "Why it is ready or not."),
        _column("Slurm", ".status.slurmVersion", "The version of the running slurmctld."),
        _column("Nodes", ".status.nodes.total", "All nodes with a record in Slurm.", "integer"),
        _column("Down", ".status.nodes.down", "Nodes that failed or don't respond.", "integer"),
        _column("Running", ".status.jobs.running", "Running jobs.", "integer"),
        _column("Pending", ".status.jobs.pending", "Pending jobs.", "integer"),
        _age(),
        _column("Controller", ".status.controller.node", "The Kubernetes node that slurmctld runs on.", wide=True),
        _column("Standbys", ".spec.controller.standby", "The number of standby pods.", "integer", wide=True),
        _column("Failover", ".status.lastFailoverTime", "The time since the last failover.", "date", wide=True),
        _column("Message", f"{READY}.message", "Why it is ready or not, in a sentence.", wide=True),
    ]
    return _crd(SlurmCluster, plural="slurmclusters", short=["slc"], columns=columns)


def nodeset() -> Manifest:
    """The CRD of NodeSet, which can be scaled like a Deployment."""
    columns = [
        _column("Cluster", ".spec.clusterRef.name", "The cluster that the nodes belong to."),
        _column("Desired", ".status.desiredReplicas", "The desired number of nodes.", "integer"),
        _column("Ready", ".status.readyReplicas", "Pods that are ready and registered with Slurm.", "integer"),
        _column("Idle", ".status.nodes.idle", "Idle nodes.", "integer"),
        _column("Draining", ".status.nodes.draining", "Nodes that wait for their last jobs to end.", "integer"),
        _column("Down", ".status.nodes.down", "Nodes that failed or don't respond.", "integer"),
        _column("Reason", f"{READY}.reason", "Why it is ready or not."),
        _age(),
        _column("Updated", ".status.updatedReplicas", "Pods made from the current NodeSet.", "integer", wide=True),
        _column("Message", f"{READY}.message", "Why it is ready or not, in a sentence.", wide=True),
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    crd = _crd(NodeSet, plural="nodesets", short=["nset"], columns=columns)
    version = crd["spec"]["versions"][0]
    version["subresources"]["scale"] = scale
    version["selectableFields"] = [{"jsonPath": ".spec.clusterRef.name"}]
    return crd


def _crd(cls: type[Struct], *, plural: str, short: list[str], columns: list[Manifest]) -> Manifest:
    kind = cls.__name__
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema.of_object(cls)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "seltzer"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "singular": kind.lower(),
                "plural": plural,
                "shortNames": short,
                "categories": ["seltzer"],
            },
            "versions": [version],
        },
    }


def _column(name: str, path: str, description: str, kind: str = "string", *, wide: bool = False) -> Manifest:
    """A column of `kubectl get`; a wide one shows only with -o wide."""
    column: Manifest = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


def _age() -> Manifest:
    return _column("Age", ".metadata.creationTimestamp", "The time since its creation.", "date")
