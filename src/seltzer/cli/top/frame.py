"""What there is to show at one moment, made where it holds up nobody: facts in, ordered rows out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seltzer.cli.top.feed import Update
from seltzer.cli.top.model import Pane
from seltzer.cli.top.rows import EVENTS, NODES, QUEUE, NodeRow, node_rows

PANES: Mapping[str, Pane[Any]] = {"nodes": NODES, "queue": QUEUE, "events": EVENTS}


@dataclass(frozen=True)
class Choice:
    """How a table is sorted, and for what it is searched."""

    sort: int = 0
    words: str = ""


@dataclass(frozen=True)
class Frame:
    """The rows of each table."""

    news: Update
    nodes: list[NodeRow]
    """All of them."""
    rows: Mapping[str, list[Any]]
    """Of each table those that were asked for, in the order that was asked for."""
    titles: Mapping[str, str]


def frame(news: Update, choices: Mapping[str, Choice]) -> Frame:
    known, nodes = news.facts, node_rows(news.facts)
    jobs = known.slurm.jobs if known.slurm else ()
    all_rows: dict[str, Any] = {"nodes": nodes, "queue": jobs, "events": known.events}
    rows, titles = {}, {}
    for name, pane in PANES.items():
        choice = choices[name]
        rows[name] = pane.ordered(all_rows[name], choice.sort, choice.words)
        shown, there = len(rows[name]), len(all_rows[name])
        count = str(there) if shown == there else f"{shown} of {there}"
        words = f"  /{choice.words}" if choice.words else ""
        titles[name] = f"{pane.title} {count}  by {pane.sorts[choice.sort][0]}{words}"
    return Frame(news, nodes, rows, titles)
