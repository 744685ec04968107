"""A cluster for `seltzer top` to look at, without any Kubernetes or Slurm: news by hand, and keys that only tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from tests.builders import objects
from tests.builders import slurm as builders

from seltzer.api.core import Lease
from seltzer.errors import SeltzerError
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Job, Snapshot
from seltzer.view.controller import ControllerFacts
from seltzer.view.events import Event
from seltzer.view.facts import Facts
from seltzer.view.frame import Update

NOW = 1_800_000_000
CONTROLLER = "demo-slurmctld-7b6bf674bb-9qfnz"


def node(name: str, *state: str, reason: str = "", by: str = "", jobs: bool = False) -> Node:
    """A record, by the clock of this world."""
    states = state or (("MIXED",) if jobs else ("IDLE",))
    return builders.node(name, " ".join(states), reason=reason, reason_set_by_user=by, cpus=2, since=NOW - 60)


def job(
    number: int, *nodes: str, state: str = "", name: str = "train", reason: str = "", minutes: int | None = 30
) -> Job:
    """A job, which runs if it has nodes, by the clock of this world."""
    running = bool(nodes)
    return builders.job(
        str(number),
        state or ("RUNNING" if running else "PENDING"),
        *nodes,
        number=number,
        user="ada",
        name=name,
        reason=reason,
        start=NOW - 90 if running else None,
        end=NOW + 60 * minutes if running and minutes is not None else None,
        submit=NOW - 120,
        limit=None if minutes is None else 60 * minutes,
        node_count=max(1, len(nodes)),
    )


def event(reason: str, message: str, *, warns: bool = False, ago: int = 0) -> Event:
    """An Event, by the clock of this world."""
    return objects.event(reason, message, warns=warns, time=float(NOW - ago), uid=f"{reason}-{ago}")


def lease(holder: str = CONTROLLER, phase: str = "running", transitions: int = 0) -> Lease:
    """The Lease of a controller that runs Slurm 26.05.5."""
    return objects.lease(holder, transitions=transitions, phase=phase, slurm_version="26.05.5", restarts="0")


def facts(
    nodes: Iterable[Node] = (),
    jobs: Sequence[Job] = (),
    events: Sequence[Event] = (),
    told: Lease | None = None,
    *,
    silent: bool = False,
) -> Facts:
    """A cluster with these nodes, each with a pod, as both sides tell it."""
    known = {each.name: each for each in nodes}
    return Facts(
        objects.cluster(),
        datetime.fromtimestamp(NOW, UTC),
        pods={name: objects.pod(name, machine="n1", since=NOW) for name in known},
        controller=ControllerFacts(
            GuardReport(told or lease()), {CONTROLLER: objects.pod(CONTROLLER, machine="n2", since=NOW)}
        ),
        events=events,
        slurm=None if silent else Snapshot(NOW, known, jobs, {}),
    )


class HandFeed:
    """Tells what a test tells it to."""

    def __init__(self, *news: Update) -> None:
        self._first = news
        self._tell: Callable[[Update], None] | None = None
        self.hurried = 0
        self.failure: Exception | None = None
        self._ended = asyncio.Event()

    async def run(self, tell: Callable[[Update], None]) -> None:
        self._tell = tell
        for each in self._first:
            tell(each)
        await self._ended.wait()
        if self.failure:
            raise self.failure

    def tell(self, news: Update) -> None:
        assert self._tell
        self._tell(news)

    def fail(self, error: Exception) -> None:
        self.failure = error
        self._ended.set()

    def hurry(self) -> None:
        self.hurried += 1


class ToldActions:
    """Does nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.refusal: str = ""

    async def drain(self, known: Facts, node: str, reason: str) -> str:
        return self._take("drain", node, reason)

    async def resume(self, known: Facts, node: str) -> str:
        return self._take("resume", node)

    async def cancel(self, known: Facts, job: Job) -> str:
        return self._take("cancel", job.id)

    def logs(self, known: Facts, node: str | None) -> Sequence[str]:
        self._take("logs", node or "slurmctld")
        return ["printf", "first line\\n\\033[2Jsecond line\\n"]

    def _take(self, *words: str) -> str:
        if self.refusal:
            raise SeltzerError(self.refusal)
        self.asked.append(words)
        return " ".join(words)
