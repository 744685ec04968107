"""A cluster's controller as Kubernetes knows it: who holds its Lease, and on which nodes its pods are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seltzer.api.core import Pod
from seltzer.build.names import CLUSTER, COMPONENT
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import NotFound
from seltzer.plan.cluster.guard_report import GuardReport


@dataclass(frozen=True)
class ControllerFacts:
    """What there is right now."""

    told: GuardReport
    pods: Mapping[str, Pod]

    @property
    def active(self) -> Pod | None:
        """The pod in charge; None where nobody is, or its pod is gone."""
        return self.pods.get(self.told.holder)

    def where(self, name: str) -> str:
        """A pod with its node, as far as it is known."""
        node = self.node(name)
        return f"{name} on {node}" if node else name

    def node(self, name: str) -> str:
        pod = self.pods.get(name)
        return pod.spec.node_name if pod else ""


async def look(client: Client, namespace: str, cluster: str) -> ControllerFacts:
    """Ask for the Lease and the pods."""
    try:
        lease = await client.get(kinds.LEASES, f"{cluster}-slurmctld", namespace)
    except NotFound:
        lease = None
    params = {"labelSelector": f"{CLUSTER}={cluster},{COMPONENT}=slurmctld"}
    found = await client.list_all(kinds.PODS, namespace, params=params)
    return ControllerFacts(GuardReport(lease), {pod.metadata.name: pod for pod in found.items})


async def target(client: Client, namespace: str, cluster: str) -> str:
    """What to tell kubectl to reach the slurmctld in charge; where nobody is, any pod that there is."""
    seen = await look(client, namespace, cluster)
    return f"pod/{seen.told.holder}" if seen.active else f"deployment/{cluster}-slurmctld"
