"""The slow tests are shared out well: the list of long modules is one of modules that exist."""

from __future__ import annotations

from pathlib import Path

from tests.side_by_side import LONGEST_FIRST

TESTS = Path(__file__).parents[1]


def test_the_list_of_long_modules_names_each_once_and_none_that_is_gone() -> None:
    modules = {file.stem for folder in ("contract", "e2e", "faults") for file in (TESTS / folder).glob("test_*.py")}
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST), "only the last place of one that is listed twice counts"
    assert set(LONGEST_FIRST) <= modules
