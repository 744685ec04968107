"""A cache of a cluster's nodes: polled, never guessed.

slurmctld has no watches. Asked with `update_time` it answers at once, either that nothing changed or with all nodes. A
deleted node is missing from the next answer, and every answer is complete. One thing can hide changes: a slurmctld
whose clock is behind the last answer reports no changes until it has caught up. That is likely after a restart on
another machine, so each poll first asks since when slurmctld counts, which changes with each start. In case a clock is
set back without a restart, all nodes are read every `resync` seconds, whatever slurmctld says.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from seltzer.slurm.errors import SlurmError
from seltzer.slurm.models import Node, NodeList, Statistics

# The pause after a poll as a multiple of its duration; the shortest pause worth taking, and the longest.
_REST = 3.0
_SHORT, _LONG = 0.2, 2.0


class NodeReader(Protocol):
    """What the cache polls: a SlurmClient."""

    async def nodes(self, update_time: int | None = None) -> NodeList | None: ...

    async def diag(self) -> Statistics: ...


@dataclass(frozen=True)
class Pace:
    """How often to poll, in seconds."""

    busy: float = 1.0
    idle: float = 15.0
    # Read all nodes, even if slurmctld says that nothing changed.
    resync: float = 300.0
    # Without an answer for this long the nodes become unknown. More than `idle` and a call's deadline together.
    stale: float = 60.0


@dataclass(frozen=True)
class View:
    """All nodes by name. Includes every change that Slurm had acknowledged at `asked`, by the cache's clock."""

    nodes: Mapping[str, Node]
    statistics: Statistics
    asked: float


@dataclass(frozen=True)
class Change:
    """What a poll found."""

    # Nodes that are new, different or gone (the view lacks those).
    names: frozenset[str] = frozenset()
    # slurmctld has started or reconfigured since the last poll; also set once after midnight UTC.
    restarted: bool = False
    # Whether the view is known now. A change of this is delivered, too.
    known: bool = True


Watcher = Callable[[Change], None]
Wait = Callable[[asyncio.Event, float], Awaitable[None]]


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event is set, or for this many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class NodeCache:
    """The nodes of one cluster, for as long as `run` runs.

    `view` is None while the nodes are unknown: before the first answer, and without an answer for `pace.stale` seconds.
    Otherwise it is what Slurm reported, at most that old. A deleted node is gone from it by the next poll, even after a
    restart with a wrong clock; at the latest after `pace.resync` seconds.
    """

    def __init__(
        self,
        source: NodeReader,
        pace: Pace | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = _wait,
    ) -> None:
        self.pace = pace or Pace()
        # The error of the last poll, if it failed.
        self.failure: SlurmError | None = None
        self._source = source
        self._clock = clock
        self._wait = wait
        self._view: View | None = None
        self._known = False
        self._update_time = 0
        self._read_all = 0.0
        self._changed = -math.inf
        self._failures = 0
        self._busy: set[str] = set()
        self._woken = asyncio.Event()
        self._asking = asyncio.Lock()
        self._watchers: list[Watcher] = []

    @property
    def view(self) -> View | None:
        """Slurm's last answer, or None if there is none or it is too old."""
        age = self.age
        return self._view if age is not None and age <= self.pace.stale else None

    @property
    def age(self) -> float | None:
        """How many seconds ago the last answer was requested, or None without one."""
        return None if self._view is None else self._clock() - self._view.asked

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` after each poll that found something, and after the first success following a failure: work
        that was refused meanwhile can go on at once. It must not block. Returns a function that removes it."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def busy(self, who: str, busy: bool) -> None:
        """Set whether `who` waits for something to happen in Slurm."""
        if busy and who not in self._busy:
            self._busy.add(who)
            self.wake()
        elif not busy:
            self._busy.discard(who)

    def wake(self) -> None:
        """Poll now: there may be something new."""
        self._woken.set()

    def changed(self) -> None:
        """Poll now: we have just changed something. Reads all nodes, since slurmctld doesn't count everything as a
        change: the deletion of its last node isn't one."""
        self._changed = self._clock()
        self.wake()

    @property
    def pause(self) -> float:
        """How long to wait until the next poll. Failures make it longer, up to the idle pace."""
        if self._failures:
            return min(self.pace.idle, self.pace.busy * 2.0 ** min(self._failures - 1, 16))
        return self.pace.busy if self._busy else self.pace.idle

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self._woken.clear()
            began = self._clock()
            await self.poll()
            # Thousands of nodes are a large answer: frequent wake-ups get only a share of the time.
            rest = min(_LONG, _REST * (self._clock() - began))
            if rest > _SHORT:
                await self._wait(asyncio.Event(), rest)
            else:
                rest = 0.0
            if self.pause > rest:
                await self._wait(self._woken, self.pause - rest)

    async def poll(self) -> Change:
        """Ask once, and call the watchers with what was found. A failure shows in `failure` and in the view's age.

        One at a time: "nothing changed" refers only to what was known when the request was sent.
        """
        async with self._asking:
            return await self._poll()

    async def _poll(self) -> Change:
        failed = self.failure is not None
        try:
            change = await self._ask()
        except SlurmError as error:
            self.failure = error
            self._failures += 1
            change = Change()
        else:
            self.failure = None
            self._failures = 0
        known = self.view is not None
        found = Change(change.names, change.restarted, known)
        back = failed and self.failure is None
        if change.names or change.restarted or back or known != self._known:
            self._known = known
            for watcher in tuple(self._watchers):
                watcher(found)
        return found

    async def _ask(self) -> Change:
        asked = self._clock()
        statistics = await self._source.diag()
        before = self._view
        restarted = before is not None and before.statistics.since != statistics.since
        everything = before is None or restarted or asked - self._read_all >= self.pace.resync
        everything = everything or self._read_all <= self._changed
        listed = await self._source.nodes(None if everything else self._update_time)
        if listed is None:
            assert before is not None, "an unconditional answer has nodes"
            self._view = View(before.nodes, statistics, asked)
            return Change(restarted=restarted)
        self._update_time = listed.update_time
        self._read_all = asked
        nodes = {node.name: node for node in listed.nodes}
        self._view = View(MappingProxyType(nodes), statistics, asked)
        return Change(_differing(before.nodes if before else {}, nodes), restarted)


def _differing(old: Mapping[str, Node], new: Mapping[str, Node]) -> frozenset[str]:
    different = {name for name, node in new.items() if old.get(name) != node}
    return frozenset(different | (old.keys() - new.keys()))
