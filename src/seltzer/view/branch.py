"""A tree whose branches are rows of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seltzer.view import colours
from seltzer.view.text import Cell, Line


@dataclass(frozen=True)
class Branch:
    """A row and what is below it. Siblings with several columns have the same number, and are shown as a table."""

    columns: Sequence[Line]
    children: Sequence[Branch] = ()

    @classmethod
    def of(cls, line: Line, children: Sequence[Branch] = ()) -> Branch:
        """A row of one column."""
        return cls((line,), children)

    @classmethod
    def titled(
        cls, title: str, children: Sequence[Branch] = (), *, after: str = "", style: str = colours.TITLE
    ) -> Branch:
        """A title, with plain text after it."""
        return cls.of((Cell(title, style), Cell(after)) if after else (Cell(title, style),), children)
