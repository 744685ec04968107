"""Whatever slurmrestd sends, it is an answer or a SlurmError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.slurm.errors import Rejected, SlurmError, Unavailable
from seltzer.slurm.http import Answer
from seltzer.slurm.rest import Envelope, judge


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"errors": [', b'{"errors": [{"error": "\xff\xfe"}]}', b"[]", b"7"])
def test_nonsense_is_unavailable(body: bytes) -> None:
    with pytest.raises(Unavailable):
        judge(Answer(200, body), Envelope)


def test_errors_in_an_http_200_are_errors() -> None:
    with pytest.raises(Rejected, match="in Slurm's own words"):
        judge(Answer(200, b'{"errors": [{"error_number": 2011, "description": "in Slurm\'s own words"}]}'), Envelope)


@given(st.integers(100, 599), st.binary())
def test_nothing_but_an_answer_or_a_slurm_error_comes_out(status: int, body: bytes) -> None:
    try:
        told = judge(Answer(status, body), Envelope)
    except SlurmError:
        return
    assert told is None or status == 200
