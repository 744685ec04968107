"""The operator: wait for the lead, look at everything, and make it so until the lead is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from seltzer.api.core import Pod
from seltzer.build import names
from seltzer.build.images import Images
from seltzer.controllers import metrics
from seltzer.controllers.caches import Caches
from seltzer.controllers.children import Children
from seltzer.controllers.cluster import ClusterController
from seltzer.controllers.nodeset import NodeSetController
from seltzer.controllers.slurm_connection import Route, SlurmConnections
from seltzer.kube.client import Client
from seltzer.kube.controller import Controller, Outcome
from seltzer.kube.events import Recorder
from seltzer.kube.resource import Key
from seltzer.plan import pod_state
from seltzer.slurm.nodes import Change

logger = logging.getLogger(__name__)


class Operator:
    """Everything that runs while we lead. Made anew for each term: nothing of an earlier one is believed."""

    def __init__(
        self, client: Client, route: Route, may_write: Callable[[], None], images: Images, *, settle: float = 0.05
    ) -> None:
        self._clusters = Controller("slurmcluster", self._cluster_pass, settle=settle, last_delay=20.0)
        self._nodesets = Controller("nodeset", self._nodeset_pass, settle=settle, last_delay=20.0)
        self.caches = Caches(client, self._clusters.changed, self._nodesets.changed, self._nodesets.hurry)
        self.connections = SlurmConnections(route, may_write, self._slurm_changed)
        children, recorder = Children(self.caches), Recorder(client, "seltzer")
        parts = (client, self.caches, children, self.connections, recorder, images)
        self._cluster = ClusterController(*parts)
        self._nodeset = NodeSetController(*parts)
        self.caches.pods.watch(self._on_pod)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.caches.run())
                # Nothing is decided before everything is known.
                await self.caches.synced()
                for kind, reflector in self.caches.reflectors.items():
                    metrics.stale.labels(kind).set_function(reflector.stale_for)
                logger.info("leading; %d clusters, %d node sets", len(self.caches.clusters), len(self.caches.nodesets))
                group.create_task(self._clusters.run())
                group.create_task(self._nodesets.run())
        finally:
            await self.connections.close_all()

    async def _cluster_pass(self, key: Key) -> Outcome:
        return await self._cluster.reconcile(key)

    async def _nodeset_pass(self, key: Key) -> Outcome:
        return await self._nodeset.reconcile(key)

    def _slurm_changed(self, cluster: Key, change: Change | None) -> None:
        self._clusters.changed(cluster)
        # Also if only that is new that Slurm can be asked: a NodeSet may have waited for that, and have no node yet.
        if change is not None:
            self.caches.tell_nodesets(cluster)

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        """A slurmd that has just become ready registers now: ask at once instead of a second later."""
        if after is None or after.metadata.labels.get(names.COMPONENT) != "slurmd":
            return
        if pod_state.ready(after) and not (before and pod_state.ready(before)):
            labels = after.metadata.labels
            connection = self.connections.get(
                Key(labels.get(names.CLUSTER_NAMESPACE, ""), labels.get(names.CLUSTER, ""))
            )
            if connection:
                connection.cache.wake()
