"""The definition of a component: everything that the rest of Seltzer needs to know about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names
from seltzer.build.images import Images
from seltzer.build.names import Manifest
from seltzer.plan.cluster.cluster_plan import ClusterObservation
from seltzer.plan.conditions import Finding

OPERATOR = "operator"
"""A peer in `Ingress` that is no component."""

GeneratedKey = Literal["openssh-ed25519"]
"""How the content of a Secret is generated: a private key in OpenSSH's format."""


@dataclass(frozen=True)
class Ingress:
    """Peers that may connect to ports of a component; everything else is refused.

    A peer is the name of a component, or OPERATOR. No peers: anyone may connect. No ports: to any port.
    """

    peers: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Condition:
    """The condition of a SlurmCluster for a component, which is also a row of `seltzer status`."""

    type: str
    judge: Callable[[ClusterObservation], Finding]


@dataclass(frozen=True)
class Log:
    """Where `seltzer logs` finds a component's log: the container, and how to find the pod.

    deployment: any pod of its Deployment. lease: the pod that holds its Lease. node: the pod named like the Slurm node.
    """

    container: str
    pod: Literal["deployment", "lease", "node"] = "deployment"


def home(cluster: SlurmCluster) -> Sequence[str]:
    """The cluster's own namespace."""
    return (cluster.metadata.namespace,)


@dataclass(frozen=True)
class Component:
    """One part of a cluster. Its objects are named `<cluster>-<name>`, and its pods carry the name as a label."""

    name: str
    ports: Mapping[str, int]
    ingress: tuple[Ingress, ...]
    log: Log
    # Further Deployments, its variants. Their pods have these names as the component label.
    variants: Callable[[SlurmCluster], Sequence[str]] = lambda cluster: ()
    # The namespaces that its pods may be in.
    namespaces: Callable[[SlurmCluster], Sequence[str]] = home
    # Objects that are kept in this form by server-side apply.
    applied: Callable[[SlurmCluster, Images], list[Manifest]] = lambda cluster, images: []
    # Objects that are created if they are missing, and never changed.
    created_once: Callable[[SlurmCluster], list[Manifest]] = lambda cluster: []
    # The keys of its Secret, which is generated if it is missing, and never changed.
    secret: Mapping[str, GeneratedKey] = field(default_factory=dict)
    # For pods that mount its ConfigMap: the annotation that makes their kubelets sync a change at once.
    config_annotation: str = ""
    # Whether its pods mount the SSH keys of the users.
    mounts_user_keys: bool = False
    # None: it isn't part of the control plane, and the status of the SlurmCluster leaves it out.
    condition: Condition | None = None
    # Why the spec asks for no pods of it; empty: it asks for some.
    unwanted: Callable[[SlurmCluster], str] = lambda cluster: ""

    def named(self, cluster: SlurmCluster) -> str:
        """The name of its objects."""
        return names.of_component(cluster, self.name)

    def labels(self, cluster: SlurmCluster) -> tuple[str, ...]:
        """The component labels of its pods, one for each Deployment."""
        return (self.name, *self.variants(cluster))

    def finding(self, seen: ClusterObservation) -> Finding:
        """The current value of its condition."""
        assert self.condition, f"{self.name} has no condition"
        if why := self.unwanted(seen.cluster):
            return Finding(self.condition.type, "True", "NotWanted", why)
        return self.condition.judge(seen)
