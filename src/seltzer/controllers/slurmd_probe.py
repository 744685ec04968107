"""Whose slurmd answers: asked beside the passes. Who doesn't answer takes seconds, and no pass waits for that.

An answer counts for a moment only: a machine that was cut off may be back. While somebody wants to know, the next one
is on its way before the last one has expired, so that a pass finds one however long passes take.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

# The guard reads a line of at most 64 KiB, and addresses of IPv6 have up to 39 characters.
AT_ONCE = 1600
# From when the question was sent. The guard needs 2 s for who is silent, and the next answer as much.
FRESH = 6.0
# A pass of thousands of nodes may take long. Until the next one its doubts are its doubts.
WANTED = 30.0
EVERY = 1.0
# The guard takes four, about jobs too.
_QUESTIONS = 2

Ask = Callable[[Sequence[str]], Awaitable[Collection[str] | None]]


@dataclass
class _Suspect:
    """About one address."""

    wanted: float
    asking: bool = False
    # When the last question was sent; and of the last one that was answered, when that was and what was told.
    sent: float = float("-inf")
    told: tuple[float, bool] | None = None

    def known(self, now: float) -> bool | None:
        return self.told[1] if self.told and now - self.told[0] <= FRESH else None


class SlurmdProbe:
    """`ask` tells which of some addresses answer, or None if that can't be told; `changed` is called when a pass would
    find something else than before."""

    def __init__(self, ask: Ask, changed: Callable[[], None]) -> None:
        self._ask = ask
        self._changed = changed
        self._doubts: dict[str, _Suspect] = {}  # by address
        self._questions = 0
        self._wake = asyncio.Event()

    def answers(self, nodes: Mapping[str, str]) -> dict[str, bool]:
        """Which of these nodes, given with their addresses, answer now; not those of which that isn't known (yet)."""
        now = time.monotonic()
        found: dict[str, bool] = {}
        for name, address in nodes.items():
            doubt = self._doubts.setdefault(address, _Suspect(now))
            doubt.wanted = now
            if (known := doubt.known(now)) is not None:
                found[name] = known
        self._wake.set()
        return found

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                while self._questions < _QUESTIONS and (addresses := self._due()):
                    self._questions += 1
                    group.create_task(self._question(addresses, self._send(addresses)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY if self._doubts else None):
                        await self._wake.wait()
                self._wake.clear()

    def _due(self) -> list[str]:
        """The next ones to be asked, those first that were asked longest ago."""
        now = time.monotonic()
        self._doubts = {key: each for key, each in self._doubts.items() if each.asking or now - each.wanted <= WANTED}
        due = [key for key, each in self._doubts.items() if not each.asking and now - each.sent >= EVERY]
        return sorted(due, key=lambda key: (self._doubts[key].sent, key))[:AT_ONCE]

    def _send(self, addresses: Sequence[str]) -> float:
        sent = time.monotonic()
        for address in addresses:
            self._doubts[address].asking, self._doubts[address].sent = True, sent
        return sent

    async def _question(self, addresses: Sequence[str], sent: float) -> None:
        there: Collection[str] | None = None
        try:
            there = await self._ask(addresses)
        finally:
            self._questions -= 1
            self._wake.set()
            for address in addresses:
                self._doubts[address].asking = False
        if there is not None:
            self._tell(addresses, frozenset(there), sent)

    def _tell(self, addresses: Sequence[str], there: frozenset[str], sent: float) -> None:
        now = time.monotonic()
        doubts = [self._doubts[address] for address in addresses]
        before = [doubt.known(now) for doubt in doubts]
        for address, doubt in zip(addresses, doubts, strict=True):
            doubt.told = (sent, address in there)
        if before != [doubt.known(now) for doubt in doubts]:
            self._changed()
