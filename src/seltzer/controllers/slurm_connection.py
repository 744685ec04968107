"""One cluster's Slurm, for as long as the cluster exists: what is known of it, and how to change it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from seltzer.api.slurmcluster import JobCounts, SlurmCluster
from seltzer.build import names
from seltzer.build.components import slurmctld, slurmd, slurmrestd
from seltzer.controllers import metrics
from seltzer.controllers.slurm_feeds import AnswerFeed, Deadlines
from seltzer.controllers.slurmd_probe import SlurmdProbe
from seltzer.kube.resource import Key, key_of
from seltzer.slurm import hostlist, jobs
from seltzer.slurm import metrics as slurm_metrics
from seltzer.slurm.client import SlurmClient
from seltzer.slurm.errors import SlurmError, Unavailable
from seltzer.slurm.http import Http
from seltzer.slurm.nodes import Change, NodeCache, Pace, View
from seltzer.slurm.token import TokenSource
from seltzer.wire import guard_api

logger = logging.getLogger(__name__)

T = TypeVar("T")
JOBS_EVERY = 5.0
# "Nothing changed" takes slurmctld a few milliseconds, and people feel half a second as at once.
PACE = Pace(busy=1.0, idle=0.5)
# The guard gives up earlier and says why: squeue after 10 s, a question about addresses after 5 s.
_GUARD_DEADLINE = 12.0


@dataclass(frozen=True)
class Route:
    """How to reach a Service of a cluster: directly from inside Kubernetes, or through the API server from outside."""

    proxy: str = ""
    tls: ssl.SSLContext | None = None
    # Replaces the clusters' own addresses, for tests with a Slurm of their own.
    fixed: Mapping[int, str] | None = None

    def http(self, namespace: str, service: str, port: int, *, pod: str = "", deadline: float = 15.0) -> Http:
        """`pod` is the pod behind a Service without a selector: the API server's proxy doesn't find it."""
        if self.fixed is not None:
            return Http(self.fixed[port], deadline=deadline)
        if self.proxy:
            whom = f"pods/{pod}" if pod else f"services/{service}"
            base = f"{self.proxy}/api/v1/namespaces/{namespace}/{whom}:{port}/proxy"
            return Http(base, tls=self.tls, deadline=deadline)
        return Http(f"http://{service}.{namespace}.svc:{port}", deadline=deadline)


@dataclass(frozen=True)
class Secrets:
    """What only Kubernetes knows: the key that signs our tokens, and which pod is the controller. Read when needed."""

    jwt_key: Callable[[], bytes]
    controller: Callable[[], str]


class SlurmConnection:
    """What is known of one Slurm. `run` keeps it up to date and raises nothing."""

    def __init__(
        self,
        cluster: SlurmCluster,
        secrets: Secrets,
        route: Route,
        may_write: Callable[[], None],
        changed: Callable[[Change | None], None],
    ) -> None:
        """`changed` is called with the nodes that changed, or with None if only the numbers of jobs did. A change that
        names no node is another answer of a feed."""
        self.key = key_of(cluster)
        namespace = cluster.metadata.namespace
        self._service = names.controller(cluster)
        self._route = route
        self._secrets = secrets
        self._tokens = TokenSource(secrets.jwt_key)
        rest = route.http(namespace, slurmrestd.COMPONENT.named(cluster), slurmrestd.PORT)
        self._client = SlurmClient(rest, self._tokens)
        self._may_write = may_write
        self._changed = changed
        self._written = 0.0
        self._jobs: tuple[float, JobCounts] | None = None
        self.cache = NodeCache(self._client, PACE)
        self.cache.watch(changed)
        self.cache.watch(self._on_nodes)
        self._started = time.monotonic()
        # The nodes that waiting jobs ask for by name, and how many jobs of a partition haven't ended.
        self.named: AnswerFeed[None, frozenset[str]] = AnswerFeed(self._ask_named, lambda: changed(Change()))
        self.queued: AnswerFeed[str, int] = AnswerFeed(self._ask_queued, lambda: changed(Change()))
        self.deadlines = Deadlines(self._ask_deadlines, self._busy, lambda names: changed(Change(names)))
        self._probe = SlurmdProbe(self._who_answers, lambda: changed(Change()))

    @property
    def view(self) -> View | None:
        """Slurm's nodes, including all that we wrote; None if they are unknown."""
        view = self.cache.view
        return view if view is not None and view.asked >= self._written else None

    @property
    def unknown_for(self) -> float:
        """For how many seconds Slurm couldn't be asked; 0 while it can."""
        if self.view is not None:
            return 0.0
        age = self.cache.age
        return time.monotonic() - self._started if age is None else age

    @property
    def failure(self) -> str:
        return str(self.cache.failure) if self.cache.failure else ""

    @property
    def jobs(self) -> JobCounts | None:
        """How many jobs there are; None if that isn't known."""
        if self._jobs is None or time.monotonic() - self._jobs[0] > self.cache.pace.stale:
            return None
        return self._jobs[1]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.cache.run())
            group.create_task(self._count_jobs())
            group.create_task(self.named.run())
            group.create_task(self.queued.run())
            group.create_task(self.deadlines.run())
            group.create_task(self._probe.run())

    async def _count_jobs(self) -> None:
        while True:
            with contextlib.suppress(SlurmError):
                counts = await slurm_metrics.job_counts(self._controller(slurmctld.PORT))
                found = JobCounts(running=counts.running, pending=counts.pending)
                before, self._jobs = self._jobs, (time.monotonic(), found)
                if before is None or before[1] != found:
                    self._changed(None)
            await asyncio.sleep(JOBS_EVERY)

    def _on_nodes(self, change: Change) -> None:
        nodes, known = self.cache.view.nodes if self.cache.view else {}, self.deadlines.free_at
        if any(name in known or (name in nodes and nodes[name].occupied) for name in change.names):
            self.deadlines.jobs_changed()

    def _busy(self) -> frozenset[str]:
        view = self.cache.view
        return frozenset(name for name, node in view.nodes.items() if node.occupied) if view else frozenset()

    async def fresh(self, within: float = 0.0) -> View | None:
        """Ask now, unless the nodes are at most `within` seconds old and include our writes; None without an answer."""
        asked = time.monotonic()
        if within and self.view is not None and asked - self.view.asked <= within:
            return self.view
        with metrics.slurm_call("nodes"):
            await self.cache.poll()
        view = self.cache.view
        return view if view is not None and view.asked >= asked else None

    async def write(self, what: str, call: Callable[[SlurmClient], Awaitable[T]]) -> T:
        """Change something. Until it is read back, the nodes count as unknown."""
        self._may_write()
        try:
            with metrics.slurm_call(what):
                return await call(self._client)
        finally:
            self._written = time.monotonic()
            self.cache.changed()

    async def _ask_deadlines(self, nodes: Collection[str]) -> dict[str, float | None]:
        """When the last job on each of these nodes reaches its limit; None for a job without a limit."""
        if not nodes:
            return {}
        text = await self._ask_guard(guard_api.jobs(hostlist.fold(nodes)))
        now, wanted = time.time(), frozenset(nodes)
        longest: dict[str, float | None] = {}
        for job in jobs.parse(text):
            at = None if job.seconds_left is None else now + job.seconds_left
            for name in wanted.intersection(job.nodes):
                known = longest.get(name, 0.0)
                longest[name] = None if at is None or known is None else max(at, known)
        return longest

    def answers(self, nodes: Mapping[str, str]) -> Mapping[str, bool]:
        """Whether these nodes, given with their addresses, answer slurmctld's pod. Unknown ones are left out.

        This never waits. Unknown nodes are asked, and `changed` is called when they have answered or timed out.
        """
        return self._probe.answers(nodes)

    async def _who_answers(self, addresses: Sequence[str]) -> list[str] | None:
        try:
            return (await self._ask_guard(guard_api.alive(slurmd.PORT, addresses))).split()
        except SlurmError as error:
            logger.warning("%s: which nodes answer isn't known: %s", self.key, error)
            return None

    async def _ask_named(self, _: None) -> frozenset[str] | None:
        try:
            return jobs.parse_named(await self._ask_guard(guard_api.NAMED))
        except SlurmError as error:
            logger.warning("%s: which nodes waiting jobs name isn't known: %s", self.key, error)
            return None

    async def _ask_queued(self, partition: str) -> int | None:
        try:
            return await slurm_metrics.jobs_in_partition(self._controller(slurmctld.PORT), partition)
        except SlurmError as error:
            logger.warning("%s: how many jobs wait in %s isn't known: %s", self.key, partition, error)
            return None

    async def _ask_guard(self, path: str) -> str:
        """Ask slurmctld's guard, which runs squeue: lists of jobs take a minute over REST."""
        with metrics.slurm_call("jobs"):
            headers = {guard_api.AUTHORIZATION: self._tokens.token()}
            answer = await self._controller(slurmctld.GUARD_PORT).exchange("GET", path, headers=headers)
        if answer.status != 200:
            raise Unavailable(f"the guard answered with {answer.status}: {answer.gist}")
        return answer.body.decode(errors="replace")

    def _controller(self, port: int) -> Http:
        """The pod that is the controller now."""
        pod = self._secrets.controller()
        return self._route.http(self.key.namespace, self._service, port, pod=pod, deadline=_GUARD_DEADLINE)


