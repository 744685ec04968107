"""What Slurm knows of a node, on its pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.objects import NOW, patched, pod, time_at
from tests.builders.slurm import node

from seltzer.api.core import ObjectCondition, Pod
from seltzer.api.labels import BUSY, DELETION_COST, FREE_AT, SAFE_TO_EVICT, SLURM_BUSY, SLURM_READY, UNLIMITED
from seltzer.plan.actions import PodPatch
from seltzer.plan.nodeset import pod_conditions
from seltzer.slurm.models import Node, Number

CLOCK = int(NOW)
TIME = "2027-01-15T08:00:00Z"
HOUR = NOW + 3600
IN_AN_HOUR = "2027-01-15T09:00:00Z"


def change(
    item: Pod,
    known: Node | None,
    free_at: Mapping[str, float | None] | None = None,
    clock: int | None = CLOCK,
    now: str = TIME,
) -> PodPatch | None:
    nodes = {known.name: known} if known else {}
    found = pod_conditions.changes([item], nodes, free_at or {}, clock, now)
    return found[0].patches[0] if found else None


def mirrored(item: Pod, known: Node | None, *more: Any) -> Pod:
    """The pod after what was to be told has been written."""
    patch = change(item, known, *more)
    return patched(item, patch) if patch else item


def condition(item: Pod, kind: str) -> ObjectCondition:
    return next(each for each in item.status.conditions if each.type == kind)


def told(item: Pod, kind: str) -> tuple[str, str, str]:
    found = condition(item, kind)
    return (found.status, found.reason, found.message)


def was_busy(seconds: int) -> Number:
    return Number(set=True, number=CLOCK - seconds)


def with_annotations(item: Pod, **annotations: str) -> Pod:
    metadata = msgspec.structs.replace(item.metadata, annotations=annotations)
    return msgspec.structs.replace(item, metadata=metadata)


# --- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "ready", "busy"),
    [
        (node(), ("True", "Idle", ""), False),
        (node(state="MIXED"), ("True", "InUse", ""), True),
        (node(state="ALLOCATED"), ("True", "InUse", ""), True),
        (node(state="IDLE", alloc_cpus=2), ("True", "InUse", ""), True),
        (node(state="IDLE COMPLETING"), ("True", "InUse", ""), True),
        (node(state="MIXED DRAIN", reason="disk"), ("False", "Draining", "disk"), True),
        (node(state="IDLE DRAIN", reason="disk"), ("False", "Drained", "disk"), False),
        (node(state="IDLE DRAIN COMPLETING", reason="disk"), ("False", "Draining", "disk"), True),
        (node(state="DOWN", reason="Not responding"), ("False", "Down", "Not responding"), False),
        (node(state="DOWN DRAIN", reason="disk"), ("False", "Down", "disk"), False),
        (node(state="IDLE NOT_RESPONDING"), ("False", "NotResponding", ""), False),
        (node(state="MIXED NOT_RESPONDING"), ("False", "NotResponding", ""), True),
        (node(state="IDLE POWERING_UP"), ("False", "PoweringUp", ""), False),
        (node(state="IDLE MAINTENANCE"), ("False", "Maintenance", ""), False),
        (node(state="UNKNOWN"), ("False", "Unknown", ""), False),
        (node(state="SOMETHING_NEW"), ("False", "SomethingNew", ""), False),
        (Node("cpu-0", ()), ("False", "Unknown", ""), False),
        (Node("cpu-0", ("DYNAMIC_NORM",)), ("False", "Unknown", ""), False),
    ],
)
def test_every_state_is_reported(known: Node, ready: tuple[str, str, str], busy: bool) -> None:
    item = mirrored(pod(), known)
    assert told(item, SLURM_READY) == ready
    assert told(item, SLURM_BUSY)[:2] == (("True", "JobsRun") if busy else ("False", "NoJob"))
    assert item.metadata.labels.get(BUSY) == ("true" if busy else None)
    assert item.metadata.annotations[DELETION_COST] == ("1000" if busy else "0")
    assert item.metadata.annotations[SAFE_TO_EVICT] == ("false" if busy else "true")
    assert change(item, known) is None


def test_who_drained_it_is_reported_too() -> None:
    item = mirrored(pod(), node(state="IDLE DRAIN", reason="disk", reason_set_by_user="ann"))
    assert told(item, SLURM_READY) == ("False", "Drained", "disk (set by ann)")


def test_a_long_reason_is_cut_and_one_of_a_node_that_takes_jobs_is_old() -> None:
    item = mirrored(pod(), node(state="IDLE DRAIN", reason="x" * 9999))
    assert len(told(item, SLURM_READY)[2]) == 512
    assert told(mirrored(pod(), node(reason="disk")), SLURM_READY) == ("True", "Idle", "")


def test_a_pod_that_slurm_knew_is_told_from_one_that_it_doesnt_know_yet() -> None:
    new = mirrored(pod(), None)
    assert told(new, SLURM_READY) == ("False", "NotRegistered", "Slurm doesn't know it yet")
    assert pod_conditions.was_forgotten(new) is None
    forgotten = mirrored(mirrored(new, node()), None, {}, CLOCK, time_at(NOW + 60))
    assert told(forgotten, SLURM_READY)[1] == "Forgotten"
    found = pod_conditions.was_forgotten(forgotten)
    assert found
    assert found.last_transition_time == time_at(NOW + 60)
    assert change(forgotten, None) is None, "since when it is so stays as it is"
    assert pod_conditions.was_forgotten(mirrored(forgotten, node())) is None


def test_a_job_that_vanished_with_its_record_doesnt_protect_the_pod() -> None:
    item = mirrored(mirrored(pod(), node(state="MIXED"), {"cpu-0": HOUR}), None)
    assert BUSY not in item.metadata.labels
    assert FREE_AT not in item.metadata.annotations
    assert item.metadata.annotations[SAFE_TO_EVICT] == "true"


# --- when it is written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ("Slurm is unknown", pod_conditions.changes([pod()], None, {}, CLOCK, TIME)),
        ("it has ended", pod_conditions.changes([pod(state="Failed")], {}, {}, CLOCK, TIME)),
        ("it is nowhere yet", pod_conditions.changes([pod(state="created")], {}, {}, CLOCK, TIME)),
        ("there is none", pod_conditions.changes([], {"cpu-0": node()}, {}, CLOCK, TIME)),
    ],
)
def test_nothing_is_written_if(why: str, found: tuple[object, ...]) -> None:
    assert found == (), why


def test_only_what_differs_is_written_and_only_to_whom_it_concerns() -> None:
    old = {"cpu-0": node("cpu-0"), "cpu-1": node("cpu-1")}
    pods = [mirrored(pod(name), old[name]) for name in old]
    new = {"cpu-0": old["cpu-0"], "cpu-1": node("cpu-1", "IDLE DRAIN", reason="disk")}
    (found,) = pod_conditions.changes(pods, new, {}, CLOCK, time_at(NOW + 1))
    (patch,) = found.patches
    assert (patch.name, patch.uid) == ("cpu-1", "uid-cpu-1")
    assert not patch.labels
    assert not patch.annotations
    assert [each.type for each in patch.conditions] == [SLURM_READY]


def test_since_when_changes_with_the_state_and_not_with_the_words() -> None:
    first = mirrored(pod(), node(state="IDLE DRAIN", reason="disk"))
    second = mirrored(first, node(state="IDLE DRAIN", reason="disk, Ann looks at it"), {}, CLOCK, time_at(NOW + 60))
    assert told(second, SLURM_READY)[2] == "disk, Ann looks at it"
    assert condition(second, SLURM_READY).last_transition_time == TIME
    third = mirrored(second, node(), {}, CLOCK, time_at(NOW + 90))
    assert condition(third, SLURM_READY).last_transition_time == time_at(NOW + 90)


@pytest.mark.parametrize(
    ("known", "clock", "busy"),
    [
        (node(busy_until=was_busy(0)), CLOCK, True),
        (node(busy_until=was_busy(4)), CLOCK, True),
        (node(busy_until=was_busy(5)), CLOCK, False),
        (node(busy_until=was_busy(-60)), CLOCK, False),
        (node(busy_until=Number()), CLOCK, False),
        (node(busy_until=was_busy(0)), None, False),
        # Somebody waits for these.
        (node(state="IDLE DRAIN", reason="disk", busy_until=was_busy(0)), CLOCK, False),
        (node(state="DOWN", reason="disk", busy_until=was_busy(0)), CLOCK, False),
    ],
)
def test_a_node_counts_as_idle_a_little_after_its_last_job_so_that_the_next_one_costs_no_write(
    known: Node, clock: int | None, busy: bool
) -> None:
    item = mirrored(pod(), node(state="MIXED"))
    after = mirrored(item, known, {}, clock)
    assert (BUSY in after.metadata.labels) == busy
    assert pod_conditions.lingers([item], {"cpu-0": known}, clock) == busy
    assert not pod_conditions.lingers([mirrored(pod(), None)], {"cpu-0": known}, clock), (
        "nothing will have to be written"
    )
    assert not pod_conditions.lingers([item], {}, clock)


def test_ten_short_jobs_one_after_the_other_are_written_once() -> None:
    item, writes = mirrored(pod(), node(busy_until=was_busy(600))), 0
    for number in range(10):
        start = CLOCK + 10 * number
        for known, clock in (
            (node(state="MIXED", busy_until=Number(set=True, number=start)), start + 3),
            (node(busy_until=Number(set=True, number=start + 7)), start + 8),
        ):
            if patch := change(item, known, {}, clock):
                item, writes = patched(item, patch), writes + 1
    assert writes == 1


# --- when Slurm can't be asked any more ------------------------------------------------------------------------------

SILENT = "Slurm can't be asked: slurmrestd or slurmctld doesn't answer; before that: "


def doubted(item: Pod, *theirs: str) -> Pod:
    """The pod after nobody has answered for too long."""
    found = pod_conditions.unknown([item], time_at(NOW + 60), theirs)
    return patched(item, found[0].patches[0]) if found else item


@pytest.mark.parametrize(
    ("known", "ready", "busy", "last"),
    [
        (node(), "Idle", "NoJob", ("Idle", "")),
        (node(state="MIXED"), "InUse", "JobsRun: its jobs end by " + IN_AN_HOUR, ("InUse", "")),
        (node(state="IDLE DRAIN", reason="disk: bad"), "Drained: disk: bad", "NoJob", ("Drained", "disk: bad")),
        (None, "NotRegistered: Slurm doesn't know it yet", "NoJob", ("NotRegistered", "Slurm doesn't know it yet")),
    ],
)
def test_unknown_is_never_yes_and_what_was_known_is_kept_for_people(
    known: Node | None, ready: str, busy: str, last: tuple[str, str]
) -> None:
    before = mirrored(pod(), known, {"cpu-0": HOUR})
    after = doubted(before)
    assert told(after, SLURM_READY) == ("Unknown", "Unreachable", SILENT + ready)
    assert told(after, SLURM_BUSY) == ("Unknown", "Unreachable", SILENT + busy)
    assert after.metadata.annotations[SAFE_TO_EVICT] == "false"
    assert condition(after, SLURM_READY).last_transition_time == time_at(NOW + 60)
    assert pod_conditions.last_told(before) == pod_conditions.last_told(after) == last
    assert after.metadata.labels == before.metadata.labels, "who had jobs is known to have had them"
    assert after.metadata.annotations.get(FREE_AT) == before.metadata.annotations.get(FREE_AT)
    assert doubted(after) is after, "told once"
    assert told(mirrored(after, node()), SLURM_READY) == ("True", "Idle", "")
    assert mirrored(after, node()).metadata.annotations[SAFE_TO_EVICT] == "true"


@pytest.mark.parametrize("item", [pod(), mirrored(pod(), node(), {}, CLOCK, TIME)])
def test_a_pod_that_reports_nothing_or_has_ended_has_nothing_to_take_back(item: Pod) -> None:
    ended = msgspec.structs.replace(item, status=msgspec.structs.replace(item.status, phase="Failed"))
    assert doubted(ended) is ended
    assert (doubted(item) is item) == (pod_conditions.last_told(item) == ("", ""))


def test_an_annotation_of_the_users_stays_while_nobody_knows() -> None:
    after = doubted(mirrored(pod(), node()), SAFE_TO_EVICT)
    assert after.metadata.annotations[SAFE_TO_EVICT] == "true"
    assert doubted(after, SAFE_TO_EVICT) is after


def test_who_never_registered_is_not_taken_for_forgotten_when_slurm_is_back() -> None:
    """A pod that is forgotten is made anew; one that Slurm doesn't take would be made again and again."""
    assert told(mirrored(doubted(mirrored(pod(), None)), None), SLURM_READY)[1] == "NotRegistered"
    assert told(mirrored(doubted(mirrored(pod(), node())), None), SLURM_READY)[1] == "Forgotten"


