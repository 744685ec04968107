"""The updates of `seltzer top`: from watches on Kubernetes, and from one command that keeps running beside slurmctld.

It waits out every fault: the last facts stay, and updates say why they may be stale.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import kubectl
from seltzer.cli.kube import Place
from seltzer.cli.top.stream import Loop, Pace, answers
from seltzer.cli.top.watch import Watched
from seltzer.errors import SeltzerError
from seltzer.kube.backoff import Backoff
from seltzer.kube.client import Client
from seltzer.slurm import snapshot
from seltzer.slurm.snapshot import Question, Snapshot
from seltzer.view.controller import trouble
from seltzer.view.frame import Update

_SOONEST, _LATEST = 0.2, 1.0
_PATIENCE = 5.0
_OLD = 10


class UpdateFeed(Protocol):
    """A source of updates."""

    async def run(self, tell: Callable[[Update], None]) -> None:
        """Calls `tell` with each update, until it is cancelled."""

    def hurry(self) -> None:
        """Asks Slurm now: the user has changed something and waits to see it."""


class ClusterFeed:
    """The updates of a real cluster."""

    def __init__(self, place: Place, cluster: SlurmCluster, interval: float) -> None:
        self._place = Place(place.config, cluster.metadata.namespace, place.flags)
        self._cluster = cluster
        self._pace = Pace(interval)
        self._changed, self._moved = asyncio.Event(), asyncio.Event()
        self._slurm: Snapshot | None = None
        self._ahead = 0.0
        self._heard_at, self._gap = time.monotonic(), 0.0
        self._silence = "Slurm hasn't answered yet"

    def hurry(self) -> None:
        self._pace.hurry.set()

    async def run(self, tell: Callable[[Update], None]) -> None:
        async with Client(self._place.config) as client, asyncio.TaskGroup() as tasks:
            watched = Watched(client, self._cluster, self._notice)
            tasks.create_task(watched.run())
            tasks.create_task(self._tell(watched, tell))
            tasks.create_task(self._follow(watched))

    def _notice(self) -> None:
        self._changed.set()
        self._moved.set()

    async def _tell(self, watched: Watched, tell: Callable[[Update], None]) -> None:
        last: str | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LATEST)
            # A failing watch and a missing answer don't set the event.
            if watched.complete and (self._changed.is_set() or self._trouble(watched) != last):
                self._changed.clear()
                last = self._trouble(watched)
                tell(Update(watched.facts(self._slurm), last, self._ahead))
            await asyncio.sleep(_SOONEST)  # many changes at once are one update

    def _trouble(self, watched: Watched) -> str:
        return watched.trouble or trouble(self._cluster.metadata.name, watched.controller) or self._silent()

    def _silent(self) -> str:
        silent = time.monotonic() - self._heard_at
        slow = silent > _PATIENCE + 2 * max(self._pace.interval, self._gap)  # slow answers are rare answers
        return self._silence or (f"Slurm hasn't answered for {silent:.0f} s" if slow else "")

    # --- Slurm ----------------------------------------------------------------------------------------------------

    async def _follow(self, watched: Watched) -> None:
        """Asks the slurmctld in charge. When another takes over, it switches at once."""
        backoff = Backoff(first=0.2, last=3.0)
        while not watched.complete:
            await asyncio.sleep(_SOONEST)
        while True:
            pod = watched.slurmctld
            try:
                await _first(self._ask(pod, backoff), self._until_another(watched, pod))
            except SeltzerError as error:
                self._fell_silent(str(error))
            if watched.slurmctld == pod:
                await asyncio.sleep(backoff.next())

    async def _until_another(self, watched: Watched, pod: str) -> None:
        while watched.slurmctld == pod:
            self._moved.clear()
            await self._moved.wait()

    async def _ask(self, pod: str, backoff: Backoff) -> None:
        question = snapshot.question()
        flags = ("exec", "--stdin", "--quiet", pod, "--container", "slurmctld", "--")
        start = [kubectl.find(), *self._place.kubectl_flags, *flags]
        last = ""
        async with contextlib.aclosing(answers(start, Loop(question.command), self._pace)) as rounds:
            async for answer in rounds:
                try:
                    last = await self._hear(question, answer.checked(), last)
                except SeltzerError as error:
                    self._fell_silent(str(error))
                else:
                    backoff.reset()

    async def _hear(self, question: Question, text: str, last: str) -> str:
        """Takes an answer. Returns what follows the clock, and parses it if it is new or the last parse is old."""
        clock, _, rest = text.partition(question.separator)
        now = int(clock) if clock.isdigit() else 0
        if rest != last or self._slurm is None or not 0 <= now - self._slurm.now <= _OLD:
            # In a thread: parsing thousands of jobs takes longer than a key press should wait.
            self._slurm = await asyncio.to_thread(question.read, text)
            self._changed.set()
        if self._silence:
            self._changed.set()
        now_here = time.monotonic()
        self._silence, self._gap, self._heard_at = "", now_here - self._heard_at, now_here
        self._ahead = round(now - time.time())
        return rest

    def _fell_silent(self, why: str) -> None:
        self._silence = f"Slurm doesn't answer: {why}"
        self._changed.set()


async def _first(*jobs: Coroutine[Any, Any, None]) -> None:
    """Runs all until the first is done, with its outcome. The others are cancelled."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
