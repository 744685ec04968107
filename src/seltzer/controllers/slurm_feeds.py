"""Answers that take a call to slurmctld or its guard: fetched beside the passes, while a plan wants them.

A pass reads the latest answer and never waits for one. Whatever can't be taken back is checked again right before it is
done: `now` asks for that, and what it learns is the feed's latest answer too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from seltzer.slurm.errors import SlurmError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Clock = Callable[[], float]

# From one answer to the next question.
EVERY = 1.0
# An answer counts for so long, from when its question was sent.
FRESH = 30.0
# Questions go on for so long after the last plan that wanted an answer.
WANTED = 10.0

# Deadlines change when jobs start and end, and seldom by themselves. Asking takes at most a twentieth of slurmctld's
# time, unless a plan waits for them.
DEADLINES_EVERY = 5.0
DEADLINES_AT_LEAST_EVERY = 60.0
DEADLINES_SHARE = 20.0


@dataclass
class _Question(Generic[T]):
    """What is known of one key."""

    wanted: float = float("-inf")
    asking: bool = False
    ended: float = float("-inf")
    # When the last answered question was sent, and the answer.
    answer: tuple[float, T] | None = None

    def latest(self, now: float) -> T | None:
        return self.answer[1] if self.answer and now - self.answer[0] <= FRESH else None


class AnswerFeed(Generic[K, T]):
    """The latest answer for each key.

    `ask` returns None if there is no answer; `changed` is called when `latest` would return something else.
    """

    def __init__(
        self, ask: Callable[[K], Awaitable[T | None]], changed: Callable[[], None], clock: Clock = time.monotonic
    ) -> None:
        self._ask = ask
        self._changed = changed
        self._clock = clock
        self._questions: dict[K, _Question[T]] = {}
        self._wake = asyncio.Event()

    def latest(self, key: K) -> T | None:
        """None: unknown."""
        found = self._questions.get(key)
        return found.latest(self._clock()) if found else None

    def want(self, key: K) -> None:
        """Keep the answer up to date for a while."""
        self._questions.setdefault(key, _Question()).wanted = self._clock()
        self._wake.set()

    async def now(self, key: K) -> T | None:
        """Ask now, whatever is known; None if there is no answer."""
        question = self._questions.setdefault(key, _Question())
        sent = self._clock()
        answer = await self._ask(key)
        before = question.latest(self._clock())
        question.ended = self._clock()
        if answer is not None:
            question.answer = (sent, answer)
        if before != question.latest(self._clock()):
            self._changed()
        return answer

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for key in self._due():
                    self._questions[key].asking = True
                    group.create_task(self._fetch(key))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY if self._questions else None):
                        await self._wake.wait()
                self._wake.clear()

    def _due(self) -> list[K]:
        now = self._clock()
        kept = {key: each for key, each in self._questions.items() if each.asking or now - each.wanted <= WANTED}
        self._questions = kept
        return [key for key, each in kept.items() if not each.asking and now - each.ended >= EVERY]

    async def _fetch(self, key: K) -> None:
        try:
            await self.now(key)
        finally:
            self._questions[key].asking = False


class Deadlines:
    """When the last job on each busy node reaches its limit.

    `ask` gets the busy nodes, and returns their deadlines; None is a job without a limit. `changed` is called with the
    names of nodes whose deadline changed, and with none when an answer that a plan wanted is there, or has failed.
    """

    def __init__(
        self,
        ask: Callable[[Collection[str]], Awaitable[Mapping[str, float | None]]],
        busy: Callable[[], Collection[str]],
        changed: Callable[[frozenset[str]], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._ask = ask
        self._busy = busy
        self._changed = changed
        self._clock = clock
        self._ended = float("-inf")
        self._due = asyncio.Event()
        self._hurry = asyncio.Event()
        self.free_at: Mapping[str, float | None] = {}

    @property
    def age(self) -> float:
        """Seconds since the last attempt to ask ended, whether or not there was an answer."""
        return self._clock() - self._ended

    def jobs_changed(self) -> None:
        """Jobs have started or ended."""
        self._due.set()

    def want(self) -> None:
        """Ask as soon as possible: a plan waits."""
        self._due.set()
        self._hurry.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await _wait(self._due, DEADLINES_AT_LEAST_EVERY)
            self._due.clear()
            began = self._clock()
            names: frozenset[str] = frozenset()
            with contextlib.suppress(SlurmError):
                before, self.free_at = self.free_at, await self._ask(self._busy())
                names = _differing(before, self.free_at)
            self._ended = self._clock()
            if names or self._hurry.is_set():
                self._changed(names)
            self._hurry.clear()
            await _wait(self._hurry, max(DEADLINES_EVERY, DEADLINES_SHARE * (self._ended - began)))


def _differing(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> frozenset[str]:
    return frozenset(name for name in {*before, *after} if before.get(name, 0.0) != after.get(name, 0.0))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
