"""Lines of cells, natural order, suggestions."""

from __future__ import annotations

from seltzer.view.text import Cell, joined, line, natural, plain, suggestion


def test_lines_are_joined_with_a_separator_in_between_only() -> None:
    found = joined([line("a"), line(Cell("b", "bold"), "c")], ", ")
    assert found == (Cell("a"), Cell(", "), Cell("b", "bold"), Cell("c"))
    assert (plain(found), joined([], ", ")) == ("a, bc", ())


def test_numbers_in_names_are_in_numeric_order() -> None:
    assert sorted(["cpu-10", "cpu-2", "big-0", "cpu-02"], key=natural) == ["big-0", "cpu-02", "cpu-2", "cpu-10"]


def test_a_mistyped_word_gets_a_suggestion() -> None:
    assert suggestion("dmeo", ["demo", "other"]) == "did you mean 'demo'? (there are demo, other)"
    assert suggestion("x", ["demo"]) == "there is demo"
    assert suggestion("x", []) == "there are none"
    assert suggestion("x", [f"n{number}" for number in range(20)]).endswith("n11 and 8 more")
