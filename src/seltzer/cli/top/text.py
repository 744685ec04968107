"""The same as `seltzer top` shows, once and as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from seltzer.cli import show as shown
from seltzer.cli.facts import Facts
from seltzer.cli.top import header
from seltzer.cli.top.feed import Update
from seltzer.cli.top.frame import PANES, Choice, Frame, frame
from seltzer.cli.top.model import GAP, Cell, fit, padded


def show(known: Facts, now: datetime) -> None:
    """Print it; what isn't known goes to stderr."""
    for gap in known.gaps:
        print(f"note: {gap}", file=sys.stderr)
    console = shown.console()
    for line in lines(frame(Update(known), dict.fromkeys(PANES, Choice())), console.width, now):
        console.print(line, soft_wrap=True)


def lines(made: Frame, width: int, now: datetime) -> list[Text]:
    """Header and tables, as wide as that; a table without rows is left out."""
    known = made.news.facts
    found = header.lines(known, made.nodes, now)
    slurm = known.slurm.now if known.slurm else now.timestamp()
    for name, pane in PANES.items():
        clock = now.timestamp() if name == "events" else slurm
        table = [pane.cells(row, clock) for row in made.rows[name]]
        if not table:
            continue
        titles = [Cell(column.title, "bold") for column in pane.columns]
        needed = [max(cell_len(cell.text) for cell in column) for column in zip(titles, *table, strict=True)]
        widths = fit(pane.columns, needed, min(width, sum(needed) + GAP * len(needed)))
        found += [Text(), *(_line(row, widths) for row in [titles, *table])]
    return found


def _line(row: Sequence[Cell], widths: Sequence[int]) -> Text:
    line = Text()
    for cell, width in zip(row, widths, strict=True):
        if width:
            line.append(padded(cell.text, width), cell.style).append(" " * GAP)
    line.rstrip()
    return line
