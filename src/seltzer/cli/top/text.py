"""`seltzer top --once`: header and tables as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from seltzer.cli import show as shown
from seltzer.cli.top.layout import GAP, fit, padded
from seltzer.view import colours, header
from seltzer.view.facts import Facts
from seltzer.view.frame import Choice, Frame, Update, frame
from seltzer.view.panes import PANES
from seltzer.view.text import Cell


def show(known: Facts, now: datetime) -> None:
    """Prints it, and gaps in the facts on stderr."""
    for gap in known.gaps:
        print(f"note: {gap}", file=sys.stderr)
    console = shown.console()
    for line in lines(frame(Update(known), dict.fromkeys(PANES, Choice())), console.width, now):
        console.print(line, soft_wrap=True)


def lines(made: Frame, width: int, now: datetime) -> list[Text]:
    """Header and tables in that width. Tables without rows are left out."""
    known = made.update.facts
    found = [shown.text(line) for line in header.lines(known, made.nodes, now)]
    slurm = known.slurm.now if known.slurm else now.timestamp()
    for name, pane in PANES.items():
        clock = now.timestamp() if name == "events" else slurm
        table = [pane.cells(row, clock) for row in made.rows[name]]
        if not table:
            continue
        titles = [Cell(column.title, colours.TITLE) for column in pane.columns]
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
