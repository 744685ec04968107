"""What a dashboard shows at one moment: the rows of each table, filtered and sorted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seltzer.view.facts import Facts
from seltzer.view.panes import PANES, NodeRow, node_rows


@dataclass(frozen=True)
class Update:
    """A cluster as it is known now."""

    facts: Facts
    trouble: str = ""
    """Why the facts may be stale; empty if they aren't."""
    ahead: float = 0.0
    """By how many seconds slurmctld's clock is ahead of ours."""


@dataclass(frozen=True)
class Choice:
    """The sort order of a table, and the words that its rows must contain."""

    sort: int = 0
    words: str = ""


@dataclass(frozen=True)
class Frame:
    """The rows of each table."""

    update: Update
    nodes: list[NodeRow]
    """All nodes, whatever the filter."""
    rows: Mapping[str, list[Any]]
    """The rows of each table that match its filter, in its order."""
    titles: Mapping[str, str]


def frame(update: Update, choices: Mapping[str, Choice]) -> Frame:
    """The rows and titles for these choices."""
    known, nodes = update.facts, node_rows(update.facts)
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
    return Frame(update, nodes, rows, titles)
