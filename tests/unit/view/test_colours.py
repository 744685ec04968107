"""There is one table of colours, and it has all states."""

from __future__ import annotations

from pathlib import Path

from rich.style import Style

from seltzer.api.common import NodeCounts
from seltzer.view import colours

SOURCES = Path(colours.__file__).parents[1]


def test_every_state_that_is_counted_has_a_colour() -> None:
    assert {*NodeCounts.__struct_fields__} - {"total"} <= {*colours.STATES}


def test_every_style_is_one_that_rich_knows() -> None:
    styles = {*colours.STATES.values(), *colours.CONDITIONS.values(), colours.event("Warning"), colours.job("?")}
    assert all(Style.parse(style) for style in styles)


def test_no_other_file_of_the_view_names_a_colour() -> None:
    names = ('"green"', '"cyan"', '"yellow"', '"red"', '"magenta"', '"dim"')
    found = [
        file.name
        for file in (SOURCES / "view").rglob("*.py")
        if file.name != "colours.py" and any(name in file.read_text() for name in names)
    ]
    assert found == []
