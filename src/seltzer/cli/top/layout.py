"""The layout of tables on a screen: which columns fit, and how tables share its lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from seltzer.view.panes import Column

GAP = 2
# Lines of a table: enough to work with; enough to see its title, its header and a row.
_USEFUL, _GLIMPSE = 7, 3


def fit(columns: Sequence[Column], needed: Sequence[int], width: int) -> list[int]:
    """The width of each column; 0 if it doesn't fit."""
    capped = [min(need, column.most) for column, need in zip(columns, needed, strict=True)]
    floors = [
        min(wide, column.least) if column.flexible else wide for column, wide in zip(columns, capped, strict=True)
    ]
    kept = list(range(len(columns)))
    while len(kept) > 1 and _taken(floors[at] for at in kept) > width:
        kept.remove(max(kept, key=lambda at: (columns[at].rank, at)))
    found = [floors[at] if at in kept else 0 for at in range(len(columns))]
    room = max(0, width - _taken(found[at] for at in kept))
    # First up to their maximum, then up to what they need.
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
    """The text in exactly that many cells. A text that is cut ends with an ellipsis."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    blank = " " * (width - length)
    return blank + text if right else text + blank


def share(needs: Sequence[int], room: int, favourite: int) -> list[int]:
    """The number of lines of each table, of `room` in all. The last one gets what is left.

    A table that needs less than its fair share gets what it needs. If fair shares are too small to be useful, the
    favourite comes first, and the others show at least their titles.
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
