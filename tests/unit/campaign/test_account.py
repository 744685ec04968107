"""The campaign's accounting: ledger, evidence and queue in, the fate of every acknowledged job out."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults.campaign.account import (
    Ack,
    Away,
    Ended,
    Fate,
    Queued,
    Run,
    fates,
    ghosts,
    read_ended,
    read_queue,
    read_runs,
    requeued,
    reused,
    twice,
)


def ack(key: str = "a", job: str = "7", requeue: bool = True) -> Ack:
    return Ack(key, job, 1.0, 1.1, requeue)


def start(key: str = "a", job: str = "7", restarts: int = 0, time: float = 2.0, node: str = "cpu-0") -> Run:
    return Run(time, "start", key, job, restarts, node)


def end(key: str = "a", job: str = "7", restarts: int = 0, time: float = 3.0, node: str = "cpu-0") -> Run:
    return Run(time, "end", key, job, restarts, node)


def fate(*runs: Run, state: str = "", reason: str = "None", named: str = "", requeue: bool = True) -> Fate:
    queue = {"a": Queued("a", "7", state, reason)} if state else {}
    return fates([ack(requeue=requeue)], runs, queue, {"7": named} if named else {})["a"]


def test_a_job_that_waits_or_runs_is_in_the_queue() -> None:
    assert fate(state="PENDING") is Fate.QUEUED
    assert fate(start(), state="RUNNING") is Fate.QUEUED


def test_a_job_that_wrote_its_end_has_run_whatever_slurm_says() -> None:
    assert fate(start(), end()) is Fate.RAN
    assert fate(start(), end(), state="RUNNING") is Fate.RAN, "a ghost"
    assert fate(start(), end(), state="NODE_FAIL") is Fate.RAN


def test_a_job_that_has_run_and_waits_again_is_still_open() -> None:
    assert fate(start(), end(), state="PENDING") is Fate.QUEUED


def test_a_job_that_started_and_is_gone_was_killed() -> None:
    assert fate(start()) is Fate.KILLED
    assert fate(start(), state="FAILED") is Fate.KILLED


def test_a_job_that_is_nowhere_is_lost() -> None:
    assert fate() is Fate.LOST


def test_a_job_that_slurm_ended_before_it_ran_is_lost() -> None:
    assert fate(state="CANCELLED") is Fate.LOST
    assert fate(state="NODE_FAIL") is Fate.LOST


def test_a_job_that_may_not_be_put_back_and_whose_node_failed_has_failed_whether_it_had_begun_or_not() -> None:
    assert fate(start(), state="NODE_FAIL", requeue=False) is Fate.FAILED
    assert fate(state="NODE_FAIL", requeue=False) is Fate.FAILED
    assert fate(start(), end(), state="NODE_FAIL", requeue=False) is Fate.FAILED, "nobody heard that it had ended"
    assert fate(start(), requeue=False) is Fate.KILLED, "nobody was told"
    assert fate(requeue=False) is Fate.LOST


def test_a_job_that_may_be_put_back_and_wasnt_was_killed() -> None:
    assert fate(start(), state="NODE_FAIL") is Fate.KILLED


def test_a_job_that_is_held_is_held() -> None:
    assert fate(state="PENDING", reason="JobHeldAdmin") is Fate.HELD
    assert fate(start(), state="PENDING", reason="JobHeldUser") is Fate.HELD


def test_a_job_that_was_named_is_not_lost() -> None:
    assert fate(named="kept") is Fate.KEPT
    assert fate(named="held") is Fate.HELD
    assert fate(named="put-back") is Fate.LOST, "it should be in the queue, and isn't"


def test_another_job_under_the_same_id_doesnt_save_it() -> None:
    queue = {"b": Queued("b", "7", "PENDING", "None")}
    assert fates([ack()], [start("b")], queue, {})["a"] is Fate.LOST


def test_one_run_is_one_run() -> None:
    assert twice([start(), end()]) == set()
    assert twice([start()]) == set()


def test_a_second_start_after_the_end_is_a_second_run() -> None:
    assert twice([start(), end(), start(time=4)]) == {"a"}
    assert twice([start(), end(), start(restarts=1, time=4)]) == {"a"}, "it had nothing to be put back for"


def test_a_second_start_that_slurm_doesnt_know_of_is_a_second_run() -> None:
    assert twice([start(), start(time=4), end(time=5)]) == {"a"}


def test_a_job_under_two_ids_ran_twice() -> None:
    assert twice([start(), start(job="8", restarts=1, time=4)]) == {"a"}


def test_a_killed_job_that_slurm_put_back_runs_once_more_by_right() -> None:
    assert twice([start(), start(restarts=1, time=4), end(restarts=1, time=5)]) == set()


def test_a_job_that_may_not_be_put_back_starts_once_whatever_slurm_says() -> None:
    again = [start(), start(restarts=1, time=4)]
    assert twice(again, once={"b"}) == set()
    assert twice(again, once={"a"}) == {"a"}


def test_an_end_that_slurmctld_couldnt_hear_of_doesnt_keep_it_from_putting_the_job_back() -> None:
    away = Away("n2", frozenset({"cpu-0"}), since=100.0, until=160.0)
    again = start(restarts=1, time=230, node="cpu-1")

    def ran_twice(last: Run) -> bool:
        return bool(twice([start(time=95), last, again], unheard=[away]))

    assert not ran_twice(end(time=101)), "on a node that was cut off"
    assert not ran_twice(end(time=99.5)), "the news was on its way"
    assert not ran_twice(end(time=161)), "it woke up, and slurmctld had given it up"
    assert ran_twice(end(time=180)), "slurmctld could have heard of this one"
    assert ran_twice(end(time=101, node="cpu-1")), "and of one on another node"
    assert twice([start(time=95), end(time=101), again], once={"a"}, unheard=[away]) == {"a"}


def test_an_end_at_the_moment_in_which_slurmctld_has_the_node_end_the_job_is_not_heard() -> None:
    (killed,) = read_ended(
        "[1970-01-01T00:01:40.187] error: Registered PENDING JobId=7 StepId=7.batch on node cpu-0\n"
        "[1970-01-01T00:01:41.000] error: Registered PENDING, says the name of JobId=8\n"
    )
    assert killed == Ended("7", 100.187)

    def ran_twice(last: Run, once: Sequence[str] = ()) -> bool:
        runs = [start(job=last.job, time=95), last, start(job=last.job, restarts=1, time=230)]
        return bool(twice(runs, once, [killed]))

    assert not ran_twice(end(time=100.225)), "its script was killed before it had exited"
    assert not ran_twice(end(time=99.5)), "slurmstepd was killed before it told"
    assert ran_twice(end(time=98)), "slurmctld had been told of this one"
    assert ran_twice(end(time=103)), "this one wasn't killed"
    assert ran_twice(end(job="8", time=100.225)), "another job"
    assert ran_twice(end(time=100.225), once=["a"]), "it may start only once, whatever ended it"


def test_a_job_was_put_back_if_it_waits_for_another_start_or_had_one() -> None:
    queue = {
        "waits": Queued("waits", "1", "PENDING", "BeginTime", restarts=1),
        "first": Queued("first", "2", "RUNNING", "None"),
        "over": Queued("over", "3", "CANCELLED", "None", restarts=1),
    }
    assert requeued([start("first"), start("ran", restarts=1)], queue) == {"waits", "ran"}


def test_lines_come_in_any_order() -> None:
    assert twice([start(time=4), end(), start()]) == {"a"}


def test_what_jobs_write_is_read_line_by_line() -> None:
    text = "1.5 start a 7 0 cpu-0\nnonsense\n2.5 end a 7 0\n3.5 start b 8 0 cp"
    assert read_runs(text) == [start(time=1.5), end(time=2.5, node="")]


def test_what_squeue_prints_is_read_by_key() -> None:
    queue = read_queue("7|a|PENDING|JobHeldAdmin\n8|b|COMPLETED|None\n9|b|RUNNING|None\n10|b|FAILED|None\n")
    assert queue["a"].held
    assert queue["b"] == Queued("b", "9", "RUNNING", "None"), "the living one counts"
    assert read_queue("7|a|RUNNING|None|1970-01-01T00:01:00")["a"].since == 60
    assert read_queue("7|a|PENDING|None|N/A")["a"].since == 0
    assert read_queue("7|a|PENDING|BeginTime|N/A|2|")["a"].restarts == 2


def test_a_job_that_runs_for_slurmctld_only_is_a_ghost() -> None:
    queue = {key: Queued(key, "7", "RUNNING", "None", since=2) for key in ("gone", "again", "just", "runs", "never")}
    queue["new"] = Queued("new", "8", "RUNNING", "None", since=95)
    runs = [start("gone"), end("gone"), start("again"), end("again"), start("again", time=4), end("just", time=99)]
    assert [one.key for one in ghosts([*runs, start("runs")], queue, now=100, longer=10)] == ["gone", "never"]


def test_an_id_that_was_given_away_twice_is_reported_with_both_jobs() -> None:
    assert reused([ack("a", "7"), ack("b", "8"), ack("a", "7")]) == ""
    assert reused([ack("a", "7"), ack("b", "8"), ack("c", "7")]) == "ID 7 was given to a and to c"
