"""The campaign's results, page, table of faults, and its look at the state volume."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from tests.faults.campaign import page, plot, results, state
from tests.faults.campaign.book import Outcome
from tests.faults.campaign.shape import POOL, SLURMCTLD
from tests.faults.campaign.table import FAULTS, MOVE, Fault, pick_two

ABOUT: dict[str, Any] = {"seed": 1, "in_flight": 200, "when": "2026-01-02", "machine": "2 cores"}
FAULT = Fault("node cut", (), answer=30)
POOL_FAULT = Fault("slurmd node cut", (), shape=POOL, whole=20)


def row(*outcomes: Outcome, fault: Fault = FAULT) -> dict[str, Any]:
    return results.row(fault, outcomes, ABOUT)


def good(answer: float = 1.0, job: float = 2.0, **more: Any) -> Outcome:
    return Outcome("node cut", True, answer, job, **more)


def test_a_row_has_what_the_results_promise() -> None:
    found = row(good(1, 2), good(3, 4, lost=["a (7)"]), good(2, 9, twice=["b"], acknowledged=50))
    assert found["name"] == "node cut" and found["n"] == 3
    assert found["answer_s"] == {"median": 2, "worst": 3}
    assert found["job_s"] == {"median": 4, "worst": 9}
    assert (found["jobs_lost"], found["jobs_twice"], found["jobs_acknowledged"]) == (1, 1, 50)


def test_a_row_of_a_pool_also_has_when_it_was_whole_and_what_became_of_the_jobs_on_it() -> None:
    found = row(good(whole_s=11.0, requeued=["a", "b"]), good(whole_s=13.0, failed=["c"]), good(), fault=POOL_FAULT)
    assert found["whole_s"] == {"median": 12.0, "worst": 13.0} and found["wholes"] == [11.0, 13.0]
    assert (found["requeued"], found["failed"]) == (2, 1)
    assert "whole_s" not in row(good(whole_s=11.0)), "of others it isn't told"


def test_a_pool_that_is_whole_too_late_is_a_complaint() -> None:
    assert results.complaints(row(good(0.5, whole_s=19.0), fault=POOL_FAULT)) == []
    (late,) = results.complaints(row(good(0.5, whole_s=21.0), fault=POOL_FAULT))
    assert late == "the pool was whole after 21.0 s at worst, not within 20"


def test_a_repeat_without_the_operator_is_counted() -> None:
    assert row(good(), Outcome("node cut", False, 1.0, 2.0))["without_operator"] == 1


def test_a_repeat_that_failed_is_in_the_row() -> None:
    found = row(good(), Outcome("node cut", True, failure="AssertionError: waited in vain"))
    assert found["n"] == 2 and found["failures"] == ["repeat 1: AssertionError: waited in vain"]
    assert results.complaints(found) == found["failures"]


def test_complaints_name_what_isnt_as_expected() -> None:
    assert results.complaints(row(good(29))) == []
    late, lost = results.complaints(row(good(31, lost=["a (7)"])))
    assert "31" in late and "30" in late
    assert lost == "1 jobs lost"
    (slow,) = results.complaints(row(good(0.2, slowest_s=61), fault=Fault("API server down", ())))
    assert slow == "a new job waited for 61 s, not 5 at most"


def test_rows_that_were_run_now_replace_theirs_in_the_order_of_the_table(tmp_path: Path) -> None:
    names = [fault.name for fault in FAULTS[:3]]
    old = [row(good(1), fault=Fault(name, ())) for name in ("a fault of old", names[2], names[0])]
    new = [row(good(5), fault=Fault(name, ())) for name in (names[1], names[0])]
    file = tmp_path / "build" / "faults.json"
    assert results.read(file) == []
    results.write(results.merged(old, new), file)
    found = results.read(file)
    assert [one["name"] for one in found] == [*names, "a fault of old"]
    assert [one["answer_s"]["median"] for one in found] == [5, 5, 1, 1]


def test_the_page_shows_every_row_and_what_went_wrong() -> None:
    rows = [
        row(good(0, 0.31, acknowledged=1234, interactive=4, interactive_broken=1)),
        row(Outcome("x", True, failure="Gone: nobody leads\nmore")),
    ]
    text = page.text(rows)
    assert "| node cut | 1 | 0 | 0 | 0.3 | 0.3 | 1,234 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 of 4 |" in text
    assert "| node cut | 1 | never | never |" in text
    assert "- node cut, repeat 0: Gone: nobody leads\n" in text
    assert "2026-01-02 on 2 cores" in text and "200 jobs in flight" in text


def test_jobs_that_forbid_to_be_requeued_are_told_apart_from_the_others() -> None:
    one = good(held=["a", "b", "c"], ghosts=["d", "a"], once={"a", "b", "x"})
    found = row(one, good(held=["e"]))
    assert (found["jobs_held"], found["held_once"], found["jobs_ghosts"], found["ghosts_once"]) == (4, 2, 2, 1)
    head, _, line = page.table([found]).splitlines()
    assert "| held | no-requeue | ghosts | no-requeue |" in head
    assert line.endswith("| 0 | 0 | 0 | 0 | 2 | 2 | 1 | 1 |  |"), "held and ghosts: of those that may be requeued first"


def test_a_row_that_was_measured_before_they_were_told_apart_has_them_all() -> None:
    old = {key: value for key, value in row(good(held=["a"])).items() if not key.endswith("_once")}
    assert page.table([old]).splitlines()[2].endswith("| 0 | 1 |  | 0 |  |  |")


def test_the_page_has_a_table_of_its_own_for_pools() -> None:
    pool = row(good(0.2, whole_s=11.04, requeued=["a"], failed=["b", "c"], acknowledged=7), fault=POOL_FAULT)
    slurmctld, _, rest = page.text([row(good()), pool]).partition("## When the nodes of a pool are hit")
    assert "| slurmd node cut | 1 | 11.0 | 11.0 | 0.2 | 0.2 | 7 | 0 | 0 | 1 | 2 | 0 | 0 | 0 | 0 | 0 |" in rest
    assert "| node cut |" in slurmctld and "slurmd node cut" not in slurmctld
    assert "When the nodes of a pool" not in page.text([row(good())]), "not before there are such rows"


@pytest.mark.parametrize("table", [page.table, page.pool_table])
def test_every_line_of_a_table_has_as_many_cells_as_its_head(table: Any) -> None:
    lines = table([row(good(whole_s=1.0), fault=POOL_FAULT)]).splitlines()
    assert len(lines) == 3 and len({line.count("|") for line in lines}) == 1


def test_the_page_says_which_two_came_together() -> None:
    rows = [row(Outcome("a and b", True, 1.0, 1.0), fault=Fault("two at random", (), pair=True))]
    assert "Two at random, seed 1: a and b." in page.text(rows)


def test_the_plot_is_well_formed_and_shows_every_repeat() -> None:
    drawn = plot.draw([row(good(0), good(50), fault=Fault("<a> & b", ())), row()])
    tree = ElementTree.fromstring(drawn)  # noqa: S314
    circles = [each for each in tree.iter() if each.tag.endswith("circle")]
    assert len(circles) == 2 + 4, "a legend, and a dot for the answer and the job of each"
    assert not list(squares(tree)[1:]), "only one in the legend"
    right = max(float(each.attrib["cx"]) for each in circles)
    assert right < width(tree)
    assert "prefers-color-scheme: dark" in drawn


def width(tree: ElementTree.Element) -> float:
    return float(tree.attrib["viewBox"].split()[2])


def squares(tree: ElementTree.Element) -> list[ElementTree.Element]:
    return [each for each in tree.iter() if each.tag.endswith("rect")]


def test_the_plot_shows_when_a_pool_was_whole() -> None:
    drawn = plot.draw([row(good(whole_s=11.0), good(whole_s=12.0), fault=POOL_FAULT)])
    tree = ElementTree.fromstring(drawn)  # noqa: S314
    legend, first, second = (float(each.attrib["x"]) for each in squares(tree))
    assert legend < first < second < width(tree)


def test_the_plot_has_room_for_its_longest_name() -> None:
    names = ["a fault", "a fault with a name that is longer than that of any other, and a failover"]
    tree = ElementTree.fromstring(plot.draw([row(good(), fault=Fault(name, ())) for name in names]))  # noqa: S314
    ends = {each.text: float(each.attrib["x"]) for each in tree.iter() if each.attrib.get("text-anchor") == "end"}
    assert all(ends[name] - len(name) * 7 >= 0 for name in names), "DejaVu Sans takes less than 7 pixels per character"
    dots = [each for each in tree.iter() if each.tag.endswith("circle")][2:]
    assert max(ends.values()) < min(float(each.attrib["cx"]) for each in dots), "names end before the dots begin"


def test_the_plot_and_the_page_are_those_of_the_kept_results() -> None:
    rows = results.read(results.KEPT)
    assert page.PLOT.read_text() == plot.draw(rows), "run 'python -m tests.faults.campaign --page'"
    assert page.PAGE.read_text() == page.text(rows), "run 'python -m tests.faults.campaign --page'"


def test_names_of_faults_are_their_own() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names))
    assert sum(not fault.does and not fault.pair for fault in FAULTS) == 1, "one for comparison"


def test_whatever_hits_a_pool_is_measured_by_when_it_is_whole_and_comes_with_a_failover_too() -> None:
    pool = [fault for fault in FAULTS if fault.shape is POOL]
    names = {fault.name for fault in pool}
    assert all(fault.whole and not fault.returns and not fault.pair for fault in pool)
    assert all((fault.whole is not None) == (fault.shape is POOL) for fault in FAULTS)
    failovers = {fault.name for fault in pool if fault.then and fault.standby}
    plain = names - failovers
    assert plain and failovers == {f"{name}, slurmctld fails over" for name in plain}


def test_rows_that_hit_one_cluster_stand_together() -> None:
    shapes = [fault.shape for fault in FAULTS]
    assert sorted(shapes, key=[SLURMCTLD, POOL].index) == shapes, "another is made for each change"


@pytest.mark.parametrize("seed", range(50))
def test_two_at_random_are_the_same_for_a_seed_and_never_two_lost_nodes(seed: int) -> None:
    both, name = pick_two(random.Random(seed))  # noqa: S311
    again, same = pick_two(random.Random(seed))  # noqa: S311
    assert (both.does, name) == (again.does, same)
    chosen = [fault for fault in FAULTS if fault.name in name.split(" and ") or name.startswith(f"{fault.name} and ")]
    assert sum(fault.answer >= MOVE for fault in chosen) <= 1
    assert not any(fault.alone or fault.shape is POOL for fault in chosen)


def stamp(epoch: int, what: str = "save") -> str:
    return f"2026-01-02T03:04:05Z epoch={epoch} by=demo-1 {what} job_state\n"


def test_stamps_in_order_are_fine() -> None:
    assert state.out_of_order("") == []
    assert state.out_of_order(stamp(1, "start") + stamp(1) + stamp(2, "start") + stamp(4)) == []


def test_a_stamp_of_an_older_epoch_after_a_newer_is_found() -> None:
    assert state.out_of_order(stamp(1) + stamp(2) + stamp(1) + stamp(2)) == [stamp(1).strip()]


def test_a_line_that_is_no_stamp_is_found() -> None:
    assert state.out_of_order("garbage\n") == ["not a stamp: garbage"]


def test_checksums_are_of_slurms_own_files(tmp_path: Path) -> None:
    folder = tmp_path / "epoch-3"
    (folder / "hash.1" / "job.11").mkdir(parents=True)
    (folder / "job_state").write_text("one")
    (folder / "hash.1" / "job.11" / "script").write_text("two")
    (folder / "seltzer.stamps").write_text("three")
    (folder / "slurmctld.log").write_text("four")
    assert state.epoch(tmp_path) == folder
    before = state.checksums(folder)
    assert set(before) == {"job_state", "hash.1/job.11/script"}
    (folder / "job_state").write_text("other")
    (folder / "node_state").write_text("new")
    (folder / "hash.1" / "job.11" / "script").unlink()
    assert state.changed(before, state.checksums(folder)) == ["hash.1/job.11/script", "job_state", "node_state"]


def test_two_epoch_directories_are_not_an_epoch(tmp_path: Path) -> None:
    (tmp_path / "epoch-1").mkdir()
    (tmp_path / "epoch-2").mkdir()
    assert state.epoch(tmp_path) is None