class SlurmConnections:
    """The connections of all clusters."""

    def __init__(
        self, route: Route, may_write: Callable[[], None], changed: Callable[[Key, Change | None], None]
    ) -> None:
        self._route = route
        self._may_write = may_write
        self._changed = changed
        self._connections: dict[Key, tuple[SlurmConnection, asyncio.Task[None]]] = {}

    def get(self, key: Key) -> SlurmConnection | None:
        found = self._connections.get(key)
        return found[0] if found else None

    def open(self, cluster: SlurmCluster, secrets: Secrets) -> SlurmConnection:
        """The cluster's connection, created if there is none."""
        name = key_of(cluster)
        if found := self._connections.get(name):
            return found[0]
        connection = SlurmConnection(
            cluster, secrets, self._route, self._may_write, lambda change: self._changed(name, change)
        )
        task = asyncio.create_task(connection.run())
        task.add_done_callback(_log_failure)
        self._connections[name] = (connection, task)
        return connection

    async def close(self, key: Key) -> None:
        found = self._connections.pop(key, None)
        if found:
            found[1].cancel()
            await asyncio.gather(found[1], return_exceptions=True)

    async def close_all(self) -> None:
        for key in list(self._connections):
            await self.close(key)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        logger.error("a connection to Slurm ended: %r", error)