# --- when it will be free --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "free_at", "after"),
    [
        ("", {"cpu-0": HOUR}, IN_AN_HOUR),
        ("", {"cpu-0": None}, UNLIMITED),
        ("", {}, None),
        (IN_AN_HOUR, {}, IN_AN_HOUR),
        (UNLIMITED, {}, UNLIMITED),
        (UNLIMITED, {"cpu-0": HOUR}, IN_AN_HOUR),
        (IN_AN_HOUR, {"cpu-0": None}, UNLIMITED),
        # Asked for in seconds left, the same deadline differs a little each time.
        (IN_AN_HOUR, {"cpu-0": HOUR + 15}, IN_AN_HOUR),
        (IN_AN_HOUR, {"cpu-0": HOUR - 15}, IN_AN_HOUR),
        (IN_AN_HOUR, {"cpu-0": HOUR + 16}, "2027-01-15T09:00:16Z"),
        (IN_AN_HOUR, {"cpu-1": HOUR + 999}, IN_AN_HOUR),
        # Somebody else's words, and limits that no calendar has.
        ("soon", {"cpu-0": HOUR}, IN_AN_HOUR),
        ("0001-01-01T00:00:00+14:00", {"cpu-0": HOUR}, IN_AN_HOUR),
        ("9999-12-31T23:59:59-14:00", {"cpu-0": HOUR}, IN_AN_HOUR),
        ("2027-01-15", {"cpu-0": HOUR}, IN_AN_HOUR),
        ("", {"cpu-0": NOW + 60 * 4_294_967_293}, UNLIMITED),
        ("", {"cpu-0": float("inf")}, UNLIMITED),
    ],
)
def test_when_the_last_job_reaches_its_limit_is_reported(
    before: str, free_at: Mapping[str, float | None], after: str | None
) -> None:
    item = with_annotations(pod(), **{FREE_AT: before} if before else {})
    known = node(state="MIXED")
    found = mirrored(item, known, free_at)
    assert found.metadata.annotations.get(FREE_AT) == after
    words = f"its jobs end by {after}" if after and after != UNLIMITED else ""
    assert told(found, SLURM_BUSY) == ("True", "JobsRun", words)
    assert change(found, known, free_at) is None
    idle = mirrored(found, node(busy_until=was_busy(600)), free_at)
    assert FREE_AT not in idle.metadata.annotations


