"""Text for people: cells with a style, lines of them, the order of names, and suggestions for a mistyped word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Cell(NamedTuple):
    """A piece of text on one line, and its style as `colours` has it."""

    text: str
    style: str = ""


Line = tuple[Cell, ...]
"""Cells one after the other, with nothing in between."""


def line(*parts: str | Cell) -> Line:
    """A line of these parts."""
    return tuple(part if isinstance(part, Cell) else Cell(part) for part in parts)


def joined(lines: Iterable[Line], separator: str) -> Line:
    """One line, with the separator between each two."""
    found: list[Cell] = []
    for each in lines:
        found += [*((Cell(separator),) if found else ()), *each]
    return tuple(found)


def plain(cells: Line) -> str:
    """The text without styles."""
    return "".join(cell.text for cell in cells)


def natural(name: str) -> tuple[tuple[str, int, str], ...]:
    """A sort key that puts numbers in numeric order: cpu-2 before cpu-10."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [*parts[1::2], ""]
    return tuple((words, int(digits or 0), digits) for words, digits in zip(parts[::2], numbers, strict=True))


def suggestion(word: str, known: Iterable[str]) -> str:
    """What a mistyped word may stand for, and what else there is."""
    names = list(dict.fromkeys(known))
    if not names:
        return "there are none"
    close = difflib.get_close_matches(word, names, 1)
    there = f"there {'is' if len(names) == 1 else 'are'} {_listed(names)}"
    return f"did you mean {close[0]!r}? ({there})" if close else there


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
