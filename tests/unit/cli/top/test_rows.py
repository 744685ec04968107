"""Nodes, jobs and events in the words of `seltzer top`, and the lines above them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.fakes.top_world import CONTROLLER, NOW, event, facts, job, lease, node

from seltzer.api.core import Lease
from seltzer.cli.facts import Facts
from seltzer.cli.top import header as top_header
from seltzer.cli.top import text
from seltzer.cli.top.feed import Update
from seltzer.cli.top.frame import PANES, Choice, frame
from seltzer.cli.top.rows import EVENTS, NODES, QUEUE, node_rows

MOMENT = datetime.fromtimestamp(NOW, UTC)


def texts(known: Facts, pane: str, sort: int = 0, words: str = "") -> list[list[str]]:
    """The cells of a table's rows."""
    choices = {**dict.fromkeys(PANES, Choice()), pane: Choice(sort, words)}
    rows = frame(Update(known), choices).rows[pane]
    return [[cell.text for cell in PANES[pane].cells(row, NOW)] for row in rows]


def firsts(known: Facts, pane: str, sort: str, words: str = "") -> list[str]:
    at = [name for name, _ in PANES[pane].sorts].index(sort)
    return [row[0] for row in texts(known, pane, at, words)]


def header(known: Facts) -> list[str]:
    return [line.plain for line in top_header.lines(known, node_rows(known), MOMENT)]


def test_a_node_is_told_with_its_jobs_and_when_it_will_be_free() -> None:
    known = facts([node("cpu-0", jobs=True)], [job(7, "cpu-0", minutes=90)])
    assert texts(known, "nodes") == [["cpu-0", "mixed", "7", "in 1h30m", "n1", "Running", ""]]


def test_a_drained_node_is_told_with_its_reason_and_whose_it_is() -> None:
    known = facts([node("cpu-0", "IDLE", "DRAIN", reason="bad fan", by="grace")])
    assert texts(known, "nodes")[0][-1] == "grace 1m ago: bad fan"


def test_nodes_in_trouble_come_first_and_the_others_by_name() -> None:
    known = facts(
        [node("cpu-10"), node("cpu-9", jobs=True), node("cpu-2", "DOWN"), node("cpu-1", "IDLE", "DRAIN", reason="x")],
        [job(1, "cpu-9")],
    )
    assert firsts(known, "nodes", "trouble") == ["cpu-1", "cpu-2", "cpu-9", "cpu-10"]
    assert firsts(known, "nodes", "name") == ["cpu-1", "cpu-2", "cpu-9", "cpu-10"]
    assert firsts(known, "nodes", "state") == ["cpu-2", "cpu-1", "cpu-9", "cpu-10"]
    assert firsts(known, "nodes", "jobs")[0] == "cpu-9"
    assert firsts(known, "nodes", "free")[-1] == "cpu-9"


def test_what_is_typed_is_looked_for_in_names_states_reasons_and_pods() -> None:
    known = facts([node("cpu-0"), node("cpu-1", "IDLE", "DRAIN", reason="bad fan")])
    assert firsts(known, "nodes", "name", "fan") == ["cpu-1"]
    assert firsts(known, "nodes", "name", "idle") == ["cpu-0"]


def test_running_jobs_come_first_then_the_queue() -> None:
    known = facts([node("cpu-0", jobs=True)], [job(9), job(10, "cpu-0"), job(8, reason="Resources")])
    assert firsts(known, "queue", "state") == ["10", "8", "9"]
    assert firsts(known, "queue", "newest") == ["10", "9", "8"]


def test_a_running_job_tells_how_long_it_runs_and_may_run() -> None:
    known = facts([node("cpu-0", jobs=True)], [job(7, "cpu-0", minutes=None), job(8, reason="Resources")])
    assert texts(known, "queue") == [
        ["7", "running", "ada", "cpu", "1m", "unlimited", "cpu-0", "", "train"],
        ["8", "pending", "ada", "cpu", "2m", "30m", "1 wanted", "Resources", "train"],
    ]


def test_the_newest_event_comes_first_and_a_warning_is_marked() -> None:
    known = facts(
        events=[event("Created", "created cpu-0", ago=30), event("Crashed", "it\ncrashed", warns=True, ago=5)]
    )
    assert texts(known, "events") == [
        ["5s", "!", "NodeSet/cpu", "Crashed", "it crashed"],
        ["30s", "", "NodeSet/cpu", "Created", "created cpu-0"],
    ]


def test_the_header_tells_who_is_in_charge_and_how_often_that_changed() -> None:
    known = facts([node("cpu-0"), node("cpu-1", "DOWN")], [job(1, "cpu-0"), job(2)], told=lease(transitions=2))
    first, second = header(known)
    assert f"Slurm 26.05.5  {CONTROLLER} on n2 for 0s  2 failovers  0 restarts" in first
    assert "nodes 2" in second
    assert "1 idle  1 down    jobs  1 running  1 pending" in second


def test_a_bar_gives_each_state_its_share_and_shows_the_smallest_too() -> None:
    assert top_header.bar([1, 1], 24) == [12, 12]
    assert top_header.bar([999, 1], 24) == [23, 1]
    assert top_header.bar([5], 24) == [24]
    assert sum(top_header.bar([1, 1, 1, 1, 1, 1, 994], 24)) == 24


def test_without_slurm_the_nodes_are_known_by_their_pods() -> None:
    known = facts([node("cpu-0")], silent=True)
    assert texts(known, "nodes") == [["cpu-0", "?", "?", "", "n1", "Running", ""]]
    assert "1 unknown" in header(known)[1]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (lease(), ""),
        (lease(holder=""), "slurmctld is failing over: nobody is in charge right now"),
        (lease(holder="gone"), "slurmctld is failing over from gone"),
        (lease(phase="starting"), f"slurmctld is starting on {CONTROLLER}"),
        (lease(phase="held"), f"slurmctld is held on {CONTROLLER}; 'seltzer debug demo --release' lets it go"),
    ],
)
def test_a_slurmctld_that_is_not_in_charge_or_does_not_run_is_trouble(told: Lease, says: str) -> None:
    assert top_header.trouble("demo", facts(told=told).controller) == says


def test_rows_are_known_by_what_does_not_change() -> None:
    known = facts([node("cpu-0")], [job(7)], [event("Ready", "all is well")])
    assert NODES.key(node_rows(known)[0]) == "cpu-0"
    assert known.slurm
    assert QUEUE.key(known.slurm.jobs[0]) == QUEUE.key(job(7, "cpu-0"))
    assert EVENTS.key(known.events[0]) == "Ready-0"


def test_as_text_it_is_a_header_and_the_tables_that_have_rows() -> None:
    known = facts([node("cpu-0", jobs=True)], [job(7, "cpu-0")])
    made = frame(Update(known), dict.fromkeys(PANES, Choice()))
    lines = [line.plain for line in text.lines(made, 100_000, MOMENT)]
    assert lines[2:] == [
        "",
        "NODE   STATE  JOBS  FREE    ON  POD      REASON",
        "cpu-0  mixed  7     in 30m  n1  Running",
        "",
        "JOB  STATE    USER  PARTITION  FOR  LEFT  NODES  WHY  NAME",
        "7    running  ada   cpu        1m   30m   cpu-0       train",
    ]
