"""One watch: what there is, then what happens."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from tests.fakes.apiserver.errors import Failure
from tests.fakes.apiserver.select import Predicate
from tests.fakes.apiserver.state import Event, Id, Object, State

BOOKMARK_EVERY = 60.0


class Watch:
    """Follows the objects of a kind from the moment it is made. An object that a change takes out of the selection is
    told as deleted, one that comes into it as added, as the real one does."""

    def __init__(self, state: State, kind: Id, chosen: Predicate, query: dict[str, str]) -> None:
        self._state = state
        self._kind = kind
        self._chosen = chosen
        self._bookmarks = query.get("allowWatchBookmarks") == "true"
        self._until = time.monotonic() + float(query.get("timeoutSeconds", 1800))
        self._lines: deque[bytes] = deque()
        self._woken = asyncio.Event()
        self._ended = False
        self._listening = state.listen(self._changed)
        try:
            self._begin(query.get("resourceVersion", ""), query.get("sendInitialEvents") == "true")
        except Failure as failure:
            self.fail(failure)

    def _begin(self, version: str, initial: bool) -> None:
        if version not in ("", "0") and not initial:
            for event in self._state.since(int(version)):
                self._changed(event)
            return
        for _, item in self._state.items(self._kind.group, self._kind.plural, self._kind.namespace):
            if self._chosen(item):
                self._say("ADDED", item)
        if initial:
            self._bookmark({"k8s.io/initial-events-end": "true"})

    def _changed(self, event: Event) -> None:
        id_ = event.id
        if (id_.group, id_.plural) != self._kind[:2] or self._kind.namespace not in ("", id_.namespace):
            return
        was = event.before is not None and self._chosen(event.before)
        if event.after is not None and self._chosen(event.after):
            self._say("MODIFIED" if was else "ADDED", event.after)
        elif was:
            assert event.before is not None
            metadata = {**event.before["metadata"], "resourceVersion": str(event.version)}
            self._say("DELETED", {**event.before, "metadata": metadata})

    def _bookmark(self, annotations: dict[str, str] | None = None) -> None:
        metadata: Object = {"resourceVersion": str(self._state.version)}
        self._say("BOOKMARK", {"metadata": metadata | ({"annotations": annotations} if annotations else {})})

    def _say(self, kind: str, item: Any) -> None:
        self._lines.append(msgspec.json.encode({"type": kind, "object": item}) + b"\n")
        self._woken.set()

    def fail(self, failure: Failure) -> None:
        """Tell the error and end."""
        self._say("ERROR", failure.body)
        self.cut()

    def cut(self) -> None:
        """End after what is said already."""
        self._ended = True
        self._woken.set()

    def close(self) -> None:
        self._listening()

    async def lines(self) -> AsyncIterator[bytes]:
        while True:
            if self._lines:
                said = b"".join(self._lines)
                self._lines.clear()
                yield said
                continue
            if self._ended:
                return
            left = self._until - time.monotonic()
            self._woken.clear()
            try:
                async with asyncio.timeout(max(0.0, min(left, BOOKMARK_EVERY))):
                    await self._woken.wait()
            except TimeoutError:
                if self._bookmarks:
                    self._bookmark()
                self._ended = left <= BOOKMARK_EVERY
