"""What a table on the screen is made of, and which of its columns fit. No I/O, and nothing of textual."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from rich.cells import cell_len, set_cell_size

T = TypeVar("T")
GAP = 2
# Lines of a table: with these one can work; with these one sees its title, its header and a row.
_USEFUL, _GLIMPSE = 7, 3


class Cell(NamedTuple):
    """A text on one line, and its style as rich knows it."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Column:
    """A column that is as wide as what is in it, up to `most`. Where room is short, those of the highest rank go."""

    title: str
    rank: int = 0
    most: int = 40
    flexible: bool = False
    """It takes the room that is left, and is cut down to `least` before any other goes."""
    least: int = 12
    right: bool = False


@dataclass(frozen=True)
class Pane(Generic[T]):
    """One of the tables: what it shows of whom, by what it can be sorted, and what it is searched for in."""

    title: str
    columns: Sequence[Column]
    key: Callable[[T], str]
    cells: Callable[[T, float], Sequence[Cell]]
    """The cells of a row, at a moment of the clock that the row goes by."""
    sorts: Sequence[tuple[str, Callable[[T], Any]]]
    words: Callable[[T], str]

    def ordered(self, rows: Iterable[T], sort: int, wanted: str) -> list[T]:
        """The rows that have all wanted words in them, in that order; rows that are equal stay as they came."""
        words = wanted.lower().split()
        if words:
            rows = [row for row in rows if _has(self.words(row).lower(), words)]
        return sorted(rows, key=self.sorts[sort % len(self.sorts)][1])


def _has(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def fit(columns: Sequence[Column], needed: Sequence[int], width: int) -> list[int]:
    """How wide each column is; 0: it doesn't fit."""
    capped = [min(need, column.most) for column, need in zip(columns, needed, strict=True)]
    floors = [
        min(wide, column.least) if column.flexible else wide for column, wide in zip(columns, capped, strict=True)
    ]
    kept = list(range(len(columns)))
    while len(kept) > 1 and _taken(floors[at] for at in kept) > width:
        kept.remove(max(kept, key=lambda at: (columns[at].rank, at)))
    found = [floors[at] if at in kept else 0 for at in range(len(columns))]
    room = max(0, width - _taken(found[at] for at in kept))
    # First those that can do with less, then those that were cut short.
    for wanted in (capped, needed):
        for at in kept:
            more = min(room, wanted[at] - found[at])
            found[at] += more
            room -= more
    flexible = [at for at in kept if columns[at].flexible]
    if flexible:
        found[flexible[-1]] += room
    return found


def _taken(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + GAP * (len(each) - 1)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly so many cells; one that is cut says so."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    blank = " " * (width - length)
    return blank + text if right else text + blank


def share(needs: Sequence[int], room: int, favourite: int) -> list[int]:
    """How many lines each of some tables gets, of so many in all; the last gets what is left.

    Each gets what it needs, where that is less than its fair share. Where those are too small to be of use, the
    favourite gets all that it needs first, and of the others at least the titles are seen.
    """
    if room // len(needs) < _USEFUL:
        most = _GLIMPSE if room >= _USEFUL + _GLIMPSE * (len(needs) - 1) else 1
        found = [min(need, most) for need in needs]
        found[favourite] = 0
        found[favourite] = max(1, min(needs[favourite], room - sum(found)))
    else:
        found = _fair(needs, room)
    found[-1] += max(0, room - sum(found))
    return found


def _fair(needs: Sequence[int], room: int) -> list[int]:
    found = [0] * len(needs)
    waiting = list(range(len(needs)))
    while waiting:
        fair = room // len(waiting)
        content = [at for at in waiting if needs[at] <= fair]
        for at in content or waiting:
            found[at] = needs[at] if content else fair
            room -= found[at]
        waiting = [at for at in waiting if content and at not in content]
    return found
