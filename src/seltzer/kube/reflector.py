"""Keep a store equal to the API server, through everything that can happen to the connection between them.

A life of a reflector: get the whole state (streamed where the server can, listed where not), follow the changes, take
the stream up again at the last known version when it ends, start over when the server no longer knows that version.
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

# A quiet watch gets a bookmark about once a minute.
SILENCE = 150.0
_SHORTEST_WATCH, _LONGEST_WATCH = 240, 480
_TOO_SHORT = 1.0  # seconds; a server that ends every watch at once is not well
_YIELD_EVERY = 500  # events, so that a flood of them doesn't hold up everybody else


class Reflector(Generic[T]):
    """Runs until it is cancelled, and raises nothing: errors are waited out, and told by `error` and `stale_for`."""

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
        self._heard = time.monotonic()
        self._following: float | None = None  # since when there was no break
        self.synced = asyncio.Event()
        self.error: KubeError | None = None

    def stale_for(self) -> float:
        """Seconds since the server last said anything: how old what the store holds may be."""
        return time.monotonic() - self._heard

    def following_for(self) -> float:
        """For how many seconds changes have come without a break, as far as we know; 0 while they don't come.

        What doesn't change in that time is silent; what was silent before may only not have been heard.
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
                    self._streams_initial = False  # it doesn't know sendInitialEvents: list, then watch
                else:
                    version, failed = None, error
            except KubeError as error:
                failed = error
                version = str(self._store.resource_version) if self._store.synced else None
            self.error = failed
            self._following = None
            await asyncio.sleep(self._backoff.next())

    async def _follow(self, version: str | None) -> str | None:
        """One watch: from the beginning, or from a version on. Returns the version that it got to."""
        initial: dict[Key, T] | None = None
        params = {"watch": "true", "allowWatchBookmarks": "true", **self._selector}
        if version is None and self._streams_initial:
            initial = {}
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
        elif version is None:
            version = await self._list()
        if version is not None:
            params["resourceVersion"] = version
        # At different times, so that a server's thousand watches don't all start over together.
        params["timeoutSeconds"] = str(random.randint(_SHORTEST_WATCH, _LONGEST_WATCH))  # noqa: S311
        decoder, events = Decoder(self._resource.type), 0
        async with self._client.stream(self._path, params) as content:
            if initial is None:
                self._follows()
            async for batch in lines(content, self._silence):
                self._heard = time.monotonic()
                for line in batch:
                    initial = self._take(decoder.decode(line), initial)
                if initial is None:
                    self._follows()
                    self._backoff.reset()
                events += len(batch)
                if events >= _YIELD_EVERY:
                    events = 0
                    await asyncio.sleep(0)
        # A stream that ended before it told everything told nothing.
        return str(self._store.resource_version) if initial is None else None

    def _take(
        self, event: Changed[T] | Deleted[T] | Bookmark | Skipped, initial: dict[Key, T] | None
    ) -> dict[Key, T] | None:
        """Handle one event; returns the initial state so far, None when it is complete."""
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
        self._heard = time.monotonic()
        self._store.replace(listing.items, listing.resource_version)
        self.synced.set()
        return listing.resource_version

    def _follows(self) -> None:
        self.error = None
        if self._following is None:
            self._following = time.monotonic()
