"""Which slurmds answer: asked beside the passes. A silent slurmd takes seconds to time out, and no pass waits for it.

An answer counts for a moment only: a machine that was cut off may be back. While a plan wants to know, the next
question is under way before the last answer expires, so that a slow pass finds an answer too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

# The guard reads a line of at most 64 KiB, and an IPv6 address has up to 39 characters.
AT_ONCE = 1600
# Counted from when the question was sent. The guard takes 2 s for a silent slurmd, and the next answer as long.
FRESH = 6.0
# A pass over thousands of nodes may take long. Its suspects are asked until the next one.
WANTED = 30.0
EVERY = 1.0
# The guard takes four at a time, including questions about jobs.
_QUESTIONS = 2

Ask = Callable[[Sequence[str]], Awaitable[Collection[str] | None]]


@dataclass
class _Suspect:
    """What is known of one address."""

    wanted: float
    asking: bool = False
    # When the last question was sent.
    sent: float = float("-inf")
    # When the last answered question was sent, and the answer.
    answer: tuple[float, bool] | None = None

    def known(self, now: float) -> bool | None:
        return self.answer[1] if self.answer and now - self.answer[0] <= FRESH else None


class SlurmdProbe:
    """`ask` returns which of some addresses answer, or None if that is unknown. `changed` is called when `answers`
    would return something else."""

    def __init__(self, ask: Ask, changed: Callable[[], None]) -> None:
        self._ask = ask
        self._changed = changed
        self._suspects: dict[str, _Suspect] = {}  # by address
        self._questions = 0
        self._wake = asyncio.Event()

    def answers(self, nodes: Mapping[str, str]) -> dict[str, bool]:
        """Whether these nodes, given with their addresses, answer. Unknown ones are left out, and asked."""
        now = time.monotonic()
        found: dict[str, bool] = {}
        for name, address in nodes.items():
            suspect = self._suspects.setdefault(address, _Suspect(now))
            suspect.wanted = now
            if (known := suspect.known(now)) is not None:
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
                    async with asyncio.timeout(EVERY if self._suspects else None):
                        await self._wake.wait()
                self._wake.clear()

    def _due(self) -> list[str]:
        """The next addresses to ask, least recently asked first."""
        now = time.monotonic()
        self._suspects = {
            key: each for key, each in self._suspects.items() if each.asking or now - each.wanted <= WANTED
        }
        due = [key for key, each in self._suspects.items() if not each.asking and now - each.sent >= EVERY]
        return sorted(due, key=lambda key: (self._suspects[key].sent, key))[:AT_ONCE]

    def _send(self, addresses: Sequence[str]) -> float:
        sent = time.monotonic()
        for address in addresses:
            self._suspects[address].asking, self._suspects[address].sent = True, sent
        return sent

    async def _question(self, addresses: Sequence[str], sent: float) -> None:
        there: Collection[str] | None = None
        try:
            there = await self._ask(addresses)
        finally:
            self._questions -= 1
            self._wake.set()
            for address in addresses:
                self._suspects[address].asking = False
        if there is not None:
            self._take(addresses, frozenset(there), sent)

    def _take(self, addresses: Sequence[str], there: frozenset[str], sent: float) -> None:
        now = time.monotonic()
        suspects = [self._suspects[address] for address in addresses]
        before = [suspect.known(now) for suspect in suspects]
        for address, suspect in zip(addresses, suspects, strict=True):
            suspect.answer = (sent, address in there)
        if before != [suspect.known(now) for suspect in suspects]:
            self._changed()
