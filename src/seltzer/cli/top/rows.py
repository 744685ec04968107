"""Nodes, jobs and events as rows of `seltzer top`. No I/O: facts in, rows and cells out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seltzer.api.labels import UNLIMITED
from seltzer.cli import facts, nodes, show
from seltzer.cli.events import Event
from seltzer.cli.facts import Facts
from seltzer.cli.nodes_table import Row
from seltzer.cli.top.model import Cell, Column, Pane
from seltzer.slurm import hostlist
from seltzer.slurm.snapshot import Job, tidy

COLOURS = {
    "idle": "green",
    "mixed": "cyan",
    "allocated": "cyan",
    "draining": "yellow",
    "drained": "yellow",
    "down": "red",
    "other": "magenta",
    "unknown": "magenta",
}
"""Of a node's states, the best first."""

_FINE = ("idle", "mixed", "allocated")
_JOBS = {"RUNNING": "green", "PENDING": "yellow", "COMPLETING": "cyan", "CONFIGURING": "cyan", "SUSPENDED": "magenta"}
_NEVER = 1 << 62


def ago(seconds: float) -> str:
    return facts.span(int(seconds))


@dataclass(frozen=True)
class NodeRow:
    """A node in words, and the numbers that it is sorted by."""

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
        Cell(row.name, "bold"),
        Cell(row.state, COLOURS[row.kind]),
        Cell(row.jobs),
        Cell(_free(each.free_at, now)),
        Cell(row.machine),
        Cell(row.pod, "" if row.pod == "Running" else "yellow"),
        Cell(reason, "yellow" if each.troubled else ""),
    )


def _free(when: int | Literal["unlimited"] | None, now: float) -> str:
    return "" if when is None else UNLIMITED if when == UNLIMITED else nodes.until(int(when - now))


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
        ("state", lambda each: -list(COLOURS).index(each.row.kind)),
        ("jobs", lambda each: -each.jobs),
        ("free", lambda each: _last_first(each.free_at)),
        ("Kubernetes node", lambda each: facts.natural(each.row.machine)),
    ),
    words=lambda each: " ".join(
        (each.name, each.row.state, each.row.pod, each.row.machine, each.row.reason, each.row.by)
    ),
)


def _job_cells(job: Job, now: float) -> Sequence[Cell]:
    since = job.submit if job.pending else job.start
    if job.pending:
        left = "" if job.limit is None else facts.span(job.limit)
    else:
        left = UNLIMITED if job.end is None else ago(job.end - now)
    where = hostlist.fold(job.nodes) if job.nodes else f"{job.node_count} wanted"
    return (
        Cell(job.id, "bold"),
        Cell(job.state.lower(), _JOBS.get(job.state, "magenta")),
        Cell(job.user),
        Cell(job.partition),
        Cell(ago(now - since) if since is not None else ""),
        Cell(left),
        Cell(where, "" if job.nodes else "dim"),
        Cell(job.reason, "yellow" if job.pending else ""),
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
    found = show.parse(event.time)
    return found.timestamp() if found else 0.0


def _event_cells(event: Event, now: float) -> Sequence[Cell]:
    when = _when(event)
    warns = event.type == "Warning"
    often = f" (x{event.times})" if event.times > 1 else ""
    return (
        Cell(ago(now - when) if when else "", "dim"),
        Cell("!" if warns else "", "bold yellow"),
        Cell(event.about),
        Cell(event.reason, "bold yellow" if warns else "green"),
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
