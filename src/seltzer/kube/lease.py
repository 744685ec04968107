"""Leader election: at most one process leads at any time, without trust in wall clocks.

A leader counts from before it sent the renewal that succeeded, and stops `margin` seconds before the lease's duration
has passed. Other candidates take the lease only after they have seen it unchanged for its whole duration, counted from
after the answer that showed it. Each counts on its own monotonic clock, so the leader stops first, even if it was
suspended in between: `leading` asks the clock; it isn't a flag.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from seltzer.kube.client import Client
from seltzer.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from seltzer.kube.resource import Key, Resource

logger = logging.getLogger(__name__)


class NotLeading(KubeError):
    """This process may not write: another one may lead by now."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


LEASES: Resource[Lease] = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)


@dataclass(frozen=True)
class Times:
    """In seconds. A dead leader is replaced after `duration` and at most one `retry`."""

    duration: float = 15.0
    renew: float = 3.0
    retry: float = 1.0
    margin: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.renew < self.duration - self.margin:
            raise ValueError("a lease has to be renewed before its holder stops trusting it")


class Election:
    """One candidate for one lease.

    The client that writes the lease must not be guarded by `may_write`: a process that doesn't lead has to write it.
    """

    def __init__(self, client: Client, key: Key, identity: str, times: Times | None = None) -> None:
        self._client = client
        self._key = key
        self._identity = identity
        self._times = times or Times()
        self._until = 0.0  # the end of our leadership, on our monotonic clock
        self._seen: tuple[str, float] = ("", 0.0)  # the lease's resourceVersion, and when it was first seen

    @property
    def leading(self) -> bool:
        return time.monotonic() < self._until

    def may_write(self) -> None:
        """For `Client(may_write=...)`: raises NotLeading unless we lead right now."""
        if not self.leading:
            raise NotLeading(f"{self._identity} does not hold the lease {self._key}")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `lead` while we hold it, cancel it before another can; repeat until cancelled."""
        while True:
            while not await self._try():
                await asyncio.sleep(self._times.retry * random.uniform(0.8, 1.2))  # noqa: S311
            logger.info("%s leads (%s)", self._identity, self._key)
            await self._lead(lead)
            logger.warning("%s no longer leads (%s)", self._identity, self._key)

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(lead())
        renewing = asyncio.ensure_future(self._keep())
        try:
            done, _ = await asyncio.wait((work, renewing), return_when=asyncio.FIRST_COMPLETED)
            if work in done:
                work.result()  # an exception is for our caller
        finally:
            for task in (work, renewing):
                task.cancel()
            await asyncio.gather(work, renewing, return_exceptions=True)
            if self.leading:
                await self._release()

    async def _keep(self) -> None:
        """Renew for as long as possible. Returns when we may no longer lead."""
        while self.leading:
            await asyncio.sleep(min(self._times.renew, max(0.0, self._until - time.monotonic())))
            if self.leading:
                await self._try()

    async def _try(self) -> bool:
        """Take or renew the lease, if it is ours, free, or not renewed for its whole duration."""
        started = time.monotonic()
        deadline = max(0.1, (self._until - started) if self.leading else self._times.duration / 2)
        try:
            async with asyncio.timeout(deadline):
                taken = await self._take()
        except (KubeError, TimeoutError) as error:
            logger.info("lease %s: %s", self._key, error or "no answer in time")
            return self.leading
        if taken:
            self._until = started + self._times.duration - self._times.margin
        else:
            self._until = 0.0
        return self.leading

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._key.name, self._key.namespace)
        except NotFound:
            return await self._create()
        mine = lease.spec.holder_identity == self._identity
        if not mine and lease.spec.holder_identity and not self._is_expired(lease):
            return False
        spec = self._spec(lease, mine)
        # Only onto the version that was read: of two candidates, one gets a Conflict.
        patch = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        try:
            await self._client.patch(LEASES, self._key.name, self._key.namespace, patch=patch)
        except Conflict:
            return False
        return True

    def _is_expired(self, lease: Lease) -> bool:
        """Whether this exact version has been seen for as long as its holder may trust it."""
        now = time.monotonic()
        if self._seen[0] != lease.metadata.resource_version:
            self._seen = (lease.metadata.resource_version, now)
        duration = max(self._times.duration, float(lease.spec.lease_duration_seconds or 0))
        return now - self._seen[1] >= duration

    async def _create(self) -> bool:
        spec = {**self._spec(None, False), "acquireTime": _now()}
        metadata = {"name": self._key.name, "namespace": self._key.namespace}
        manifest = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        try:
            await self._client.create(LEASES, manifest, self._key.namespace)
        except AlreadyExists:
            return False
        return True

    def _spec(self, lease: Lease | None, mine: bool) -> dict[str, object]:
        before = (lease.spec.lease_transitions or 0) if lease else -1
        spec: dict[str, object] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration)),
            "renewTime": _now(),
        }
        return spec if mine else {**spec, "acquireTime": _now(), "leaseTransitions": before + 1}

    async def _release(self) -> None:
        """Let the next leader in at once. If this fails, the lease stays ours until it expires."""
        self._until = 0.0
        try:
            lease = await self._client.get(LEASES, self._key.name, self._key.namespace, deadline=2.0)
            if lease.spec.holder_identity == self._identity:
                version = {"resourceVersion": lease.metadata.resource_version}
                patch = {"metadata": version, "spec": {"holderIdentity": ""}}
                await self._client.patch(LEASES, self._key.name, self._key.namespace, patch=patch, deadline=2.0)
        except KubeError as error:
            logger.info("lease %s was not released: %s", self._key, error)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
