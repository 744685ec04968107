"""What the Lease says, and what stays of what others said."""

from __future__ import annotations

import json

import pytest

from seltzer.guard.kube.report import JSON_LIMIT, Report


def report() -> tuple[Report, list[int]]:
    hurried: list[int] = []
    return Report(lambda: hurried.append(1)), hurried


def test_a_change_is_reported_at_once_and_a_note_with_the_next_renewal() -> None:
    told, hurried = report()
    told.set("running", message="m")
    told.set("running", message="m")
    assert len(hurried) == 1
    told.note(saved="1")
    assert len(hurried) == 1
    assert told.annotations()["seltzer.dev/saved"] == "1"


def test_what_is_about_the_cluster_stays_until_we_know_better() -> None:
    told, _ = report()
    kept = {f"seltzer.dev/{name}" for name in ("epoch", "saved", "crash", "recovered", "news")}
    assert not kept & set(told.annotations())
    assert told.annotations()["seltzer.dev/message"] is None, "what was about another guard goes"
    told.set(epoch="3", saved="")
    assert told.annotations()["seltzer.dev/epoch"] == "3"
    assert told.annotations()["seltzer.dev/saved"] is None


def test_who_wins_again_forgets_what_it_knew_about_the_cluster() -> None:
    told, _ = report()
    told.set("running", epoch="3", saved="1", crash="{}", config="c", restarts="2", slurm_version="26.05")
    told.inherit()
    assert {name: value for name, value in told.annotations().items() if value} == {
        "seltzer.dev/phase": "starting",
        "seltzer.dev/restarts": "2",
        "seltzer.dev/slurm-version": "26.05",
    }
    assert "seltzer.dev/epoch" not in told.annotations()


def test_a_message_is_cut_and_a_document_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    told, _ = report()
    told.set(message="x" * 5000, recovered=json.dumps(["é" * JSON_LIMIT]), crash=json.dumps(["x" * 9000]))
    assert len(told.get("message")) == 1000
    assert told.get("recovered") == ""
    assert len(json.loads(told.get("crash"))[0]) == 9000
    assert "recovered is too long" in capfd.readouterr().err


def test_the_last_news_are_reported_at_once_in_their_order_and_fit_into_the_lease() -> None:
    told, hurried = report()
    for number in range(20):
        told.add_event(f"Reason{number}", "\ud800" * 5000)
    assert len(hurried) == 20
    news = json.loads(told.get("news"))
    assert [each["reason"] for each in news] == [f"Reason{number}" for number in range(12, 20)]
    assert len({each["time"] for each in news}) == 8
    assert len(told.get("news").encode()) < JSON_LIMIT
    told.inherit()
    assert "seltzer.dev/news" not in told.annotations(), "who led meanwhile may have told more"
