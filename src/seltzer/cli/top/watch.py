"""The Kubernetes objects of a cluster, kept up to date by watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from seltzer.api.core import Pod
from seltzer.api.labels import CLUSTER, CLUSTER_NAMESPACE, COMPONENT
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import gather, kube
from seltzer.kube import kinds
from seltzer.kube.backoff import Backoff
from seltzer.kube.client import Client
from seltzer.kube.errors import Forbidden, ServerError, Unavailable
from seltzer.kube.reflector import SILENCE, Reflector
from seltzer.kube.resource import HasMeta, Resource
from seltzer.kube.store import Index, Store
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.slurm.snapshot import Snapshot
from seltzer.view import events
from seltzer.view.controller import ControllerFacts
from seltzer.view.facts import Facts

H = TypeVar("H", bound=HasMeta)
_INDEX: Mapping[str, Index[Pod]] = {COMPONENT: lambda pod: (pod.metadata.labels.get(COMPONENT, ""),)}


class Watched:
    """The objects of a cluster, in the namespaces that it allows at the start. Calls `changed` after every change."""

    def __init__(self, client: Client, cluster: SlurmCluster, changed: Callable[[], None]) -> None:
        self._client, self._changed = client, changed
        self._cluster = cluster
        self._reflectors: dict[str, tuple[Reflector[Any], Store[Any]]] = {}
        home, name = cluster.metadata.namespace, cluster.metadata.name
        spaces = dict.fromkeys((home, *cluster.spec.node_sets.namespaces))
        ours = {"labelSelector": f"{CLUSTER}={name},{CLUSTER_NAMESPACE}={home}"}
        self._clusters = self._watch("the SlurmCluster", kinds.CLUSTERS, home, _named(name))
        self._leases = self._watch("slurmctld's Lease", kinds.LEASES, home, _named(f"{name}-slurmctld"))
        self._machines = self._watch("Kubernetes' nodes", kinds.NODES)
        self._pods = [self._watch(f"the pods in namespace {each}", kinds.PODS, each, ours, _INDEX) for each in spaces]
        self._nodesets = [self._watch(f"the NodeSets in namespace {each}", kinds.NODESETS, each) for each in spaces]
        self._events = [
            self._watch(f"the Events in namespace {each}", gather.EVENTS, each, gather.OURS) for each in spaces
        ]

    def _watch(
        self,
        what: str,
        resource: Resource[H],
        namespace: str = "",
        selector: Mapping[str, str] | None = None,
        indices: Mapping[str, Index[H]] | None = None,
    ) -> Store[H]:
        store: Store[H] = Store(indices)
        store.watch(lambda before, after: self._changed())
        # Short: somebody is watching.
        backoff = Backoff(first=0.2, last=3.0)
        reflector = Reflector(
            self._client, resource, store, namespace=namespace, selector=selector, backoff=backoff
        )  # fmt: skip
        self._reflectors[what] = (reflector, store)
        return store

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector, _ in self._every():
                tasks.create_task(reflector.run())

    @property
    def complete(self) -> bool:
        """Whether everything that we may see has been listed once."""
        return all(store.synced or isinstance(reflector.error, Forbidden) for reflector, store in self._every())

    @property
    def trouble(self) -> str:
        """Why the objects may be stale; empty if they aren't. Kinds that we may not see are gaps, no trouble."""
        failed = [each for each, _ in self._every() if each.error and not isinstance(each.error, Forbidden)]
        away = [str(each.error) for each in failed if _is_away(each) or each.stale_for() > SILENCE]
        gone = self._clusters.synced and not len(self._clusters)
        return away[0] if away else f"the SlurmCluster {self._cluster.metadata.name} is gone" if gone else ""

    def _every(self) -> Iterable[tuple[Reflector[Any], Store[Any]]]:
        return self._reflectors.values()

    @property
    def slurmctld(self) -> str:
        """The argument that leads kubectl to the slurmctld in charge."""
        return self.controller.target(self._cluster.metadata.name)

    @property
    def controller(self) -> ControllerFacts:
        """The controller's Lease and pods."""
        return ControllerFacts(GuardReport(next(iter(self._leases), None)), self._pods_of("slurmctld"))

    def _pods_of(self, component: str) -> dict[str, Pod]:
        return {pod.metadata.name: pod for store in self._pods for pod in store.by(COMPONENT, component)}

    def facts(self, slurm: Snapshot | None) -> Facts:
        """The facts, with Slurm's last answer."""
        self._cluster = next(iter(self._clusters), self._cluster)
        nodesets = [each for store in self._nodesets for each in store if kube.belongs(each, self._cluster)]
        happened = [each for store in self._events for each in store]
        return Facts(
            self._cluster,
            datetime.now(UTC),
            nodesets,
            self._pods_of("slurmd") if all(store.synced for store in self._pods) else None,
            {each.metadata.name: each for each in self._machines} if self._machines.synced else None,
            self.controller,
            events.of_cluster(happened, self._cluster, nodesets),
            slurm,
            gaps=self._gaps(),
        )

    def _gaps(self) -> Sequence[str]:
        refused = ((what, each.error) for what, (each, _) in self._reflectors.items())
        return [f"{what} can't be seen: {error}" for what, error in refused if isinstance(error, Forbidden)]


def _is_away(reflector: Reflector[Any]) -> bool:
    return isinstance(reflector.error, Unavailable | ServerError)


def _named(name: str) -> dict[str, str]:
    return {"fieldSelector": f"metadata.name={name}"}
