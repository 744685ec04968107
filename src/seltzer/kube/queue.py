"""A queue of keys with delays, without duplicates."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class DelayQueue(Generic[K]):
    """A queue of keys without duplicates. A key that was handed out isn't handed out again until it is `done`.

    Adding a key that is already queued makes it due at the earlier of both times. A key that changes all the time is
    still handled: it settles for a moment after its first change, not after its last.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = 0
        self._working: set[K] = set()
        self._again: dict[K, float] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait, including those that were added again while they are being processed."""
        return len(self._due) + len(self._again)

    def add(self, key: K, after: float = 0.0) -> None:
        due = self._now() + after
        if key in self._working:
            self._again[key] = min(due, self._again.get(key, due))
            return
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._order += 1
            heapq.heappush(self._heap, (due, self._order, key))
            self._changed.set()

    async def get(self) -> K:
        """The next key that is due. Call `done` with it, whatever the result."""
        while True:
            wait = self._until_next()
            if wait is not None and wait <= 0:
                key = heapq.heappop(self._heap)[2]
                del self._due[key]
                self._working.add(key)
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def done(self, key: K) -> None:
        self._working.discard(key)
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, max(0.0, again - self._now()))

    def _until_next(self) -> float | None:
        # Entries that were replaced by an earlier one stay in the heap until they come up.
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] - self._now() if self._heap else None

    def _now(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()
