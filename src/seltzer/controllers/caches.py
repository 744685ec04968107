"""The operator's view of Kubernetes: a store for each selection that a controller is registered with.

The reflectors run only while we lead. Their first list therefore contains all writes of an earlier leader, and an
object that isn't in a store doesn't exist: only we create the objects that we look for.
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
from seltzer.controllers.user_sources import UserSources
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import HasMeta, Key, Resource, key_of
from seltzer.kube.store import Index, Store
from seltzer.plan.nodeset.membership import cluster_key

MANAGED: Final = "app.kubernetes.io/managed-by=seltzer"

T = TypeVar("T", bound=HasMeta)


@dataclass(frozen=True)
class Selection(Generic[T]):
    """Objects of one kind: all of them, or those that a label selector matches.

    Equal selections share one store and one watch. The store has the indices of all of them.
    """

    resource: Resource[T]
    selector: str = ""
    indices: Mapping[str, Index[T]] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        kind = self.resource.kind
        return kind if self.selector in ("", MANAGED) else f"{kind} {self.selector}"


def managed(resource: Resource[T], **indices: Index[T]) -> Selection[T]:
    """The objects of a kind that Seltzer creates. Others take no memory."""
    return Selection(resource, MANAGED, indices)


def _cluster(item: HasMeta) -> Sequence[str]:
    labels = item.metadata.labels
    name = labels.get(CLUSTER)
    return (f"{labels.get(CLUSTER_NAMESPACE, item.metadata.namespace)}/{name}",) if name else ()


def _nodeset(item: HasMeta) -> Sequence[str]:
    name = item.metadata.labels.get(NODESET)
    return (f"{item.metadata.namespace}/{name}",) if name else ()


def _machine(pod: Pod) -> Sequence[str]:
    """The Kubernetes node of the pod."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


CLUSTERS: Final = Selection(kinds.CLUSTERS)
NODESETS: Final = Selection(kinds.NODESETS, indices={"cluster": lambda item: (str(cluster_key(item)),)})
NODES: Final = Selection(kinds.NODES)
PODS: Final = managed(kinds.PODS, cluster=_cluster, nodeset=_nodeset, on=_machine)
DEPLOYMENTS: Final = managed(kinds.DEPLOYMENTS, cluster=_cluster)
SERVICES: Final = managed(kinds.SERVICES, cluster=_cluster)
POLICIES: Final = managed(kinds.POLICIES, cluster=_cluster)
CLAIMS: Final = managed(kinds.CLAIMS)
# Users' own claims too: pods wait forever for a claim that doesn't exist.
ALL_CLAIMS: Final = Selection(kinds.CLAIMS)
CONFIG_MAPS: Final = managed(kinds.CONFIG_MAPS, cluster=_cluster)
SECRETS: Final = managed(kinds.SECRETS)
LEASES: Final = managed(kinds.LEASES)
VARIED: Final[tuple[Selection[Any], ...]] = (DEPLOYMENTS, SERVICES, CONFIG_MAPS, POLICIES)
"""The kinds of objects that each variant of a component has."""
_SHARED: Final[tuple[Selection[Any], ...]] = (
    *(CLUSTERS, NODESETS, NODES, ALL_CLAIMS),
    *(PODS, CLAIMS, SECRETS, LEASES),
    *VARIED,
)


class Caches:
    """A store and a reflector for each selection. The stores that several controllers read are attributes."""

    def __init__(self, client: Client, selections: Iterable[Selection[Any]]) -> None:
        indices: dict[Selection[Any], dict[str, Index[Any]]] = {}
        for selection in (*_SHARED, *selections):
            indices.setdefault(selection, {}).update(selection.indices)
        self._stores: dict[Selection[Any], Store[Any]] = {selection: Store(each) for selection, each in indices.items()}
        self._owned = {
            selection.resource.kind: each for selection, each in self._stores.items() if selection.selector == MANAGED
        }
        self.reflectors = {selection: _reflector(client, selection, store) for selection, store in self._stores.items()}
        self.clusters = self.store(CLUSTERS)
        self.nodesets = self.store(NODESETS)
        self.nodes = self.store(NODES)
        self.machines = Machines(self.nodes, self.reflectors[NODES].following_for)
        self.pods = self.store(PODS)
        self.deployments = self.store(DEPLOYMENTS)
        self.claims = self.store(CLAIMS)
        self.all_claims = self.store(ALL_CLAIMS)
        self.config_maps = self.store(CONFIG_MAPS)
        self.secrets = self.store(SECRETS)
        self.leases = self.store(LEASES)
        self.user_sources = UserSources(client)
        # Since when we observe, by our clock: nothing is known from before.
        self.began = time.monotonic()
        self._lease_changed: dict[Key, float] = {}  # the time of each Lease's last change, by our clock
        self.leases.watch(self._on_lease)

    def store(self, selection: Selection[T]) -> Store[T]:
        """The objects of a selection that a controller is registered with."""
        return self._stores[selection]

    def owned(self, kind: str) -> Store[Any]:
        """The objects of a kind that Seltzer creates."""
        return self._owned[kind]

    async def run(self) -> None:
        """Runs the reflectors until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors.values():
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Returns when every store has its first list."""
        await asyncio.gather(*(reflector.synced.wait() for reflector in self.reflectors.values()))

    def silence(self, lease: Key) -> float:
        """For how many seconds a Lease hasn't changed while our watch worked; 0 for a Lease that doesn't exist."""
        if lease not in self._lease_changed:
            return 0.0
        return min(time.monotonic() - self._lease_changed[lease], self.reflectors[LEASES].following_for())

    def _on_lease(self, before: Lease | None, after: Lease | None) -> None:
        if after:
            self._lease_changed[key_of(after)] = time.monotonic()
        elif before:
            self._lease_changed.pop(key_of(before), None)


def _reflector(client: Client, selection: Selection[T], store: Store[T]) -> Reflector[T]:
    selector = {"labelSelector": selection.selector} if selection.selector else None
    return Reflector(client, selection.resource, store, selector=selector)