# --- other people's words --------------------------------------------------------------------------------------------


def test_what_others_wrote_onto_a_pod_stays() -> None:
    item = with_annotations(pod(), **{"ann/likes": "it"})
    item = msgspec.structs.replace(
        item, metadata=msgspec.structs.replace(item.metadata, labels={**item.metadata.labels, "team": "a"})
    )
    odd = ObjectCondition(type="ann/Looked", status="True", reason="Yes")
    item = msgspec.structs.replace(
        item, status=msgspec.structs.replace(item.status, conditions=(*item.status.conditions, odd))
    )
    for known in (node(state="MIXED"), node(), None):
        item = mirrored(item, known, {"cpu-0": HOUR})
    assert item.metadata.annotations["ann/likes"] == "it"
    assert item.metadata.labels["team"] == "a"
    assert odd in item.status.conditions
    assert condition(item, "Ready").status == "True"


def test_what_others_wrote_over_ours_is_corrected() -> None:
    known = node(state="MIXED")
    item = mirrored(pod(), known, {"cpu-0": HOUR})
    meddled = with_annotations(item, **{SAFE_TO_EVICT: "true", DELETION_COST: "", FREE_AT: "never\n"})
    meddled = msgspec.structs.replace(meddled, metadata=msgspec.structs.replace(meddled.metadata, labels={BUSY: "no"}))
    patch = change(meddled, known, {"cpu-0": HOUR})
    assert patch
    assert patch.labels == {BUSY: "true"}
    assert patch.annotations == {SAFE_TO_EVICT: "false", DELETION_COST: "1000", FREE_AT: IN_AN_HOUR}


