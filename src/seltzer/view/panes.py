"""The tables of a dashboard, such as `seltzer top`: nodes, jobs and Events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from seltzer.api.labels import UNLIMITED
from seltzer.slurm import hostlist
from seltzer.slurm.snapshot import Job, tidy
from seltzer.view import colours, nodes
from seltzer.view.events import Event
from seltzer.view.facts import Facts
from seltzer.view.nodes import Row
from seltzer.view.text import Cell, natural
from seltzer.view.times import parse, span, until

T = TypeVar("T")

_FINE = ("idle", "mixed", "allocated")
_NEVER = 1 << 62


@dataclass(frozen=True)
class Column:
    """A column as wide as its content, up to `most`. If room is short, columns of the highest rank are left out."""

    title: str
    rank: int = 0
    most: int = 40
    flexible: bool = False
    """It takes the room that is left, and shrinks to `least` before a column is left out."""
    least: int = 12
    right: bool = False


@dataclass(frozen=True)
class Pane(Generic[T]):
    """One of the tables: its columns, its sort orders, and the text that a search looks at."""

    title: str
    columns: Sequence[Column]
    key: Callable[[T], str]
    cells: Callable[[T, float], Sequence[Cell]]
    """The cells of a row at a time, by the clock of the row's own times."""
    sorts: Sequence[tuple[str, Callable[[T], Any]]]
    words: Callable[[T], str]

    def ordered(self, rows: Iterable[T], sort: int, wanted: str) -> list[T]:
        """The rows that contain all wanted words, in that order. The sort is stable."""
        words = wanted.lower().split()
        if words:
            rows = [row for row in rows if _has(self.words(row).lower(), words)]
        return sorted(rows, key=self.sorts[sort % len(self.sorts)][1])


def _has(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


@dataclass(frozen=True)
class NodeRow:
    """A node in words, and the values that it is sorted by."""

    row: Row
    jobs: int
    free_at: int | Literal["unlimited"] | None

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def troubled(self) -> bool:
        return self.row.kind not in _FINE


def node_rows(known: Facts) -> list[NodeRow]:
    """All nodes, in natural order."""
    return [NodeRow(row, len(known.jobs_on(row.name)), known.free_at(row.name)) for row in nodes.rows(known)]


def _node_cells(each: NodeRow, now: float) -> Sequence[Cell]:
    row = each.row
    reason = f"{row.by}: {row.reason}" if row.by else row.reason
    return (
        Cell(row.name, colours.TITLE),
        Cell(row.state, colours.STATES[row.kind]),
        Cell(row.jobs),
        Cell(_free(each.free_at, now)),
        Cell(row.machine),
        Cell(row.pod, "" if row.pod == "Running" else colours.WARNING),
        Cell(reason, colours.WARNING if each.troubled else ""),
    )


def _span(seconds: float) -> str:
    return span(int(seconds))


def _free(when: int | Literal["unlimited"] | None, now: float) -> str:
    return "" if when is None else UNLIMITED if when == UNLIMITED else until(int(when - now))


def _last_first(when: int | Literal["unlimited"] | None) -> int:
    return 0 if when is None else _NEVER if when == UNLIMITED else when


NODES: Pane[NodeRow] = Pane(
    "Nodes",
    (
        Column("NODE", most=32),
        Column("STATE", most=32),
        Column("JOBS", rank=3, most=20),
        Column("FREE", rank=4),
        Column("ON", rank=2, most=32),
        Column("POD", rank=5, most=20),
        Column("REASON", rank=1, most=200, flexible=True),
    ),
    key=lambda each: each.name,
    cells=_node_cells,
    sorts=(
        ("trouble", lambda each: not each.troubled),
        ("name", lambda each: 0),
        ("state", lambda each: -nodes.STATES.index(each.row.kind)),
        ("jobs", lambda each: -each.jobs),
        ("free", lambda each: _last_first(each.free_at)),
        ("Kubernetes node", lambda each: natural(each.row.machine)),
    ),
    words=lambda each: " ".join(
        (each.name, each.row.state, each.row.pod, each.row.machine, each.row.reason, each.row.by)
    ),
)


def _job_cells(job: Job, now: float) -> Sequence[Cell]:
    since = job.submit if job.pending else job.start
    if job.pending:
        left = "" if job.limit is None else span(job.limit)
    else:
        left = UNLIMITED if job.end is None else _span(job.end - now)
    where = hostlist.fold(job.nodes) if job.nodes else f"{job.node_count} wanted"
    return (
        Cell(job.id, colours.TITLE),
        Cell(job.state.lower(), colours.job(job.state)),
        Cell(job.user),
        Cell(job.partition),
        Cell(_span(now - since) if since is not None else ""),
        Cell(left),
        Cell(where, "" if job.nodes else colours.MINOR),
        Cell(job.reason, colours.WARNING if job.pending else ""),
        Cell(job.name),
    )


QUEUE: Pane[Job] = Pane(
    "Queue",
    (
        Column("JOB", most=20),
        Column("STATE", most=12),
        Column("USER", rank=3, most=16),
        Column("PARTITION", rank=5, most=16),
        Column("FOR", rank=4, right=True),
        Column("LEFT", rank=6, right=True),
        Column("NODES", rank=1, most=60, flexible=True, least=8),
        Column("WHY", rank=2, most=28),
        Column("NAME", rank=7, most=200, flexible=True, least=8),
    ),
    key=lambda job: f"{job.id} {job.number}",
    cells=_job_cells,
    sorts=(
        ("state", lambda job: (job.pending, -job.priority, job.number)),
        ("job", lambda job: job.number),
        ("newest", lambda job: -job.number),
        ("user", lambda job: (job.user, job.number)),
        ("partition", lambda job: (job.partition, job.number)),
        ("end", lambda job: (job.pending, _NEVER if job.end is None else job.end)),
    ),
    words=lambda job: f"{job.id} {job.state} {job.user} {job.partition} {job.reason} {job.name} {' '.join(job.nodes)}",
)


def _when(event: Event) -> float:
    found = parse(event.time)
    return found.timestamp() if found else 0.0


def _event_cells(event: Event, now: float) -> Sequence[Cell]:
    when = _when(event)
    warns = event.type == "Warning"
    often = f" (x{event.times})" if event.times > 1 else ""
    return (
        Cell(_span(now - when) if when else "", colours.MINOR),
        Cell("!" if warns else "", colours.event(event.type)),
        Cell(event.about),
        Cell(event.reason, colours.event(event.type)),
        Cell(tidy(event.message) + often),
    )


EVENTS: Pane[Event] = Pane(
    "Events",
    (
        Column("AGO", rank=2, right=True),
        Column(""),
        Column("ABOUT", rank=1),
        Column("REASON"),
        Column("MESSAGE", most=1000, flexible=True),
    ),
    key=lambda event: event.metadata.uid,
    cells=_event_cells,
    sorts=(
        ("newest", lambda event: -_when(event)),
        ("oldest", lambda event: _when(event)),
        ("warnings", lambda event: (event.type != "Warning", -_when(event))),
    ),
    words=lambda event: f"{event.type} {event.about} {event.reason} {event.message}",
)

PANES: Mapping[str, Pane[Any]] = {"nodes": NODES, "queue": QUEUE, "events": EVENTS}
