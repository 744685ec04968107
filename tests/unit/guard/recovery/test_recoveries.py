"""What the guard reports of jobs that it found again: all of it on the volume, and what fits of it in the Lease."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seltzer.guard.kube.report import JSON_LIMIT
from seltzer.guard.recovery import recoveries
from seltzer.guard.recovery.common import RepairReport
from seltzer.guard.recovery.recoveries import LIMIT
from seltzer.wire import job_ids


@pytest.fixture
def epoch(tmp_path: Path) -> Path:
    folder = tmp_path / "epoch-4"
    folder.mkdir()
    return folder


def told(epoch: Path, *jobs: tuple[object, str, str], user: object = 1000) -> RepairReport:
    """Of jobs by their IDs, with what became of them and why."""
    recovered = RepairReport()
    for job, outcome, why in jobs:
        recovered.add(str(job), user, outcome, why)  # type: ignore[arg-type]
    recovered.write(epoch)
    return recovered


def named(said: dict[str, object]) -> list[str]:
    groups = said["groups"]
    assert isinstance(groups, list)
    return [job for group in groups for job in job_ids.expand(group["jobs"])]


def test_jobs_of_one_fate_are_reported_together_and_those_first_that_a_person_has_to_look_at(epoch: Path) -> None:
    jobs = [(7, "put-back", "a"), (9, "held", "c"), (8, "put-back", "a"), ("20_1", "held", "b"), (7, "put-back", "a")]
    said = json.loads(told(epoch, *jobs).as_json(epoch))
    assert said.pop("time") and said == {
        "epoch": 4,
        "groups": [
            {"outcome": "held", "why": "c", "jobs": "9", "count": 1, "users": "1000"},
            {"outcome": "held", "why": "b", "jobs": "20_1", "count": 1, "users": "1000"},
            {"outcome": "put-back", "why": "a", "jobs": "7-8", "count": 2, "users": "1000"},
        ],
        "more": 0,
        "earlier": [],
    }


def test_what_nobody_has_read_yet_is_reported_together_with_what_came_after(epoch: Path) -> None:
    first = json.loads(told(epoch, (7, "held", "a")).as_json(epoch))
    told(epoch, (8, "held", "a"))
    text = told(epoch, (9, "held", "a")).as_json(epoch)
    assert [named(each) for each in (*json.loads(text)["earlier"], json.loads(text))] == [["7"], ["8"], ["9"]]
    assert json.loads(text)["earlier"][0]["time"] == first["time"]
    assert RepairReport().as_json(epoch) == text, "a repair that finds nothing takes nothing away"
    assert RepairReport().as_json(epoch.parent) == ""


@pytest.mark.parametrize("why", ["it had started on n%s", "its dependency afterok:%s was refused: no", "%s"])
def test_the_lease_has_room_for_it_and_says_how_many_are_left_out(epoch: Path, why: str) -> None:
    """Alternating IDs can't be folded, and each job has a why of its own."""
    before = told(epoch, *((job, "kept", "é" * 150 + str(job)) for job in range(0, 3000, 2)))
    after = told(epoch, *((job, "put-back" if job % 4 else "held", why % job) for job in range(1, 3000, 2)))
    text = after.as_json(epoch)
    said = json.loads(text)
    (earlier,) = said["earlier"]
    assert len(text.encode()) <= LIMIT + 100 < JSON_LIMIT
    for each, count in ((said, 1500), (earlier, 1500)):
        assert len(set(named(each))) + each["more"] == count
        assert sum(group["count"] for group in each["groups"]) == len(named(each))
    if why != "%s":
        assert said["more"] == 0, "the details are left out before any job is"
    assert before.written
    assert recoveries.read(epoch)[0] == before.written, "on the volume nothing is left out"
    assert sum(group.count for each in recoveries.read(epoch) for group in each.groups) == 3000


def test_details_are_left_out_and_the_sense_stays() -> None:
    whys = {
        "it had started on n1": "it had started",
        "it had started on n[1-3,7], which was not saved: it would": "it had started, which was not saved: it would",
        "an interactive job, which had started on n1: nothing": "an interactive job, which had started: nothing",
        "it had started and was requeued": "it had started and was requeued",
        "its dependency afterok:7 was refused: no": "its dependency was refused: no",
    }
    assert [recoveries.without_details(why) for why in whys] == list(whys.values())


def test_the_file_stays_small(epoch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in range(recoveries.KEPT + 5):
        told(epoch, (job, "ran", "so"))
    assert [each.groups[0].jobs for each in recoveries.read(epoch)] == [
        str(job) for job in range(5, recoveries.KEPT + 5)
    ]
    monkeypatch.setattr(recoveries, "_MOST", 10)
    told(epoch, (99, "ran", "so"))
    assert [each.groups[0].jobs for each in recoveries.read(epoch)] == ["99"]
    assert sorted(file.name for file in epoch.iterdir()) == [recoveries.FILE]


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[7]", '["x"]', "[{}]", '[{"time": "t", "epoch": 1, "groups": [7]}]', "\0"]
)
def test_a_file_that_makes_no_sense_counts_as_none(epoch: Path, text: str) -> None:
    (epoch / recoveries.FILE).write_text(text)
    assert recoveries.read(epoch) == []
    assert named(json.loads(told(epoch, (7, "ran", "so")).as_json(epoch))) == ["7"]


def test_a_volume_that_takes_nothing_keeps_nobody_from_telling(epoch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told(epoch, (7, "ran", "so"))
    (epoch / f"{recoveries.FILE}.half").mkdir()
    said = json.loads(told(epoch, (8, "ran", "so")).as_json(epoch))
    assert (named(said), named(said["earlier"][0])) == (["8"], ["7"])
    assert "can't be written" in capfd.readouterr().err