STATES = st.lists(
    st.sampled_from(["IDLE", "MIXED", "DOWN", "DRAIN", "COMPLETING", "NOT_RESPONDING", "DYNAMIC_NORM", "NEW_THING"]),
    max_size=4,
).map(tuple)
NODES = st.builds(
    Node,
    st.just("cpu-0"),
    STATES,
    reason=st.text(max_size=20),
    reason_set_by_user=st.sampled_from(["", "ann"]),
    alloc_cpus=st.integers(0, 1),
    busy_until=st.one_of(st.none(), st.integers(CLOCK - 9, CLOCK + 9)),
)
DEADLINES = st.dictionaries(
    st.just("cpu-0"), st.one_of(st.none(), st.floats(0, 1e15), st.just(float("inf")), st.just(HOUR))
)


@given(
    steps=st.lists(st.tuples(st.one_of(st.none(), NODES), DEADLINES), min_size=1, max_size=4),
    words=st.text(max_size=20),
    clock=st.one_of(st.none(), st.integers(CLOCK - 9, CLOCK + 9)),
)
def test_whatever_slurm_tells_and_whatever_is_on_the_pod_it_is_written_once(
    steps: list[tuple[Node | None, Mapping[str, float | None]]], words: str, clock: int | None
) -> None:
    item = with_annotations(pod(), **{FREE_AT: words, "mine": "stays"})
    for known, free_at in steps:
        item = mirrored(item, known, free_at, clock)
        assert change(item, known, free_at, clock, time_at(NOW + 1)) is None
        assert item.metadata.annotations["mine"] == "stays"


