"""Lists of job IDs in short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.wire import job_ids


@pytest.mark.parametrize(
    ("each", "folded"),
    [
        ([], ""),
        (["7"], "7"),
        (["9", "7", "8", "8", "12"], "7-9,12"),
        (["20_3", "20_1", "20_2", "100", "3_7", "20_9"], "100,3_7,20_[1-3,9]"),
        (["20_[3-9:2%1]", "5"], "5,20_[3-9:2%1]"),
        ([f"8_{task}" for task in range(0, 80, 2)], None),
    ],
)
def test_ids_are_folded_and_come_apart_again(each: list[str], folded: str | None) -> None:
    text = job_ids.fold(each)
    assert folded in (text, None)
    assert sorted(job_ids.expand(text)) == sorted(set(each))
    assert all(len(piece) < 200 for piece in job_ids.pieces(text))


@given(st.text(alphabet="0123456789,-_[]:%+x"))
def test_any_text_comes_apart(text: str) -> None:
    assert all(isinstance(each, str) for each in job_ids.expand(text))


def test_people_see_a_list_that_wraps_between_its_pieces() -> None:
    assert job_ids.shown("12-40,51,60_[1-3,7]") == "12-40, 51, 60_[1-3,7]"


@pytest.mark.parametrize("text", ["42", "42_7", "42_[8-99]", "42_[1,3-9%2]", "42+1"])
def test_an_id_as_slurm_writes_it(text: str) -> None:
    assert job_ids.is_id(text)


@pytest.mark.parametrize("text", ["", "all", "1;rm -rf /", "--help", "-1", "42 "])
def test_other_words_are_no_ids(text: str) -> None:
    assert not job_ids.is_id(text)
