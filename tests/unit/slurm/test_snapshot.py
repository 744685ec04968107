"""The output of Slurm's commands is parsed, or refused as a whole."""

from __future__ import annotations

import pytest
from tests.builders.slurm import CLOCK
from tests.fakes.slurm_output import JOB, MARK, printed

from seltzer.slurm import snapshot
from seltzer.slurm.errors import Unavailable
from seltzer.slurm.snapshot import Question, Snapshot


def read(text: str) -> Snapshot:
    return Question(MARK).read(text)


def test_the_answer_of_slurms_commands_is_read() -> None:
    told = read(
        printed(JOB, {**JOB, "JobArrayID": "13", "JobID": "13", "NodeList": "cpu-[0-1]", "EndTime": "1794811399"})
    )
    waiting, running = told.jobs
    assert told.now == CLOCK
    assert (waiting.id, waiting.number, waiting.user, waiting.name) == ("12_[3-5%2]", 12, "ann", "train")
    assert (waiting.state, waiting.reason, waiting.pending) == ("PENDING", "Resources", True)
    assert (waiting.wants, waiting.nodes, waiting.features) == (("cpu-0", "cpu-1"), (), "")
    assert (waiting.start, waiting.end, waiting.submit, waiting.limit) == (None, None, 1794811331, 93784)
    assert (waiting.cpus, waiting.node_count, waiting.requeue, waiting.priority) == (4, 2, True, 77)
    assert (running.nodes, running.end) == (("cpu-0", "cpu-1"), 1794811399)
    assert (told.partitions["cpu"].most_seconds, told.partitions["cpu"].most_nodes) == (3600, None)
    assert told.partitions["cpu"].state == "UP"


def test_no_job_is_an_answer_too() -> None:
    assert read(printed()).jobs == ()


def test_what_comes_behind_the_end_is_somebody_elses() -> None:
    assert len(read(printed(JOB) + "E1116 websocket.go:296] Unknown stream id 1").jobs) == 1


def test_a_jobs_name_may_hold_anything_and_does_no_harm() -> None:
    (odd,) = read(printed({**JOB, "Name": "a\nb\x1fc \x1b[31m\u202e"})).jobs
    assert odd.name == "a b c [31m"
    assert read(printed()).nodes["cpu-0"].reason == "bad [2J disk"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing of the kind",
        printed(JOB)[:-30],
        printed(JOB).replace(f"train{MARK}", ""),
        printed({**JOB, "JobArrayID": "what"}),
        printed({**JOB, "NumCPUs": "many"}),
        printed({**JOB, "SubmitTime": "yesterday"}),
        printed({**JOB, "NodeList": "cpu-["}),
        printed(told='{"nodes": [{"name": '),
        printed(told='{"errors": []}'),
        printed(now="soon"),
    ],
)
def test_half_an_answer_is_none(text: str) -> None:
    with pytest.raises(Unavailable):
        read(text)


def test_nobody_can_guess_what_separates_the_fields() -> None:
    one, other = snapshot.question(), snapshot.question()
    assert one.separator != other.separator and len(one.separator) >= 16
    assert one.separator == one.command[4] and one.separator in one.command[-1]
    assert snapshot.question(ended=True).command[-1] == "--states=all"
