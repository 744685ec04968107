"""Records Kubernetes Events. A repeated event is written once, with a count."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from seltzer.kube.client import Client
from seltzer.kube.errors import KubeError, NotFound
from seltzer.kube.resource import HasMeta, Resource

logger = logging.getLogger(__name__)

_MOST_REMEMBERED = 4096
_MOST_MESSAGE = 1024


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""


class Event(msgspec.Struct):
    metadata: _Meta
    count: int | None = None


EVENTS: Resource[Event] = Resource("", "v1", "events", "Event", Event)


@dataclass
class _Written:
    name: str
    count: int


class Recorder:
    """Writes events. A repeated event becomes a count on the first. A failure to write never fails the caller."""

    def __init__(self, client: Client, component: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._component = component
        self._now = now
        self._written: OrderedDict[str, _Written] = OrderedDict()

    async def record(
        self, resource: Resource[Any], item: HasMeta, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """`reason` is one CamelCase word for programs, `message` is for people."""
        metadata, message = item.metadata, message[:_MOST_MESSAGE]
        words = f"{metadata.uid} {kind} {reason} {message}"
        digest = hashlib.sha256(words.encode()).hexdigest()[:16]
        namespace = metadata.namespace or "default"
        known = self._written.pop(digest, None)
        try:
            if known is None or not await self._again(known, namespace):
                known = await self._first(resource, item, kind, reason, message, digest, namespace)
        except KubeError as error:
            logger.warning("event %s of %s was not written: %s", reason, metadata.name, error)
            return
        self._written[digest] = known  # the most recent is last
        if len(self._written) > _MOST_REMEMBERED:
            self._written.popitem(last=False)

    async def _again(self, known: _Written, namespace: str) -> bool:
        """Increment the count. False if the first event is gone: events expire after an hour."""
        patch = {"count": known.count + 1, "lastTimestamp": self._stamp()}
        try:
            await self._client.patch(EVENTS, known.name, namespace, patch=patch)
        except NotFound:
            return False
        known.count += 1
        return True

    async def _first(
        self,
        resource: Resource[Any],
        item: HasMeta,
        kind: str,
        reason: str,
        message: str,
        digest: str,
        namespace: str,
    ) -> _Written:
        metadata, stamp = item.metadata, self._stamp()
        # The time makes the name unique when an earlier event with the same digest expired, or is another process's.
        name = f"{metadata.name}.{digest[:8]}{int(self._now().timestamp() * 1e6):x}"
        manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        await self._client.create(EVENTS, manifest, namespace)
        return _Written(name, 1)

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
