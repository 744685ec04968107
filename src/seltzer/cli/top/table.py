"""A table of any length that renders only its visible lines.

Its rows are objects of the view. It makes their cells when it draws a line: 5,000 jobs cost as much as those on the
screen. It draws a line again only if its cells have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from seltzer.cli.top.layout import GAP, fit, padded
from seltzer.view import colours
from seltzer.view.panes import Pane
from seltzer.view.text import Cell

T = TypeVar("T")
_WHEEL = 3


class Tables(Vertical):
    """The area that tables share."""

    class Resized(Message):
        """The area has another size."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class Table(ScrollView, Generic[T], can_focus=True):
    """Rows with a cursor, which stays on its row when others come and go."""

    DEFAULT_CSS = "Table { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }"

    def __init__(self, pane: Pane[T], now: Callable[[], float], *, id: str) -> None:
        super().__init__(id=id)
        self.pane = pane
        self._now = now
        self._rows: Sequence[T] = ()
        self._at = 0
        self._follows = True
        self._greyed = False
        self._empty = ""
        self._needed = [cell_len(column.title) for column in pane.columns]
        self._widths: list[int] = []
        self._drawn: dict[int, tuple[Sequence[Cell], bool]] = {}

    @property
    def selected(self) -> T | None:
        """The row under the cursor."""
        return self._rows[self._at] if self._rows else None

    @property
    def rows(self) -> Sequence[T]:
        return self._rows

    def show(self, rows: Sequence[T], *, greyed: bool = False, empty: str = "", reset: bool = False) -> None:
        """Shows these rows. The cursor follows its row; if that is gone, it keeps its position.

        `reset` moves the cursor to the top.
        """
        self._at = 0 if reset else self._at
        before = None if reset else self.selected
        if before is not None and not (self._at < len(rows) and self._is_same(rows[self._at], before)):
            self._at = next((at for at, row in enumerate(rows) if self._is_same(row, before)), self._at)
        self._rows, self._empty = rows, empty
        self._at = max(0, min(self._at, len(rows) - 1))
        if greyed != self._greyed:
            self._greyed = greyed
            self._drawn.clear()
        self._measure()
        self.redraw()

    def _measure(self) -> None:
        size = Size(self._width, len(self._rows) + 1)
        if size != self.virtual_size:
            self.virtual_size = size

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def lines_needed(self) -> int:
        """The lines that it takes to show everything."""
        return max(1, len(self._rows)) + 2

    def _is_same(self, one: T, other: T) -> bool:
        return one is other or self.pane.key(one) == self.pane.key(other)

    def redraw(self) -> None:
        """Draws the lines whose cells differ from those on the screen."""
        if self._follows:
            self._keep_in_sight()
        now, changed = self._now(), []
        for y in range(1, self.size.height):
            at = self._index(y)
            is_ = (self.pane.cells(self._rows[at], now), at == self._at) if at < len(self._rows) else None
            if is_ != self._drawn.get(y):
                changed.append(y)
            for column, cell in enumerate(is_[0] if is_ else ()):
                self._needed[column] = max(self._needed[column], cell_len(cell.text))
        if self._fitted() != self._widths or not self._drawn:
            self.refresh()
            return
        for y in changed:
            self.refresh_line(y + self.scroll_offset.y)

    def _fitted(self) -> list[int]:
        return fit(self.pane.columns, self._needed, self._width)

    def _index(self, y: int) -> int:
        return y - 1 + round(self.scroll_offset.y)

    def render_line(self, y: int) -> Strip:
        width, base = self._width, self.rich_style
        if y == 0:
            titles = [Cell(column.title, colours.TITLE) for column in self.pane.columns]
            return self._strip(titles, base, width)
        at = self._index(y)
        if at >= len(self._rows):
            self._drawn.pop(y, None)
            text = padded(self._empty, width) if y == 1 and not self._rows else " " * width
            return Strip([Segment(text, base + Style(dim=True))], width)
        cells = self.pane.cells(self._rows[at], self._now())
        self._drawn[y] = (cells, at == self._at)
        here = at == self._at
        if here and self.has_focus:
            base, cells = base + Style(reverse=True), [Cell(cell.text) for cell in cells]
        elif here:
            base += Style(bold=True)
        if self._greyed:
            cells = [Cell(cell.text, colours.MINOR) for cell in cells]
        return self._strip(cells, base, width)

    def _strip(self, cells: Sequence[Cell], base: Style, width: int) -> Strip:
        self._widths = self._fitted()
        segments = []
        for cell, wide, column in zip(cells, self._widths, self.pane.columns, strict=True):
            if wide:
                segments.append(Segment(padded(cell.text, wide, right=column.right), base + _style(cell.style)))
                segments.append(Segment(" " * GAP, base))
        return Strip(segments).adjust_cell_length(width, base)

    # --- input ----------------------------------------------------------------------------------------------------

    def move(self, rows: int = 0, pages: int = 0) -> None:
        """Moves the cursor, at most to the first or last row."""
        self.go_to(self._at + rows + pages * max(1, self.size.height - 2))

    def go_to(self, at: int) -> None:
        """Moves the cursor to this row, or to the nearest one, and scrolls to it."""
        self._at, self._follows = max(0, min(at, len(self._rows) - 1)), True
        self.redraw()

    def _keep_in_sight(self) -> None:
        top, seen = round(self.scroll_offset.y), max(1, self.size.height - 1)
        if self._at < top:
            self.scroll_to(y=self._at, animate=False)
        elif self._at >= top + seen:
            self.scroll_to(y=self._at - seen + 1, animate=False)

    def on_scroll_to(self) -> None:
        """The scroll bar was moved: don't follow the cursor until it moves again."""
        self._follows = False

    def on_scroll_up(self) -> None:
        self._follows = False

    def on_scroll_down(self) -> None:
        self._follows = False

    def on_click(self, event: events.Click) -> None:
        where = event.get_content_offset(self)
        if where and where.y >= 1 and self._index(where.y) < len(self._rows):
            self.go_to(self._index(where.y))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._roll(event, -_WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._roll(event, _WHEEL)

    def _roll(self, event: events.MouseEvent, rows: int) -> None:
        event.stop()
        event.prevent_default()
        self.move(rows)

    def on_resize(self) -> None:
        self._measure()
        self._draw_all()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._draw_all()  # rows that come into sight may need wider columns

    def _draw_all(self) -> None:
        self._drawn.clear()
        self.redraw()

    def on_focus(self) -> None:
        self._draw_all()

    def on_blur(self) -> None:
        self._draw_all()


@lru_cache(256)
def _style(words: str) -> Style:
    return Style.parse(words)
