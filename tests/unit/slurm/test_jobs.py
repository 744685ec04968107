"""What squeue prints, and what we make of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.slurm import jobs
from seltzer.slurm.errors import Unavailable


def line(*fields: str) -> str:
    return "".join(f"{field}\x1f" for field in fields) + "\n"


def test_a_running_and_a_waiting_job() -> None:
    running = line("42", "alice", "RUNNING", "cpu", "cpu-[0-1]", "1-02:03:04", "1", "None")
    waiting = line("43_[1-9]", "bob", "PENDING", "cpu", "", "UNLIMITED", "0", "Resources")
    first, second = jobs.parse(running + waiting)
    assert first == jobs.JobOnNodes("42", "alice", "RUNNING", "cpu", ("cpu-0", "cpu-1"), 93784, True, "None")
    assert second == jobs.JobOnNodes("43_[1-9]", "bob", "PENDING", "cpu", (), None, False, "Resources")
    assert jobs.parse("") == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("9:59", 599), ("1:00:00", 3600), ("2-00:00:00", 172800), ("INVALID", None), ("", None)]
)
def test_times(text: str, seconds: int | None) -> None:
    (job,) = jobs.parse(line("1", "a", "RUNNING", "p", "n1", text, "1", ""))
    assert job.seconds_left == seconds


@pytest.mark.parametrize(
    "text",
    [
        "slurm_load_jobs error: Unable to contact slurm controller",
        line("42", "alice"),
        line("x", *"abcdefg"),
        "42\x1fa",
    ],
)
def test_anything_else_is_no_list(text: str) -> None:
    with pytest.raises(Unavailable):
        jobs.parse(text)


@given(st.text())
def test_no_text_is_taken_for_jobs_that_it_does_not_tell(text: str) -> None:
    try:
        found = jobs.parse(text)
    except Unavailable:
        return
    assert len(found) <= text.count("\x1f") // 8
