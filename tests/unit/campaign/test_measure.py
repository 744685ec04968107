"""How long a fault was felt, by who asked and who ran."""

from __future__ import annotations

from tests.faults.campaign.account import Ack, Away, Run
from tests.faults.campaign.measure import (
    Ask,
    Look,
    answer_seconds,
    job_seconds,
    read_nodes,
    slowest_start,
    summary,
    whole,
)

FAULT = 100.0


def asks(*answered: bool, every: float = 0.5) -> list[Ask]:
    """One each half second from the fault on, answered in an eighth of a second."""
    return [Ask(FAULT + number * every, FAULT + number * every + 0.125, good) for number, good in enumerate(answered)]


def started(time: float, key: str = "new") -> Run:
    return Run(time, "start", key, "7", 0)


def test_where_nothing_is_felt_the_first_question_is_answered() -> None:
    assert answer_seconds(asks(True, True), FAULT) == 0.125, "how long one question takes"


def test_an_outage_lasts_until_the_first_answer_after_the_last_failure() -> None:
    assert answer_seconds(asks(True, False, True, False, True, True), FAULT) == 2.125


def test_a_slurmctld_that_doesnt_answer_yet_has_no_time() -> None:
    assert answer_seconds(asks(True, False), FAULT) is None
    assert answer_seconds([], FAULT) is None


def test_a_question_from_before_the_fault_tells_nothing_about_it() -> None:
    before = Ask(FAULT - 0.1, FAULT + 1, False)
    assert answer_seconds([before, *asks(True)], FAULT) == 0.125


def test_a_question_that_began_before_the_last_failure_doesnt_end_the_outage() -> None:
    slow = Ask(FAULT, FAULT + 0.2, True)
    assert answer_seconds([slow, Ask(FAULT + 0.1, FAULT + 2.1, False), *asks(False, False, True)], FAULT) == 1.125


def test_a_question_that_others_overtook_tells_of_a_busy_machine_and_not_of_slurmctld() -> None:
    slow = Ask(FAULT + 0.6, FAULT + 2.6, False)
    assert answer_seconds([*asks(True, True, True, True), slow], FAULT) == 0.125
    assert answer_seconds([*asks(True, True), slow], FAULT) is None, "nobody overtook it"


def test_a_new_job_is_one_that_was_submitted_after_the_fault() -> None:
    acks = [Ack("old", "6", FAULT - 1, FAULT - 0.9), Ack("new", "7", FAULT + 0.2, FAULT + 0.3)]
    runs = [started(FAULT + 0.1, "old"), started(FAULT + 0.5)]
    assert job_seconds(asks(True, True), acks, runs, FAULT) == 0.5


def test_a_job_that_slipped_through_before_the_outage_isnt_the_end_of_it() -> None:
    acks = [Ack("quick", "6", FAULT, FAULT + 0.1), Ack("new", "7", FAULT + 2, FAULT + 2.1)]
    runs = [started(FAULT + 0.2, "quick"), started(FAULT + 2.5)]
    assert job_seconds(asks(True, False, False, True), acks, runs, FAULT) == 2.5


def test_no_job_has_run_yet() -> None:
    assert job_seconds(asks(True), [], [started(FAULT + 1, "unacknowledged")], FAULT) is None


def test_the_slowest_start_is_by_the_first_run_of_each() -> None:
    acks = [Ack("a", "1", FAULT, FAULT), Ack("b", "2", FAULT + 1, FAULT + 1), Ack("before", "0", FAULT - 1, FAULT - 1)]
    runs = [started(FAULT + 0.5, "a"), started(FAULT + 9, "a"), started(FAULT + 2.5, "b")]
    assert slowest_start(acks, runs, FAULT, FAULT + 30) == 1.5
    assert slowest_start([*acks, Ack("never", "3", FAULT + 10, FAULT + 10)], runs, FAULT, FAULT + 30) == 20


def seconds_until_whole(*takings: set[str] | None, away: list[Away] | None = None) -> float | None:
    """One look each second from the fault on, at a pool of two."""
    looks = [
        Look(FAULT + number, FAULT + number + 0.25, None if names is None else frozenset(names))
        for number, names in enumerate(takings)
    ]
    return answer_seconds(whole(looks, 2, away or []), FAULT)


def test_a_pool_that_was_never_less_is_whole_at_the_first_look() -> None:
    assert seconds_until_whole({"cpu-0", "cpu-1"}) == 0.25


def test_a_pool_is_whole_when_it_has_as_many_nodes_as_it_should_and_keeps_them() -> None:
    both, one = {"cpu-1", "cpu-2"}, {"cpu-1"}
    assert seconds_until_whole(both, one, both, one, both, both) == 4.25
    assert seconds_until_whole(both, one) is None


def test_a_slurmctld_that_doesnt_answer_tells_nothing_about_its_pool() -> None:
    both, one = {"cpu-1", "cpu-2"}, {"cpu-1"}
    assert seconds_until_whole(one, both, None, both) == 1.25
    assert seconds_until_whole(None, None, both) == 2.25
    assert seconds_until_whole(None) is None


def test_a_node_that_is_gone_doesnt_count_though_slurm_hasnt_noticed() -> None:
    away = Away("n2", frozenset({"cpu-0"}), FAULT)
    unnoticed, replaced = {"cpu-0", "cpu-1"}, {"cpu-1", "cpu-2"}
    assert seconds_until_whole(unnoticed, unnoticed, replaced, away=[away]) == 2.25
    back = Away("n2", frozenset({"cpu-0"}), FAULT, until=FAULT + 0.5)
    assert seconds_until_whole(unnoticed, unnoticed, away=[back]) == 1.25
    other = Away("n3", frozenset({"cpu-7"}), FAULT)
    assert seconds_until_whole(unnoticed, away=[other]) == 0.25


def test_a_node_takes_jobs_if_nothing_keeps_them_away() -> None:
    states = {
        "a": "IDLE+DYNAMIC_NORM",
        "b": "MIXED+COMPLETING+DYNAMIC_NORM",
        "c": "ALLOCATED+DYNAMIC_NORM+PLANNED",
        "d": "IDLE+DRAIN+DYNAMIC_NORM",
        "e": "MIXED+DYNAMIC_NORM+NOT_RESPONDING",
        "f": "DOWN+DYNAMIC_NORM",
        "g": "UNKNOWN",
    }
    text = "".join(f"NodeName={name} Arch=x86_64 State={state} Partitions=cpu,all \n" for name, state in states.items())
    text += "NodeName=h State=IDLE Partitions=probe\nNodeName=i State=IDLE\n\n"
    assert read_nodes(text, "cpu") == {"a", "b", "c"}
    assert read_nodes(text, "probe") == {"h"}


def test_median_and_worst() -> None:
    assert summary([1.0, 9.004, 2.0]) == {"median": 2.0, "worst": 9.0}
    assert summary([]) == {"median": None, "worst": None}
