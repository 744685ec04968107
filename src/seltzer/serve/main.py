"""Runs the operator: one of several candidates for leadership, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import dataclass, field

from seltzer.build.images import Images
from seltzer.controllers import metrics
from seltzer.controllers.operator import Operator
from seltzer.controllers.slurm_connection import Route
from seltzer.kube.client import Client
from seltzer.kube.config import Config
from seltzer.kube.errors import KubeError
from seltzer.kube.lease import Election, Times
from seltzer.kube.resource import Key
from seltzer.serve.health import serving

logger = logging.getLogger(__name__)

NAME = "seltzer-operator"
# A dead leader is replaced within eleven seconds; a leader that is asked to stop hands over at once.
TIMES = Times(duration=10.0, renew=2.0, retry=1.0, margin=2.0)
_CHECK = 5.0


@dataclass(frozen=True)
class Settings:
    """The settings of the process."""

    config: Config
    namespace: str
    identity: str
    images: Images = field(default_factory=Images)
    port: int = 8080
    # Reach Slurm through the API server, from outside of the Kubernetes cluster.
    outside: bool = False
    times: Times = TIMES


async def run(settings: Settings) -> None:
    """Run until SIGTERM or Ctrl-C."""
    task = asyncio.current_task()
    assert task
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, task.cancel)
    try:
        async with Client(settings.config) as lease_client, asyncio.TaskGroup() as group:
            state = _State()
            health = group.create_task(_health(settings, lease_client, state))
            try:
                await _stand(settings, lease_client, state)
            finally:
                health.cancel()
    except asyncio.CancelledError:
        logger.info("stopped")


class _State:
    """Whether the API server was reachable at the last check."""

    amiss = "the API server has not been contacted yet"


async def _health(settings: Settings, client: Client, state: _State) -> None:
    async with serving(settings.port, lambda: state.amiss):
        while True:
            try:
                await client.call("GET", "/version", deadline=_CHECK)
                state.amiss = ""
            except KubeError as error:
                state.amiss = str(error)
            await asyncio.sleep(_CHECK)


async def _stand(settings: Settings, lease_client: Client, state: _State) -> None:
    """Stand for election, and run the operator while elected."""
    election = Election(lease_client, Key(settings.namespace, NAME), settings.identity, settings.times)
    metrics.leading.set_function(lambda: float(election.leading))
    route = Route(settings.config.server, settings.config.tls) if settings.outside else Route()

    async def lead() -> None:
        async with Client(settings.config, may_write=election.may_write) as client:
            await Operator(client, route, election.may_write, settings.images).run()

    await election.run(lead)
