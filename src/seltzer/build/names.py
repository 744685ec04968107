"""Names, labels and owners of a cluster's objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from seltzer.api.common import API_VERSION
from seltzer.api.labels import (
    CHECKSUM,
    CLUSTER,
    CLUSTER_NAMESPACE,
    COMPONENT,
    CONFIG,
    CONTROLLER_POD,
    FINALIZER,
    INSTANCE,
    MANAGED_BY,
    NAME,
    NODESET,
    TEMPLATE,
    TRIAL,
    USERS,
)
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

__all__ = [
    "CHECKSUM",
    "CLUSTER",
    "CLUSTER_NAMESPACE",
    "COMPONENT",
    "CONFIG",
    "CONTROLLER_POD",
    "FINALIZER",
    "INSTANCE",
    "MANAGED_BY",
    "NAME",
    "NODESET",
    "TEMPLATE",
    "TRIAL",
    "USERS",
]

Manifest = dict[str, Any]

OPERATOR: Final = "seltzer-operator"

SLURM_KEY: Final = "slurm.key"
JWT_KEY: Final = "jwt_hs256.key"
DIGEST_CHARACTERS: Final = 40
"""The part of a digest that fits into a label and is still unique."""


def slurm_name(cluster: SlurmCluster) -> str:
    """The cluster's name in Slurm."""
    return cluster.spec.cluster_name or cluster.metadata.name


def of_component(cluster: SlurmCluster, component: str) -> str:
    """The single objects of a component: Deployment, Service, ServiceAccount, NetworkPolicy and so on."""
    return f"{cluster.metadata.name}-{component}"


def controller(cluster: SlurmCluster) -> str:
    """All objects of slurmctld: Deployment, claim, Service, EndpointSlice, Lease and so on."""
    return of_component(cluster, "slurmctld")


def controller_address(cluster: SlurmCluster) -> str:
    """The address of slurmctld, for any namespace."""
    return f"{controller(cluster)}.{cluster.metadata.namespace}.svc"


def keys(cluster: SlurmCluster) -> str:
    """The Secret with both of Slurm's keys."""
    return f"{cluster.metadata.name}-keys"


def config(cluster: SlurmCluster) -> str:
    """The ConfigMap with the configuration that is rolled out."""
    return config_of(cluster.metadata.name)


def config_of(name: str) -> str:
    """The same for a cluster with this name."""
    return f"{name}-config"


def home(cluster: SlurmCluster) -> str:
    """The claim with the home directories that we create, and the binder."""
    return f"{cluster.metadata.name}-home"


def home_claim(cluster: SlurmCluster) -> str:
    """The claim with the home directories, ours or the user's; empty if the spec asks for none."""
    wanted = cluster.spec.home
    return (wanted.claim or home(cluster)) if wanted else ""


def trial(cluster: SlurmCluster, trial_id: str) -> str:
    """ConfigMap and Pod of a trial."""
    return f"{cluster.metadata.name}-trial-{trial_id[:10]}"


def pod(nodeset: NodeSet, ordinal: int) -> str:
    """A pod of a NodeSet, and its node in Slurm."""
    return f"{nodeset.metadata.name}-{ordinal}"


def nodeset_key(nodeset: NodeSet) -> str:
    """The Secret with slurm.key, next to a NodeSet that isn't in its cluster's namespace."""
    return f"{nodeset.metadata.name}-slurm-key"


def passwd(cluster: SlurmCluster) -> str:
    """The ConfigMap with the users."""
    return f"{cluster.metadata.name}-passwd"


def group(cluster: SlurmCluster) -> str:
    """The ConfigMap with the groups."""
    return f"{cluster.metadata.name}-group"


def user_keys(cluster: SlurmCluster, part: int) -> str:
    """A ConfigMap with users' SSH keys."""
    return f"{cluster.metadata.name}-keys-{part}"


def ledger(cluster: SlurmCluster) -> str:
    """The ConfigMap that remembers which IDs belong to which names."""
    return f"{cluster.metadata.name}-uids"


def nodeset_passwd(nodeset: NodeSet) -> str:
    """The copy of the users, next to a NodeSet that isn't in its cluster's namespace.

    The dot rules out the name of an object of a cluster.
    """
    return f"{nodeset.metadata.name}.passwd"


def nodeset_group(nodeset: NodeSet) -> str:
    """The copy of the groups, next to a NodeSet that isn't in its cluster's namespace."""
    return f"{nodeset.metadata.name}.group"


def nodeset_policy(nodeset: NodeSet) -> str:
    """The NetworkPolicy of a NodeSet that isn't in its cluster's namespace."""
    return f"{nodeset.metadata.name}-slurmd"


def nodeset_budget(nodeset: NodeSet) -> str:
    """The PodDisruptionBudget of a NodeSet's pods that have jobs."""
    return f"{nodeset.metadata.name}-busy"


def slurm_set(nodeset: NodeSet) -> str:
    """The NodeSet's name in slurm.conf, and the feature that defines it. The underscore rules out a node's name."""
    return f"set_{nodeset.metadata.name}"


def selector(cluster: SlurmCluster, component: str) -> dict[str, str]:
    """The labels that select the pods of a component in a namespace."""
    return {
        COMPONENT: component,
        CLUSTER: cluster.metadata.name,
        CLUSTER_NAMESPACE: cluster.metadata.namespace,
    }


def nodeset_selector(nodeset: NodeSet, cluster: SlurmCluster) -> dict[str, str]:
    """The labels that select the pods of a NodeSet in its namespace."""
    return {**selector(cluster, "slurmd"), NODESET: nodeset.metadata.name}


def labels(cluster: SlurmCluster, component: str) -> dict[str, str]:
    """The labels of every object of a cluster."""
    return {
        MANAGED_BY: "seltzer",
        NAME: "slurm",
        INSTANCE: cluster.metadata.name,
        **selector(cluster, component),
    }


def manifest(
    kind: str,
    api_version: str,
    cluster: SlurmCluster,
    component: str,
    name: str,
    *,
    more_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: SlurmCluster | NodeSet | None = None,
) -> Manifest:
    """The head of an object of a cluster, in the namespace of its owner; by default that is the cluster."""
    owner = owner or cluster
    metadata: Manifest = {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": {**labels(cluster, component), **(more_labels or {})},
        "ownerReferences": owners(owner),
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def owners(owner: SlurmCluster | NodeSet) -> list[Manifest]:
    """Kubernetes deletes the object with its owner."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": owner.kind,
            "name": owner.metadata.name,
            "uid": owner.metadata.uid,
            "controller": True,
        }
    ]
