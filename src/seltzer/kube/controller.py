"""Runs passes over keys. What follows a pass is decided here and nowhere else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from seltzer.kube import metrics
from seltzer.kube.backoff import Backoff
from seltzer.kube.queue import DelayQueue
from seltzer.kube.resource import Key

logger = logging.getLogger(__name__)


# The largest share of time for passes of one key: thousands of pods that change one by one would take all of it.
_SHARE = 0.2


@dataclass(frozen=True)
class Done:
    """Nothing to do until something changes. `cost` is the CPU time of the pass in seconds."""

    cost: float = 0.0


@dataclass(frozen=True)
class After:
    """Run again after this many seconds, or when something changes, whichever comes first."""

    seconds: float
    cost: float = 0.0


Outcome = Done | After
Pass = Callable[[Key], Awaitable[Outcome]]


class Controller:
    """Runs one kind of pass. A key never runs twice at the same time; a slow key doesn't delay other keys.

    `settle` is how long a changed key waits for more changes before its pass. `deadline` ends a pass that hangs.
    """

    def __init__(
        self,
        name: str,
        work: Pass,
        *,
        workers: int = 16,
        settle: float = 0.1,
        deadline: float = 120.0,
        first_delay: float = 0.5,
        last_delay: float = 60.0,
    ) -> None:
        self.name = name
        self._work = work
        self._workers = workers
        self._settle = settle
        self._deadline = deadline
        self._delays = (first_delay, last_delay)
        self._queue: DelayQueue[Key] = DelayQueue()
        self._failing: dict[Key, Backoff] = {}
        self._cooling: dict[Key, float] = {}  # the end of the cool-down, for keys whose passes are expensive
        self._measured = metrics.for_controller(name)
        self._measured.waiting.set_function(lambda: len(self._queue))  # computed on scrape, not on every change

    def changed(self, key: Key) -> None:
        """Something that the key's pass looks at has changed."""
        self._queue.add(key, max(self._settle, self._cooling.get(key, 0.0) - time.monotonic()))

    def hurry(self, key: Key) -> None:
        """A change that skips the cool-down after an expensive pass."""
        self._queue.add(key, self._settle)

    async def run(self) -> None:
        """Run until cancelled, which also cancels the passes in progress."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                delay = await self._pass(key)
            finally:
                self._queue.done(key)
            if delay is not None:
                self._queue.add(key, delay)

    async def _pass(self, key: Key) -> float | None:
        """Run one pass. Returns the seconds until the next, or None."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._deadline):
                outcome = await self._work(key)
        except Exception as error:
            # Back off, and carry on with all other keys. Nothing that a pass raises stops the controller.
            delay: float | None = self._failing.setdefault(key, Backoff(*self._delays)).next()
            self._measured.failed.inc()
            logger.warning("%s %s: %s; trying again in %.1f s", self.name, key, _describe(error), delay)
        else:
            self._failing.pop(key, None)
            delay = outcome.seconds if isinstance(outcome, After) else None
            self._cool_down(key, outcome.cost)
            self._measured.succeeded.inc()
        self._measured.seconds.observe(time.monotonic() - started)
        return delay

    def _cool_down(self, key: Key, cost: float) -> None:
        pause = cost * (1 - _SHARE) / _SHARE
        if pause > self._settle:
            self._cooling[key] = time.monotonic() + pause
        else:
            self._cooling.pop(key, None)


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
