"""How nodes are shown: a table that fits, whatever the terminal's width. No I/O but the last step."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from seltzer.cli import show

STATES = ("idle", "mixed", "allocated", "draining", "drained", "down", "other", "unknown")
"""Each node is in one of them; unknown: Slurm has no record of it, or can't be asked."""
_COLOURS = {
    "idle": "green",
    "mixed": "cyan",
    "allocated": "cyan",
    "draining": "yellow",
    "drained": "yellow",
    "down": "red",
    "other": "magenta",
    "unknown": "dim",
}
# The least that is left for reasons on the line; with less they get lines of their own.
_ROOM = 24
_INDENT = "  "
_COLUMNS = (("name", "NODE"), ("pod", "POD"), ("machine", "ON"), ("state", "STATE"), ("jobs", "JOBS"), ("free", "FREE"))


@dataclass(frozen=True)
class Row:
    """One node, in words."""

    name: str
    nodeset: str
    pod: str
    """How its pod is, in a word; `none` where it has none."""
    machine: str
    """The Kubernetes node, with what is wrong with it."""
    kind: str
    """One of STATES."""
    state: str
    """The same, with what there is to add."""
    jobs: str
    free: str
    """When no job will be on it."""
    by: str
    """Who set its reason, and how long ago."""
    reason: str
    """Why it takes no jobs, as far as anybody knows."""


def print_rows(console: Console, found: Sequence[Row], total: int) -> None:
    """A table that fits: reasons that have no room beside their node come below it."""
    if not found:
        print(f"none of {total} nodes is so" if total else "there are no nodes", file=sys.stderr)
        return
    console.print(Text("\n").join(table(found, console.width)), soft_wrap=True)
    if console.is_terminal:
        console.print(Text(summary(found, total), "dim"))


def summary(found: Sequence[Row], total: int) -> str:
    """How many are in which state: at the end, where one looks after hundreds of lines."""
    counts = Counter(each.kind for each in found)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    of = f" of {total}" if total != len(found) else ""
    return f"{len(found)}{of} node{'s' if len(found) != 1 or of else ''}: {', '.join(parts)}"


def table(found: Sequence[Row], width: int) -> list[Text]:
    """Header and rows. Columns that don't fit are left out, the least telling first."""
    left_out: list[str] = []
    for least in ("", "jobs", "pod", "machine", "free"):
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
    return [Text(title, "bold") for _, title in columns]


def _cells(each: Row, columns: Sequence[tuple[str, str]]) -> list[Text]:
    styles = {"name": "bold", "state": _COLOURS[each.kind]}
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
