"""The operator: it waits for the lead, reads everything once, and runs the controllers until the lead is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from seltzer.api.core import Pod
from seltzer.build.images import Images
from seltzer.controllers import metrics, watches
from seltzer.controllers.caches import Caches
from seltzer.controllers.children import Children
from seltzer.controllers.registration import Registration, Shared
from seltzer.controllers.slurm_connection import Route, SlurmConnections
from seltzer.kube.client import Client
from seltzer.kube.controller import Controller
from seltzer.kube.events import Recorder
from seltzer.kube.resource import Key
from seltzer.slurm.nodes import Change

logger = logging.getLogger(__name__)

CONTROLLERS: Final[tuple[Registration, ...]] = (watches.CLUSTER, watches.NODESET)


class Operator:
    """Everything that runs while we lead. Each term begins with a new one: nothing of an earlier term is trusted."""

    def __init__(
        self, client: Client, route: Route, may_write: Callable[[], None], images: Images, *, settle: float = 0.05
    ) -> None:
        self.caches = Caches(client, (each.selection for one in CONTROLLERS for each in one.all_watches()))
        self.connections = SlurmConnections(route, may_write, self._slurm_changed)
        recorder = Recorder(client, "seltzer")
        shared = Shared(client, self.caches, Children(self.caches), self.connections, recorder, images)
        self._controllers: list[tuple[Registration, Controller]] = []
        for registration in CONTROLLERS:
            made = registration.make(shared)
            controller = Controller(registration.name, made.reconcile, settle=settle, last_delay=20.0)
            registration.wire(self.caches, controller)
            self._controllers.append((registration, controller))
        self.caches.pods.watch(self._on_pod)
        self.caches.user_sources.watch(self._users_changed)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.caches.run())
                # Nothing is decided before everything is known.
                await self.caches.synced()
                for source, reflector in self.caches.reflectors.items():
                    metrics.stale.labels(str(source)).set_function(reflector.stale_for)
                logger.info("leading; %d clusters, %d node sets", len(self.caches.clusters), len(self.caches.nodesets))
                for _, controller in self._controllers:
                    group.create_task(controller.run())
        finally:
            await self.caches.user_sources.close_all()
            await self.connections.close_all()

    def _slurm_changed(self, cluster: Key, change: Change | None) -> None:
        for registration, controller in self._controllers:
            for key in registration.slurm(self.caches, cluster, change):
                controller.changed(key)

    def _users_changed(self, cluster: Key) -> None:
        for registration, controller in self._controllers:
            for key in registration.users(cluster):
                controller.changed(key)

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Ask Slurm at once instead of a second later."""
        for registration, _ in self._controllers:
            cluster = registration.slurm_news(before, after)
            if cluster and (connection := self.connections.get(cluster)):
                connection.cache.wake()
