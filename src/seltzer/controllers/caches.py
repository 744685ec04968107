"""Everything that the operator knows of Kubernetes: one store for each kind, and who is told when it changes.

The reflectors run only while we lead. So what they first list has all that an earlier leader wrote, and an object that
isn't in a store doesn't exist: nobody but us makes what we look for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from seltzer.api.core import Anything, ConfigMap, Deployment, Lease, Node, PersistentVolumeClaim, Pod, Secret
from seltzer.api.labels import CLUSTER, CLUSTER_NAMESPACE, NODESET
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.controllers.machines import Machines
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import HasMeta, Key, Resource
from seltzer.kube.store import Store
from seltzer.plan.nodeset.membership import cluster_key

MANAGED = {"labelSelector": "app.kubernetes.io/managed-by=seltzer"}

Changed = Callable[[Key], None]


class Caches:
    """The stores. `cluster_changed` and `nodeset_changed` are called with the key of what has to be looked at.

    `nodeset_hurries` is called instead when a Kubernetes node of its pods has changed: no job should start there now.
    """

    def __init__(
        self, client: Client, cluster_changed: Changed, nodeset_changed: Changed, nodeset_hurries: Changed
    ) -> None:
        self._cluster_changed = cluster_changed
        self._nodeset_changed = nodeset_changed
        self._nodeset_hurries = nodeset_hurries
        self.clusters: Store[SlurmCluster] = Store()
        self.nodesets: Store[NodeSet] = Store({"cluster": lambda item: (str(cluster_key(item)),)})
        self.pods: Store[Pod] = Store({"cluster": _cluster, "nodeset": _nodeset, "on": _on})
        self.nodes: Store[Node] = Store()
        self.machines = Machines(self.nodes, self._on_machine, lambda: self.reflectors["Node"].following_for())
        self.deployments: Store[Deployment] = Store()
        self.claims: Store[PersistentVolumeClaim] = Store()
        self.config_maps: Store[ConfigMap] = Store({"cluster": _cluster})
        self.secrets: Store[Secret] = Store()
        self.leases: Store[Lease] = Store()
        # Since when we look, by our clock: nothing is known from before.
        self.began = time.monotonic()
        self._heard: dict[Key, float] = {}  # when each Lease changed last, by our clock
        others: dict[str, Store[Anything]] = {
            each.kind: Store()
            for each in (
                kinds.SERVICES,
                kinds.ACCOUNTS,
                kinds.ROLES,
                kinds.BINDINGS,
                kinds.POLICIES,
                kinds.BUDGETS,
                kinds.SLICES,
            )
        }
        self.stores: dict[str, Store[Any]] = {
            "SlurmCluster": self.clusters,
            "NodeSet": self.nodesets,
            "Pod": self.pods,
            "Node": self.nodes,
            "Deployment": self.deployments,
            "PersistentVolumeClaim": self.claims,
            "ConfigMap": self.config_maps,
            "Secret": self.secrets,
            "Lease": self.leases,
            **others,
        }
        self.reflectors = {kind: self._reflector(client, kinds.BY_KIND[kind]) for kind in self.stores}
        self._wire()

    def _reflector(self, client: Client, resource: Resource[Any]) -> Reflector[Any]:
        selector = None if resource in (kinds.CLUSTERS, kinds.NODESETS, kinds.NODES) else MANAGED
        return Reflector(client, resource, self.stores[resource.kind], selector=selector)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors.values():
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Everything is known once."""
        await asyncio.gather(*(reflector.synced.wait() for reflector in self.reflectors.values()))

    # --- who is told ----------------------------------------------------------------------------------------------

    def _wire(self) -> None:
        self.clusters.watch(self._on_cluster)
        self.nodesets.watch(self._on_nodeset)
        self.leases.watch(self._on_lease)
        for kind, store in self.stores.items():
            if kind not in ("SlurmCluster", "NodeSet", "Lease", "Node"):
                store.watch(self._on_child)

    def _on_cluster(self, before: SlurmCluster | None, after: SlurmCluster | None) -> None:
        item = after or before
        assert item
        key = Key(item.metadata.namespace, item.metadata.name)
        self._cluster_changed(key)
        if before is None or after is None or _differs(before, after):
            self.tell_nodesets(key)

    def _on_nodeset(self, before: NodeSet | None, after: NodeSet | None) -> None:
        item = after or before
        assert item
        self._nodeset_changed(Key(item.metadata.namespace, item.metadata.name))
        # Its cluster's configuration and its neighbours' acceptance depend on the spec, not on the status.
        if before is None or after is None or _differs(before, after):
            self._cluster_changed(cluster_key(item))
            self.tell_nodesets(cluster_key(item))

    def tell_nodesets(self, cluster: Key) -> None:
        """All NodeSets of a cluster have to be looked at."""
        for nodeset in self.nodesets.by("cluster", str(cluster)):
            self._nodeset_changed(Key(nodeset.metadata.namespace, nodeset.metadata.name))

    def silence(self, lease: Key) -> float:
        """For how many seconds it hasn't changed although we listened; one that isn't there hasn't been silent."""
        if lease not in self._heard:
            return 0.0
        return min(time.monotonic() - self._heard[lease], self.reflectors["Lease"].following_for())

    def _on_lease(self, before: Lease | None, after: Lease | None) -> None:
        item = after or before
        assert item
        key = Key(item.metadata.namespace, item.metadata.name)
        if after:
            self._heard[key] = time.monotonic()
        else:
            self._heard.pop(key, None)
        # It is renewed every second; only what the guard tells matters here.
        if before and after and _told(before) == _told(after):
            return
        self._on_child(before, after)

    def _on_machine(self, name: str) -> None:
        pods = self.pods.by("on", name)
        for value in {value for pod in pods for value in _nodeset(pod)}:
            namespace, _, nodeset = value.partition("/")
            self._nodeset_hurries(Key(namespace, nodeset))
        for pod in pods:
            if not _nodeset(pod):
                self._on_child(pod, pod)

    def _on_child(self, before: HasMeta | None, after: HasMeta | None) -> None:
        item = after or before
        assert item
        for value in _nodeset(item):
            namespace, _, name = value.partition("/")
            self._nodeset_changed(Key(namespace, name))
        for value in _cluster(item):
            namespace, _, name = value.partition("/")
            # What a cluster tells of its nodes comes from Slurm; only one that is being deleted waits for their pods.
            if not _nodeset(item) or (after is None and self._is_closing(Key(namespace, name))):
                self._cluster_changed(Key(namespace, name))
                if after is None and not _nodeset(item):
                    # A part of the control plane is gone: nodes that wait for Slurm may wait for nobody.
                    self.tell_nodesets(Key(namespace, name))

    def _is_closing(self, cluster: Key) -> bool:
        found = self.clusters.get(cluster)
        return found is None or found.metadata.deletion_timestamp is not None


def _differs(before: HasMeta, after: HasMeta) -> bool:
    """In its spec, or in whether it is being deleted."""
    return (before.metadata.generation, before.metadata.deletion_timestamp) != (
        after.metadata.generation,
        after.metadata.deletion_timestamp,
    )


def _told(lease: Lease) -> object:
    return (lease.spec.holder_identity, lease.metadata.annotations)


def _cluster(item: HasMeta) -> Sequence[str]:
    labels = item.metadata.labels
    name = labels.get(CLUSTER)
    return (f"{labels.get(CLUSTER_NAMESPACE, item.metadata.namespace)}/{name}",) if name else ()


def _on(pod: Pod) -> Sequence[str]:
    """The Kubernetes node that it is on."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _nodeset(item: HasMeta) -> Sequence[str]:
    name = item.metadata.labels.get(NODESET)
    return (f"{item.metadata.namespace}/{name}",) if name else ()