def test_an_annotation_that_the_user_sets_stays() -> None:
    item = pod()
    (found,) = pod_conditions.changes([item], {"cpu-0": node(state="ALLOCATED")}, {}, CLOCK, TIME, {SAFE_TO_EVICT})
    (patch,) = found.patches
    assert SAFE_TO_EVICT not in patch.annotations and patch.annotations[DELETION_COST] == "1000"


@pytest.mark.parametrize(
    ("why", "item", "known", "waits"),
    [
        ("it has just come, and is idle", pod(since=NOW - 5), node(), True),
        ("a job has come too", pod(since=NOW - 5), node(state="MIXED"), False),
        ("it is drained", pod(since=NOW - 5), node(state="IDLE DRAIN", reason="x"), False),
        ("it has waited for long", pod(since=NOW - pod_conditions.CROWD_SECONDS - 1), node(), False),
    ],
)
def test_while_a_crowd_is_on_its_way_a_pod_that_has_come_reports_later(
    why: str, item: Pod, known: Node, waits: bool
) -> None:
    def patches(arriving: int) -> int:
        return len(pod_conditions.changes([item], {known.name: known}, {}, CLOCK, TIME, arriving=arriving))

    assert patches(pod_conditions.CROWD) == 1
    assert patches(pod_conditions.CROWD + 1) == (0 if waits else 1), why


def test_a_pod_that_has_reported_before_goes_on_reporting_in_a_crowd() -> None:
    item = mirrored(pod(since=NOW - 5), node(state="IDLE DRAIN", reason="x"))
    known = node()
    assert pod_conditions.changes([item], {known.name: known}, {}, CLOCK, TIME, arriving=1000)
