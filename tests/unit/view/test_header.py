"""The lines above the tables of a dashboard."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.fakes.top_world import CONTROLLER, NOW, facts, job, lease, node

from seltzer.view import header as view
from seltzer.view.facts import Facts
from seltzer.view.panes import node_rows
from seltzer.view.text import plain

MOMENT = datetime.fromtimestamp(NOW, UTC)


def header(known: Facts) -> list[str]:
    return [plain(line) for line in view.lines(known, node_rows(known), MOMENT)]


def test_the_header_tells_who_is_in_charge_and_how_often_that_changed() -> None:
    known = facts([node("cpu-0"), node("cpu-1", "DOWN")], [job(1, "cpu-0"), job(2)], told=lease(transitions=2))
    first, second = header(known)
    assert f"Slurm 26.05.5  {CONTROLLER} on n2 for 0s  2 failovers  0 restarts" in first
    assert "nodes 2" in second
    assert "1 idle  1 down    jobs  1 running  1 pending" in second


def test_a_bar_gives_each_state_its_share_and_shows_the_smallest_too() -> None:
    assert view.bar([1, 1], 24) == [12, 12]
    assert view.bar([999, 1], 24) == [23, 1]
    assert view.bar([5], 24) == [24]
    assert sum(view.bar([1, 1, 1, 1, 1, 1, 994], 24)) == 24


def test_without_slurm_the_state_of_nodes_is_unknown() -> None:
    assert "1 unknown" in header(facts([node("cpu-0")], silent=True))[1]
