"""The table of `seltzer nodes`: it fits into any width."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from seltzer.cli import show
from seltzer.view import colours
from seltzer.view.nodes import Row, summary

# The least width for reasons beside their nodes; with less they get lines of their own.
_ROOM = 24
_INDENT = "  "
_COLUMNS = (
    ("name", "NODE"),
    ("pod", "POD"),
    ("machine", "ON"),
    ("state", "STATE"),
    ("gpus", "GPUS"),
    ("jobs", "JOBS"),
    ("free", "FREE"),
)


def print_rows(console: Console, found: Sequence[Row], total: int) -> None:
    """Prints the table. Reasons that don't fit beside their node are printed below it."""
    if not found:
        print(f"none of {total} nodes is so" if total else "there are no nodes", file=sys.stderr)
        return
    console.print(Text("\n").join(table(found, console.width)), soft_wrap=True)
    if console.is_terminal:
        console.print(Text(summary(found, total), colours.MINOR))


def table(found: Sequence[Row], width: int) -> list[Text]:
    """Header and rows. Columns that don't fit are left out, the least important first."""
    left_out: list[str] = [] if any(each.gpus for each in found) else ["gpus"]
    for least in ("", "jobs", "pod", "machine", "free", "gpus"):
        left_out += [least] if least else []
        columns = [column for column in _COLUMNS if column[0] not in left_out]
        lines = show.aligned([_header(columns), *(_cells(each, columns) for each in found)])
        taken = max(line.cell_len for line in lines)
        if taken <= width:
            break
    reasons = [_reason(each) for each in found]
    if not any(reasons):
        return lines
    if max(map(len, reasons)) + taken + 2 <= width or width - taken - 2 >= _ROOM:
        return _beside(lines, ["REASON", *reasons], taken + 2, width)
    return _below(lines, reasons, width)


def _header(columns: Sequence[tuple[str, str]]) -> list[Text]:
    return [Text(title, colours.TITLE) for _, title in columns]


def _cells(each: Row, columns: Sequence[tuple[str, str]]) -> list[Text]:
    styles = {"name": colours.TITLE, "state": colours.STATES[each.kind]}
    return [Text(getattr(each, field) or "-", styles.get(field, "")) for field, _ in columns]


def _reason(each: Row) -> str:
    return ": ".join(words for words in (each.by, each.reason) if words)


def _beside(lines: Sequence[Text], reasons: Sequence[str], at: int, width: int) -> list[Text]:
    made = []
    for number, (line, reason) in enumerate(zip(lines, reasons, strict=True)):
        words = Text(reason, "" if number else "bold")
        words.truncate(width - at, overflow="ellipsis")
        made.append(Text.assemble(line, " " * (at - line.cell_len), words) if reason else line)
    return made


def _below(lines: Sequence[Text], reasons: Sequence[str], width: int) -> list[Text]:
    made = [lines[0]]
    for line, reason in zip(lines[1:], reasons, strict=True):
        words = Text(_INDENT + reason, "dim")
        words.truncate(max(width, 2 * _ROOM), overflow="ellipsis")
        made += [line, words] if reason else [line]
    return made
