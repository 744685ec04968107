"""A cluster for `seltzer top` to look at, without any Kubernetes or Slurm: news by hand, and keys that only tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from tests.fakes import specs

from seltzer.api.core import Lease, LeaseSpec, ObjectCondition, ObjectMeta, ObjectReference, Pod, PodSpec, PodStatus
from seltzer.errors import SeltzerError
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.slurm.models import Node, Number
from seltzer.slurm.snapshot import Job, Snapshot
from seltzer.view.controller import ControllerFacts
from seltzer.view.events import Event
from seltzer.view.facts import Facts
from seltzer.view.frame import Update

NOW = 1_800_000_000
STAMP = datetime.fromtimestamp(NOW, UTC).isoformat()
CONTROLLER = "demo-slurmctld-7b6bf674bb-9qfnz"


def node(name: str, *state: str, reason: str = "", by: str = "", jobs: bool = False) -> Node:
    states = state or (("MIXED",) if jobs else ("IDLE",))
    when = Number(set=bool(reason), number=NOW - 60)
    return Node(name, (*states, "DYNAMIC_NORM"), reason=reason, reason_set_by_user=by, cpus=2, reasoned=when)


def job(
    number: int, *nodes: str, state: str = "", name: str = "train", reason: str = "", minutes: int | None = 30
) -> Job:
    running = bool(nodes)
    return Job(
        str(number),
        number,
        "ada",
        name,
        state or ("RUNNING" if running else "PENDING"),
        reason,
        "cpu",
        nodes,
        start=NOW - 90 if running else None,
        end=NOW + 60 * minutes if running and minutes is not None else None,
        submit=NOW - 120,
        limit=None if minutes is None else 60 * minutes,
        node_count=max(1, len(nodes)),
    )


def pod(name: str, machine: str = "n1") -> Pod:
    ready = ObjectCondition(type="Ready", status="True", last_transition_time=STAMP)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=name),
        spec=PodSpec(node_name=machine),
        status=PodStatus(phase="Running", conditions=(ready,)),
    )


def event(reason: str, message: str, *, warns: bool = False, ago: int = 0) -> Event:
    when = datetime.fromtimestamp(NOW - ago, UTC).isoformat()
    return Event(
        metadata=ObjectMeta(name=f"{reason}-{ago}", namespace="ns", uid=f"{reason}-{ago}"),
        type="Warning" if warns else "Normal",
        reason=reason,
        message=message,
        last_timestamp=when,
        involved_object=ObjectReference(kind="NodeSet", name="cpu", namespace="ns"),
    )


def lease(holder: str = CONTROLLER, phase: str = "running", transitions: int = 0) -> Lease:
    told = {"seltzer.dev/phase": phase, "seltzer.dev/slurm-version": "26.05.5", "seltzer.dev/restarts": "0"}
    spec = LeaseSpec(holder_identity=holder, lease_transitions=transitions)
    return Lease(metadata=ObjectMeta(name="demo-slurmctld", namespace="ns", annotations=told), spec=spec)


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
        specs.cluster(),
        datetime.fromtimestamp(NOW, UTC),
        pods={name: pod(name) for name in known},
        controller=ControllerFacts(GuardReport(told or lease()), {CONTROLLER: pod(CONTROLLER, "n2")}),
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
