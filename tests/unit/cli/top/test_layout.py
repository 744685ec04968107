"""Which columns of a table fit, and how tables share the lines of a screen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from seltzer.cli.top.layout import GAP, fit, padded, share
from seltzer.view.panes import Column

COLUMNS = (
    Column("NAME"),
    Column("STATE"),
    Column("ON", rank=2),
    Column("REASON", rank=1, flexible=True, least=8, most=100),
)


def test_all_columns_are_as_wide_as_they_need_and_the_flexible_one_takes_the_rest() -> None:
    assert fit(COLUMNS, [5, 7, 2, 20], 80) == [5, 7, 2, 80 - 5 - 7 - 2 - 3 * GAP]


def test_the_flexible_column_is_cut_before_any_goes() -> None:
    assert fit(COLUMNS, [5, 7, 2, 50], 30) == [5, 7, 2, 10]


def test_columns_of_the_highest_rank_go_first() -> None:
    assert fit(COLUMNS, [5, 7, 20, 50], 30) == [5, 7, 0, 14]
    assert fit(COLUMNS, [5, 7, 20, 50], 20) == [5, 7, 0, 0]


def test_a_column_is_wider_than_its_most_only_where_there_is_room() -> None:
    columns = (Column("NAME", most=10), Column("WHY", flexible=True, least=4))
    assert fit(columns, [30, 6], 18) == [10, 6]
    assert fit(columns, [30, 6], 60) == [30, 60 - 30 - GAP]


@given(st.lists(st.integers(0, 60), min_size=4, max_size=4), st.integers(1, 200))
def test_what_is_shown_never_takes_more_than_there_is(needed: list[int], width: int) -> None:
    widths = fit(COLUMNS, needed, width)
    shown = [each for each in widths if each]
    # The last column that is left is cut when it is drawn.
    assert len(shown) <= 1 or sum(shown) + GAP * (len(shown) - 1) <= width
    assert all(each >= 0 for each in widths)


def test_a_text_that_is_cut_says_so() -> None:
    assert padded("allocated", 5) == "allo…"
    assert padded("42", 5, right=True) == "   42"
    assert padded("x", 1) == "x"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "M"]), max_size=20), st.integers(1, 30))
def test_a_cell_is_as_wide_as_its_column_whatever_is_in_it(text: str, width: int) -> None:
    assert cell_len(padded(text, width)) == width


def test_each_table_gets_what_it_needs_and_the_last_what_is_left() -> None:
    assert share([5, 4, 6], 33, 0) == [5, 4, 24]


def test_a_long_table_gets_what_short_ones_leave() -> None:
    assert share([1000, 4, 5], 33, 1) == [24, 4, 5]
    assert share([1000, 4, 5000], 34, 1) == [15, 4, 15]


def test_on_a_small_screen_the_table_in_use_gets_the_room() -> None:
    assert share([1000, 5000, 100], 15, 1) == [3, 9, 3]
    assert share([1000, 5000, 100], 8, 0) == [6, 1, 1]


def test_on_a_small_screen_what_the_table_in_use_leaves_is_for_the_last() -> None:
    assert share([3, 4, 100], 15, 1) == [3, 4, 8]


@given(st.lists(st.integers(3, 5000), min_size=3, max_size=3), st.integers(3, 100), st.integers(0, 2))
def test_tables_fill_the_screen_and_none_vanishes(needs: list[int], room: int, favourite: int) -> None:
    found = share(needs, room, favourite)
    assert sum(found) == room
    assert min(found) >= 1
