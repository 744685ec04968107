"""The arguments of squeue, and what it prints for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.wire import squeue
from seltzer.wire.squeue import QueueEntry, SqueueError


def test_jobs_on_nodes_are_never_asked_for_without_a_node() -> None:
    assert "--nodelist=n[1-3]" in squeue.jobs_on_nodes("n[1-3]")
    with pytest.raises(ValueError, match="at least one node"):
        squeue.jobs_on_nodes("")


def test_the_output_has_the_fields_that_the_arguments_ask_for() -> None:
    (format_,) = (word for word in squeue.jobs_on_nodes("n1") if word.startswith("--Format="))
    fields = [each.partition(":") for each in format_.removeprefix("--Format=").split(",")]
    line = "".join(f"{place}{separator}" for place, (_, _, separator) in enumerate(fields)) + "\n"
    (job,) = squeue.parse_jobs(line)
    assert job == {name: str(place) for place, (name, _, _) in enumerate(fields)}


@pytest.mark.parametrize("ended", [True, False])
def test_a_snapshot_has_the_fields_that_the_arguments_ask_for(ended: bool) -> None:
    arguments = squeue.snapshot("<mark>", ended=ended)
    assert ("--states=all" in arguments) == ended
    (format_,) = (word for word in arguments if word.startswith("--Format="))
    names = [each.removesuffix(":<mark>") for each in format_.removeprefix("--Format=").split(",")]
    values = [str(place) for place in range(len(names))]
    assert squeue.parse_snapshot([*values, "\n7", *values[1:]]) == [
        dict(zip(names, values, strict=True)),
        dict(zip(names, ["7", *values[1:]], strict=True)),
    ]


def test_half_a_snapshot_is_none() -> None:
    assert squeue.parse_snapshot([]) == []
    count = len(squeue.snapshot("<mark>", ended=False)[2].split(","))
    with pytest.raises(SqueueError, match="cut off"):
        squeue.parse_snapshot(["7"] * (count - 1))
    with pytest.raises(SqueueError, match="makes no sense: 'slurm_load_jobs error'"):
        squeue.parse_snapshot(["slurm_load_jobs error"] + ["7"] * (count - 1))


def test_the_queue_of_a_repair_ignores_malformed_lines() -> None:
    assert squeue.parse_queue("12|N/A|12|RUNNING|1000|5\n20|3|24|PENDING|1001|0\nnonsense\n") == [
        QueueEntry(12, "", 12, "RUNNING", 1000, held=False),
        QueueEntry(20, "3", 24, "PENDING", 1001, held=True),
    ]


def test_named_nodes_come_once_each() -> None:
    assert squeue.parse_named("\n cpu-1\n\ncpu-[3-4]\ncpu-1\n") == ["cpu-1", "cpu-[3-4]"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("9:59", 599),
        ("1:00:00", 3600),
        ("2-00:00:00", 172800),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("NOT_SET", None),
        ("", None),
    ],
)
def test_durations(text: str, seconds: int | None) -> None:
    assert squeue.seconds(text) == seconds


@given(st.text())
def test_no_text_is_taken_for_jobs_that_it_does_not_hold(text: str) -> None:
    try:
        found = squeue.parse_jobs(text)
    except SqueueError:
        return
    assert len(found) <= text.count("\x1f") // 8
