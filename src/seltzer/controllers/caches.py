"""Everything that the operator knows of Kubernetes: a store for each source that a controller is registered with.

The reflectors run only while we lead. So what they first list has all that an earlier leader wrote, and an object that
isn't in a store doesn't exist: nobody but us makes what we look for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from seltzer.api.core import Lease, Pod
from seltzer.api.labels import CLUSTER, CLUSTER_NAMESPACE, NODESET
from seltzer.controllers.machines import Machines
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import HasMeta, Key, Resource, key_of
from seltzer.kube.store import Index, Store
from seltzer.plan.nodeset.membership import cluster_key

MANAGED: Final = "app.kubernetes.io/managed-by=seltzer"

T = TypeVar("T", bound=HasMeta)


@dataclass(frozen=True)
class Source(Generic[T]):
    """Objects of one kind: all of them, or those that a label selector matches.

    Equal sources share one store and one watch, whatever indices they name; the store has all of these.
    """

    resource: Resource[T]
    selector: str = ""
    indices: Mapping[str, Index[T]] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        kind = self.resource.kind
        return kind if self.selector in ("", MANAGED) else f"{kind} {self.selector}"


def managed(resource: Resource[T], **indices: Index[T]) -> Source[T]:
    """The objects of a kind that Seltzer makes; others take no memory."""
    return Source(resource, MANAGED, indices)


def _cluster(item: HasMeta) -> Sequence[str]:
    labels = item.metadata.labels
    name = labels.get(CLUSTER)
    return (f"{labels.get(CLUSTER_NAMESPACE, item.metadata.namespace)}/{name}",) if name else ()


def _nodeset(item: HasMeta) -> Sequence[str]:
    name = item.metadata.labels.get(NODESET)
    return (f"{item.metadata.namespace}/{name}",) if name else ()


def _on(pod: Pod) -> Sequence[str]:
    """The Kubernetes node that it is on."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


CLUSTERS: Final = Source(kinds.CLUSTERS)
NODESETS: Final = Source(kinds.NODESETS, indices={"cluster": lambda item: (str(cluster_key(item)),)})
NODES: Final = Source(kinds.NODES)
PODS: Final = managed(kinds.PODS, cluster=_cluster, nodeset=_nodeset, on=_on)
DEPLOYMENTS: Final = managed(kinds.DEPLOYMENTS)
CLAIMS: Final = managed(kinds.CLAIMS)
CONFIG_MAPS: Final = managed(kinds.CONFIG_MAPS, cluster=_cluster)
SECRETS: Final = managed(kinds.SECRETS)
LEASES: Final = managed(kinds.LEASES)
_SHARED: Final[tuple[Source[Any], ...]] = (
    *(CLUSTERS, NODESETS, NODES),
    *(PODS, DEPLOYMENTS, CLAIMS, CONFIG_MAPS, SECRETS, LEASES),
)


class Caches:
    """A store and a reflector for each source. The stores that several controllers read are attributes."""

    def __init__(self, client: Client, sources: Iterable[Source[Any]]) -> None:
        indices: dict[Source[Any], dict[str, Index[Any]]] = {}
        for source in (*_SHARED, *sources):
            indices.setdefault(source, {}).update(source.indices)
        self._stores: dict[Source[Any], Store[Any]] = {source: Store(each) for source, each in indices.items()}
        self._owned = {
            source.resource.kind: each for source, each in self._stores.items() if source.selector == MANAGED
        }
        self.reflectors = {source: _reflector(client, source, store) for source, store in self._stores.items()}
        self.clusters = self.store(CLUSTERS)
        self.nodesets = self.store(NODESETS)
        self.nodes = self.store(NODES)
        self.machines = Machines(self.nodes, self.reflectors[NODES].following_for)
        self.pods = self.store(PODS)
        self.deployments = self.store(DEPLOYMENTS)
        self.claims = self.store(CLAIMS)
        self.config_maps = self.store(CONFIG_MAPS)
        self.secrets = self.store(SECRETS)
        self.leases = self.store(LEASES)
        # Since when we look, by our clock: nothing is known from before.
        self.began = time.monotonic()
        self._heard: dict[Key, float] = {}  # when each Lease changed last, by our clock
        self.leases.watch(self._on_lease)

    def store(self, source: Source[T]) -> Store[T]:
        """The objects of a source that a controller is registered with."""
        return self._stores[source]

    def owned(self, kind: str) -> Store[Any]:
        """The objects of a kind that Seltzer makes."""
        return self._owned[kind]

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors.values():
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Everything is known once."""
        await asyncio.gather(*(reflector.synced.wait() for reflector in self.reflectors.values()))

    def silence(self, lease: Key) -> float:
        """For how many seconds it hasn't changed although we listened; one that isn't there hasn't been silent."""
        if lease not in self._heard:
            return 0.0
        return min(time.monotonic() - self._heard[lease], self.reflectors[LEASES].following_for())

    def _on_lease(self, before: Lease | None, after: Lease | None) -> None:
        if after:
            self._heard[key_of(after)] = time.monotonic()
        elif before:
            self._heard.pop(key_of(before), None)


def _reflector(client: Client, source: Source[T], store: Store[T]) -> Reflector[T]:
    selector = {"labelSelector": source.selector} if source.selector else None
    return Reflector(client, source.resource, store, selector=selector)
