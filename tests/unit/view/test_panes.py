"""The tables of a dashboard: cells, sort orders, filters."""

from __future__ import annotations

from tests.fakes.top_world import NOW, event, facts, job, node

from seltzer.view.facts import Facts
from seltzer.view.frame import Choice, Update, frame
from seltzer.view.panes import EVENTS, NODES, PANES, QUEUE, Column, Pane, node_rows
from seltzer.view.text import Cell


def texts(known: Facts, pane: str, sort: int = 0, words: str = "") -> list[list[str]]:
    """The cells of a table's rows."""
    choices = {**dict.fromkeys(PANES, Choice()), pane: Choice(sort, words)}
    rows = frame(Update(known), choices).rows[pane]
    return [[cell.text for cell in PANES[pane].cells(row, NOW)] for row in rows]


def firsts(known: Facts, pane: str, sort: str, words: str = "") -> list[str]:
    at = [name for name, _ in PANES[pane].sorts].index(sort)
    return [row[0] for row in texts(known, pane, at, words)]


def test_a_node_is_reported_with_its_jobs_and_when_it_will_be_free() -> None:
    known = facts([node("cpu-0", jobs=True)], [job(7, "cpu-0", minutes=90)])
    assert texts(known, "nodes") == [["cpu-0", "mixed", "7", "in 1h30m", "n1", "Running", ""]]


def test_a_drained_node_is_reported_with_its_reason_and_whose_it_is() -> None:
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


def test_without_slurm_the_nodes_are_known_by_their_pods() -> None:
    known = facts([node("cpu-0")], silent=True)
    assert texts(known, "nodes") == [["cpu-0", "?", "?", "", "n1", "Running", ""]]


def test_rows_are_known_by_what_does_not_change() -> None:
    known = facts([node("cpu-0")], [job(7)], [event("Ready", "all is well")])
    assert NODES.key(node_rows(known)[0]) == "cpu-0"
    assert known.slurm
    assert QUEUE.key(known.slurm.jobs[0]) == QUEUE.key(job(7, "cpu-0"))
    assert EVENTS.key(known.events[0]) == "Ready-0"


PANE: Pane[str] = Pane(
    "Words",
    (Column("WORD"),),
    key=str,
    cells=lambda word, now: (Cell(word),),
    sorts=(("length", len), ("letters", str)),
    words=lambda word: f"{word} {len(word)}",
)


def test_rows_that_are_equal_stay_in_the_order_in_which_they_came() -> None:
    assert PANE.ordered(["bb", "aa", "c"], 0, "") == ["c", "bb", "aa"]
    assert PANE.ordered(["bb", "aa", "c"], 1, "") == ["aa", "bb", "c"]


def test_a_row_is_shown_if_all_words_are_in_it() -> None:
    assert PANE.ordered(["Down", "drained", "idle"], 0, "D  7") == ["drained"]
    assert PANE.ordered(["Down"], 0, "dOWN") == ["Down"]
    assert PANE.ordered(["Down"], 0, "up") == []
