"""Keeps a store equal to the API server, through all faults of the connection between them.

A reflector gets the whole state (streamed if the server supports that, listed otherwise), follows the changes, resumes
from the last known version when the stream ends, and starts over when the server no longer has that version.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from typing import Generic, TypeVar

from seltzer.kube.backoff import Backoff
from seltzer.kube.client import Client
from seltzer.kube.errors import Gone, Invalid, KubeError
from seltzer.kube.resource import HasMeta, Key, Resource, key_of
from seltzer.kube.store import Store
from seltzer.kube.watch import Bookmark, Changed, Decoder, Deleted, Skipped, lines

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMeta)

# An idle watch gets a bookmark about once a minute.
SILENCE = 150.0
_SHORTEST_WATCH, _LONGEST_WATCH = 240, 480
_TOO_SHORT = 1.0  # seconds; a server that ends every watch at once is unhealthy
_YIELD_EVERY = 500  # events, so that a flood of them doesn't block all other tasks


class Reflector(Generic[T]):
    """Runs until cancelled, and raises nothing: it waits out errors, which `error` and `stale_for` show."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        store: Store[T],
        *,
        namespace: str = "",
        selector: Mapping[str, str] | None = None,
        silence: float = SILENCE,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._store = store
        self._path = resource.path(namespace)
        self._namespace = namespace
        self._selector = dict(selector or {})
        self._silence = silence
        self._backoff = backoff or Backoff()
        self._streams_initial = True
        self._last_data = time.monotonic()
        self._following: float | None = None  # since when changes arrive without a gap
        self.synced = asyncio.Event()
        self.error: KubeError | None = None

    def stale_for(self) -> float:
        """Seconds since the server last sent anything: the maximum age of the store's contents."""
        return time.monotonic() - self._last_data

    def following_for(self) -> float:
        """For how many seconds changes have arrived without a gap, as far as we know; 0 while they don't arrive.

        An object that didn't change in that time is known not to have changed. Before that, changes may be missing.
        """
        return time.monotonic() - self._following if self._following is not None else 0.0

    async def run(self) -> None:
        version: str | None = None
        while True:
            started = time.monotonic()
            failed: KubeError | None = None
            try:
                version = await self._follow(version)
                if time.monotonic() - started > _TOO_SHORT:
                    continue  # the server ended the watch, as it does every few minutes
            except Gone:
                version = None
            except Invalid as error:
                if version is None and self._streams_initial:
                    self._streams_initial = False  # it doesn't support sendInitialEvents: list, then watch
                else:
                    version, failed = None, error
            except KubeError as error:
                failed = error
                version = str(self._store.resource_version) if self._store.synced else None
            self.error = failed
            self._following = None
            await asyncio.sleep(self._backoff.next())

    async def _follow(self, version: str | None) -> str | None:
        """One watch, from the beginning or from a version. Returns the version that it reached."""
        initial: dict[Key, T] | None = None
        params = {"watch": "true", "allowWatchBookmarks": "true", **self._selector}
        if version is None and self._streams_initial:
            initial = {}
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
        elif version is None:
            version = await self._list()
        if version is not None:
            params["resourceVersion"] = version
        # Randomised, so that a server's thousand watches don't all restart at the same time.
        params["timeoutSeconds"] = str(random.randint(_SHORTEST_WATCH, _LONGEST_WATCH))  # noqa: S311
        decoder, events = Decoder(self._resource.type), 0
        async with self._client.stream(self._path, params) as content:
            if initial is None:
                self._mark_following()
            async for batch in lines(content, self._silence):
                self._last_data = time.monotonic()
                for line in batch:
                    initial = self._take(decoder.decode(line), initial)
                if initial is None:
                    self._mark_following()
                    self._backoff.reset()
                events += len(batch)
                if events >= _YIELD_EVERY:
                    events = 0
                    await asyncio.sleep(0)
        # A stream that ended before the initial state was complete is discarded.
        return str(self._store.resource_version) if initial is None else None

    def _take(
        self, event: Changed[T] | Deleted[T] | Bookmark | Skipped, initial: dict[Key, T] | None
    ) -> dict[Key, T] | None:
        """Handle one event. Returns the initial state so far, or None once it is complete."""
        if isinstance(event, Skipped):
            logger.warning("a %s was skipped: %s", self._resource.kind, event.reason)
            return initial
        if initial is None:
            match event:
                case Bookmark():
                    self._store.progress(event.resource_version)
                case Changed():
                    self._store.put(event.item)
                case Deleted():
                    self._store.remove(event.item)
            return None
        match event:
            case Bookmark() if event.initial:
                self._store.replace(initial.values(), event.resource_version)
                self.synced.set()
                return None
            case Changed():
                initial[key_of(event.item)] = event.item
            case Deleted():
                initial.pop(key_of(event.item), None)
        return initial

    async def _list(self) -> str:
        listing = await self._client.list_all(self._resource, self._namespace, params=self._selector)
        self._last_data = time.monotonic()
        self._store.replace(listing.items, listing.resource_version)
        self.synced.set()
        return listing.resource_version

    def _mark_following(self) -> None:
        self.error = None
        if self._following is None:
            self._following = time.monotonic()
