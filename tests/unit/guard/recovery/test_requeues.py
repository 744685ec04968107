"""Jobs that a crash has ended and that may be requeued: they start over, once, and only if they hadn't ended."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.guard.recovery.test_files import LINE, T0, submit, write_job
from tests.unit.guard.recovery.test_repair import START, Ctl, epoch, journal, outcomes, run

from seltzer.guard import recovery
from seltzer.guard.recovery import Findings, history, requeues
from seltzer.guard.recovery import settle as settle_module
from seltzer.guard.recovery.settle import settle as settle_jobs
from seltzer.guard.recovery.slurm import Cancelled, SlurmError
from seltzer.guard.state import log_reserve

__all__ = ["epoch"]
ENDS = ("_job_complete: JobId=%s WEXITSTATUS 0", "_job_complete: JobId=%s cancelled by interactive user")


def add_to_log(epoch: Path, *lines: str) -> None:
    with (epoch / history.LOG).open("a") as log:
        log.write("".join(LINE % (50, line) for line in lines))
    os.utime(epoch / history.LOG, (T0, T0))


def settle(epoch: Path, ctl: Ctl) -> dict[str, str]:
    recovered = recovery.RepairReport()
    settle_jobs(epoch, ctl, recovered)
    return outcomes(recovered)


def test_a_saved_job_that_had_started_is_requeued_and_starts_later(epoch: Path) -> None:
    ctl = Ctl(free={12})
    ctl.knows(12)
    assert run(epoch, ctl, LINE % (1, START % 12)) == {"12": "requeued"}
    assert ctl.restarts == {12: 1} and ctl.late == ["12"] and not ctl.jobs[12, ""].held
    assert not ctl.now
    assert settle(epoch, ctl) == {}
    assert ctl.now == ["12"] and not (epoch / requeues.FILE).exists()


def test_a_forgotten_job_that_had_started_is_put_back_and_requeued(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000", "dependency": "afterok:9"})
    ctl = Ctl(free={12})
    assert run(epoch, ctl, submit(12, 1) + LINE % (2, START % 12)) == {"12": "requeued"}
    options = ctl.submitted[12]
    assert "hold" not in options and "dependency" not in options, "what it depended on was over"
    assert options["begin_time"]["number"] > 0 and ctl.restarts == {12: 1}
    assert list(requeues.read(epoch).jobs) == ["12"]


@pytest.mark.parametrize("options", [{"requeue": False}, {}])
def test_a_forgotten_job_that_may_not_be_requeued_is_held(epoch: Path, options: dict[str, bool]) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000", **options})
    ctl = Ctl(free={1} if options else set())  # JobRequeue=0
    assert run(epoch, ctl, submit(12, 1) + LINE % (2, START % 12)) == {"12": "held"}
    assert ctl.submitted[12]["hold"] and not ctl.restarts and not ctl.late


def test_a_job_that_asks_for_it_is_requeued_although_the_cluster_does_not_by_default(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000", "requeue": True})

    class Never(Ctl):
        def requeues_by_default(self) -> bool:
            return False

    assert run(epoch, Never(free={12}), submit(12, 1) + LINE % (2, START % 12)) == {"12": "requeued"}


def test_a_saved_job_with_no_requeue_is_held(epoch: Path) -> None:
    ctl = Ctl(free={13})
    for job in (12, 13):
        ctl.knows(job)
    assert run(epoch, ctl, LINE % (1, START % 12) + LINE % (2, START % 13)) == {"12": "held", "13": "requeued"}
    assert ctl.jobs[12, ""].held and ctl.late == ["13"]


@pytest.mark.parametrize("ctl", [
    Ctl(free={12}, requeues_nothing=True),
    Ctl(free={12}, old=True),
])  # fmt: skip
@pytest.mark.parametrize("saved", [True, False])
def test_a_job_that_can_not_be_requeued_is_held(epoch: Path, ctl: Ctl, saved: bool) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    ctl.jobs, ctl.submitted, ctl.restarts = {}, {}, {}
    if saved:
        ctl.knows(12)
    assert run(epoch, ctl, submit(12, 1) + LINE % (2, START % 12)) == {"12": "held"}
    assert ctl.jobs[12, ""].held


def test_a_job_that_was_saved_as_held_and_has_started_since_is_released(epoch: Path) -> None:
    ctl = Ctl(free={12})
    ctl.knows(12, held=True)
    release = "sched: _release_job_rec: release hold on JobId=12 by uid 1000"
    assert run(epoch, ctl, LINE % (1, release) + LINE % (2, START % 12)) == {"12": "requeued"}
    assert not ctl.jobs[12, ""].held and ctl.late[-1] == "12"
    assert settle(epoch, ctl) == {} and ctl.now == ["12"]


def a_job_that_the_guard_has_released(epoch: Path) -> Ctl:
    """It was saved as held, and had been released and started before the crash."""
    ctl = Ctl(free={12})
    ctl.knows(12, held=True)
    release = "sched: _release_job_rec: release hold on JobId=12 by uid %d"
    run(epoch, ctl, LINE % (1, release % 1000) + LINE % (2, START % 12))
    add_to_log(epoch, release % 401)
    return ctl


def test_a_release_by_the_guard_does_not_let_a_job_start_beside_its_first_run(epoch: Path) -> None:
    ctl = a_job_that_the_guard_has_released(epoch)
    ctl.silent = {"n1"}
    assert settle(epoch, ctl) == {} and not ctl.now
    assert list(requeues.read(epoch).jobs) == ["12"]


def test_a_release_by_the_guard_does_not_let_a_job_start_that_may_have_ended_without_a_line(epoch: Path) -> None:
    ctl = a_job_that_the_guard_has_released(epoch)
    log_reserve.set_unlogged(epoch)
    assert settle(epoch, ctl) == {"12": "held"}
    assert ctl.jobs[12, ""].held and not ctl.now


def test_a_job_that_its_user_releases_after_that_starts_whatever_is_unknown(epoch: Path) -> None:
    ctl = a_job_that_the_guard_has_released(epoch)
    add_to_log(epoch, "sched: _release_job_rec: release hold on JobId=12 by uid 1000")
    ctl.silent = {"n1"}
    assert settle(epoch, ctl) == {} and ctl.now == ["12"]


REQUEUED = "_job_complete: requeue JobId=12 per user/system request"


class DiesAfter(Ctl):
    """slurmctld, or the guard with it, is killed after it has been asked to requeue."""

    def requeue(self, jobs: Collection[int]) -> None:
        super().requeue(jobs)
        raise Cancelled


@pytest.mark.parametrize("saved", [True, False])
def test_a_requeue_that_was_cut_short_counts_if_the_count_has_grown_since(epoch: Path, saved: bool) -> None:
    ctl = DiesAfter(free={12}, restarts={12: 3})
    ctl.knows(12)
    log = LINE % (1, START % 12)
    with pytest.raises(Cancelled):
        run(epoch, ctl, log)
    after = Ctl(free={12}, restarts={12: 4 if saved else 3})
    after.knows(12)
    assert run(epoch, after, log + LINE % (2, REQUEUED)) == ({} if saved else {"12": "requeued"})
    assert after.restarts == {12: 4}


def test_a_requeue_of_which_no_count_is_known_is_done_again(epoch: Path) -> None:
    (epoch / requeues.FILE).write_text(json.dumps({"jobs": {"12": 5.0}, "since": None, "floor": ""}))
    ctl = Ctl(free={12}, restarts={12: 3})
    ctl.knows(12)
    assert run(epoch, ctl, LINE % (1, START % 12) + LINE % (2, REQUEUED)) == {"12": "requeued"}
    assert ctl.restarts == {12: 4}
    found = requeues.read(epoch)
    assert (found.jobs, found.restarts) == ({"12": 5.0}, {"12": 3}), "a file of an older guard is still read"


def test_a_job_that_can_not_be_delayed_is_held(epoch: Path) -> None:
    ctl = Ctl(free={12}, delays_nothing=True)
    ctl.knows(12)
    assert run(epoch, ctl, LINE % (2, START % 12)) == {"12": "held"}
    assert ctl.jobs[12, ""].held and not ctl.restarts


class Refuses(Ctl):
    """It refuses to update one of the jobs, and has time for few commands."""

    refused = "177"
    time = 25

    def _update(self, names: Sequence[str]) -> None:
        self.time -= 1
        if self.time < 0:
            raise SlurmError("there was no time left", unasked=True)
        if self.refused in names:
            raise SlurmError("Job/step already completing or completed")

    def delay(self, names: Sequence[str]) -> None:
        self._update(names)
        super().delay(names)

    def release(self, names: Sequence[str]) -> None:
        self._update(names)
        super().release(names)


def test_a_job_that_can_not_be_delayed_keeps_no_other_from_it(epoch: Path) -> None:
    jobs = [str(job) for job in range(1, 202)]
    ctl = Refuses(free=set(map(int, jobs)))
    for job in jobs:
        ctl.knows(int(job))
    found = run(epoch, ctl, "".join(LINE % (1, START % job) for job in jobs))
    assert found == {**dict.fromkeys(jobs, "requeued"), "177": "held"}
    assert set(ctl.late) == {*jobs} - {"177"} == {str(job) for job in ctl.restarts}


def test_a_job_that_can_not_be_released_keeps_no_other_from_it(epoch: Path) -> None:
    class KeepsHeld(Refuses):
        def delay(self, names: Sequence[str]) -> None:
            self.late += names

    ctl = KeepsHeld(free={12, 13, 177})
    for job in ctl.free:
        ctl.knows(job, held=True)
    assert run(epoch, ctl, "".join(LINE % (1, START % job) for job in (12, 13, 177))) == {
        "12": "requeued",
        "13": "requeued",
        "177": "held",
    }
    assert [job for (job, _), listed in ctl.jobs.items() if listed.held] == [177]


def test_a_job_that_is_put_back_to_start_late_is_not_changed(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    ctl = Ctl(free={12}, delays_nothing=True)
    assert run(epoch, ctl, submit(12, 1) + LINE % (2, START % 12)) == {"12": "requeued"}
    assert not ctl.late


def test_a_job_whose_put_back_was_not_answered_is_requeued_if_it_is_in_the_queue(epoch: Path) -> None:
    for job in (12, 13):
        write_job(epoch, job, key=f"k{job}")
    journal(epoch, k12={"user_id": "1000"}, k13={"user_id": "1000"})
    ctl = Ctl(free={12, 13}, unanswered={12: lambda ctl: ctl.knows(12), 13: lambda ctl: None})
    log = "".join(submit(job, 1) + LINE % (2, START % job) for job in (12, 13))
    assert run(epoch, ctl, log) == {"12": "requeued", "13": "kept"}
    assert ctl.restarts == {12: 1}


def test_tasks_that_had_started_are_requeued_one_by_one(epoch: Path) -> None:
    class Splits(Ctl):
        def delay(self, names: object) -> None:
            super().delay(names)  # type: ignore[arg-type]
            self.knows(20, task="1", id_=21)

    ctl = Splits(free={20, 21})
    ctl.knows(20, task="1", id_=20)
    ctl.knows(20, task="2", id_=20)
    assert run(epoch, ctl, LINE % (2, START % "20_1(21)")) == {"20_1": "requeued"}
    assert ctl.restarts == {21: 1}, "not the rest of the array"


def test_tasks_that_share_a_record_are_held(epoch: Path) -> None:
    ctl = Ctl(free={20})
    for task in ("1", "2"):
        ctl.knows(20, task=task, id_=20)
    assert run(epoch, ctl, LINE % (2, START % "20_1(21)")) == {"20_1": "held"}
    assert not ctl.restarts


def test_a_pending_job_that_had_ended_is_cancelled_unless_others_depend_on_it(epoch: Path) -> None:
    ctl = Ctl(awaits={14: 13})
    for job in (12, 13, 14):
        ctl.knows(job)
    log = "".join(LINE % (1, START % job) + LINE % (2, f"_job_complete: JobId={job} done") for job in (12, 13))
    assert run(epoch, ctl, log) == {"12": "ran", "13": "held"}
    assert ctl.cancelled == ["12"] and ctl.jobs[13, ""].held


@pytest.mark.parametrize(("dependency", "held"), [
    ("afterany:12", True),
    ("afterok:8:12,afternotok:9", True),
    ("afterok:112", False),
    ("singleton", False),
    (None, False),
])  # fmt: skip
def test_a_job_that_had_ended_is_held_if_one_that_is_put_back_later_depends_on_it(
    epoch: Path, dependency: str | None, held: bool
) -> None:
    write_job(epoch, 14, key="k14")
    journal(epoch, k14={"user_id": "1000", "dependency": dependency})
    ctl = Ctl()
    ctl.knows(12)
    log = LINE % (1, START % 12) + LINE % (2, "_job_complete: JobId=12 done") + submit(14, 3)
    assert run(epoch, ctl, log) == {"12": "held" if held else "ran", "14": "put-back"}
    assert ctl.cancelled == ([] if held else ["12"])


def test_a_task_that_had_ended_is_held_if_one_that_is_put_back_later_waits_for_its_array(epoch: Path) -> None:
    write_job(epoch, 30, key="k30")
    journal(epoch, k30={"user_id": "1000", "dependency": "afterany:20"})
    ctl = Ctl()
    ctl.knows(20, task="1", id_=21)
    log = LINE % (1, START % "20_1(21)") + LINE % (2, "_job_complete: JobId=20_1(21) done") + submit(30, 3)
    assert run(epoch, ctl, log) == {"20_1": "held", "30": "put-back"}


def test_a_job_that_had_ended_and_can_not_be_cancelled_is_held(epoch: Path) -> None:
    class Refuses(Ctl):
        def cancel_jobs(self, names: object) -> None:
            raise SlurmError("no")

    ctl = Refuses()
    ctl.knows(12)
    log = LINE % (1, START % 12) + LINE % (2, "_job_complete: JobId=12 done")
    assert run(epoch, ctl, log) == {"12": "held"}
    assert ctl.jobs[12, ""].held


def test_requeued_and_held_jobs_whose_first_run_ends_by_itself_do_not_run_again(epoch: Path) -> None:
    ctl = Ctl(free={12, 14})
    for job in (12, 13, 14, 15):
        ctl.knows(job)
    run(epoch, ctl, "".join(LINE % (1, START % job) for job in (12, 13, 14, 15)))
    for job in (12, 13):
        add_to_log(epoch, *(line % job for line in ENDS))
    assert settle(epoch, ctl) == {"12": "ran", "13": "ran"}
    assert sorted(ctl.cancelled) == ["12", "13"]
    assert ctl.now == ["14"] and ctl.jobs[15, ""].held, "nobody has decided about 15"


def test_a_requeued_job_that_ends_by_itself_and_that_others_depend_on_is_held(epoch: Path) -> None:
    ctl = Ctl(free={12}, awaits={14: 12})
    for job in (12, 14):
        ctl.knows(job)
    assert run(epoch, ctl, LINE % (1, START % 12)) == {"12": "requeued"}
    add_to_log(epoch, *(line % 12 for line in ENDS))
    assert settle(epoch, ctl) == {"12": "held"}
    assert ctl.jobs[12, ""].held and not ctl.cancelled and not ctl.now


def test_the_end_of_a_task_is_known_by_the_id_that_it_had(epoch: Path) -> None:
    class Splits(Ctl):
        def delay(self, names: object) -> None:
            super().delay(names)  # type: ignore[arg-type]
            self.knows(20, task="1", id_=31)

    ctl = Splits(free={20, 31})
    ctl.knows(20, task="1", id_=20)
    ctl.knows(20, task="2", id_=20)
    assert run(epoch, ctl, LINE % (2, START % "20_1(21)")) == {"20_1": "requeued"}
    add_to_log(epoch, "job_complete: invalid JobId=21 SLUID=x")
    assert settle(epoch, ctl) == {"20_1": "ran"} and ctl.cancelled == ["20_1"]


def test_a_forgotten_job_whose_end_is_reported_meanwhile_does_not_run_again(epoch: Path) -> None:
    for job in (12, 13):
        write_job(epoch, job, key=f"k{job}")
    journal(epoch, k12={"user_id": "1000"}, k13={"user_id": "1000"})
    ctl = Ctl(free={12, 13})
    log = "".join(submit(job, 1) + LINE % (2, START % job) for job in (12, 13))
    invalid = "job_complete: invalid JobId=%s SLUID=x"
    assert run(epoch, ctl, log + LINE % (3, invalid % 12)) == {"12": "ran", "13": "requeued"}
    add_to_log(epoch, invalid % 13)
    assert settle(epoch, ctl) == {"13": "ran"}


def test_what_was_logged_before_the_crash_does_not_settle_a_job(epoch: Path) -> None:
    ctl = Ctl(free={12})
    ctl.knows(12)
    run(epoch, ctl, "".join(LINE % (1, line) for line in (*(each % 12 for each in ENDS), START % 12)))
    assert settle(epoch, ctl) == {} and ctl.now == ["12"]


def test_a_job_that_is_not_pending_any_more_is_left_alone(epoch: Path) -> None:
    ctl = Ctl(free={12})
    ctl.knows(12)
    run(epoch, ctl, LINE % (1, START % 12))
    ctl.knows(12, "RUNNING")
    add_to_log(epoch, *(line % 12 for line in ENDS))
    assert settle(epoch, ctl) == {} and not ctl.cancelled and not ctl.now


def test_a_job_that_was_not_requeued_is_held_unless_somebody_lets_it_start(epoch: Path) -> None:
    ctl = Ctl(free={12, 13, 14})
    for job in (12, 13, 14):
        ctl.knows(job)
    run(epoch, ctl, "".join(LINE % (1, START % job) for job in (12, 13, 14)))
    del ctl.restarts[12], ctl.restarts[13]  # as if it had never been
    add_to_log(epoch, "sched: _release_job_rec: release hold on JobId=13 by uid 1000")
    assert settle(epoch, ctl) == {"12": "held"}
    assert ctl.jobs[12, ""].held and ctl.now == ["13", "14"]
    assert not requeues.read(epoch).jobs


@pytest.mark.parametrize("how", ["the log was too quiet", "the volume was full"])
def test_where_lines_may_be_missing_requeued_jobs_wait_for_a_person(epoch: Path, how: str) -> None:
    ctl = Ctl(free={12})
    ctl.knows(12)
    run(epoch, ctl, LINE % (1, START % 12))
    if how == "the volume was full":
        log_reserve.set_unlogged(epoch)
    else:
        add_to_log(epoch, "Set debug level to 'error'", "Set debug level to 'verbose'")
    assert settle(epoch, ctl) == {"12": "held"}
    assert ctl.jobs[12, ""].held and not ctl.now


def test_a_job_waits_for_the_node_of_its_first_run(epoch: Path) -> None:
    ctl = Ctl(free={12, 13})
    for job in (12, 13):
        ctl.knows(job)
    run(epoch, ctl, LINE % (1, START % 12) + LINE % (1, (START % 13).replace("n1", "n2")))
    ctl.silent = {"n1"}
    assert settle(epoch, ctl) == {} and ctl.now == ["13"]
    assert list(requeues.read(epoch).jobs) == ["12"]
    add_to_log(epoch, *(line % 12 for line in ENDS))
    assert settle(epoch, ctl) == {"12": "ran"}, "the node reports it once it is back"


class Clock:
    """The guard's, which the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (requeues, settle_module):
            monkeypatch.setattr(module, "time", self)

    def time(self) -> float:
        return self.now


def test_a_job_whose_node_was_silent_waits_for_its_reports_once_it_is_back(
    epoch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    ctl = on_nodes(epoch, 4)

    def settle_at(now: float, *silent: str) -> tuple[dict[str, str], list[str]]:
        clock.now, ctl.silent, ctl.now = 1000.0 + now, set(silent), []
        recovered = recovery.RepairReport()
        settle_jobs(epoch, ctl, recovered, after=38)
        return outcomes(recovered), ctl.now

    assert settle_at(40, "n1", "n2", "n3") == ({}, ["4"])
    assert requeues.read(epoch).silent == {"1", "2", "3"}
    assert settle_at(42, "n3") == ({}, []), "n1 and n2 are back"
    assert requeues.read(epoch).silent == {"3"}
    add_to_log(epoch, *(line % 1 for line in ENDS))
    assert settle_at(79, "n3") == ({}, [])
    assert settle_at(81, "n2", "n3") == ({"1": "ran"}, []), "n2 is silent again"
    assert settle_at(90, "n3") == ({}, []) and settle_at(127, "n3") == ({}, [])
    assert settle_at(129, "n3") == ({}, ["2"])
    assert list(requeues.read(epoch).jobs) == ["3"]


def on_nodes(epoch: Path, count: int) -> Ctl:
    """Each job has been requeued, and its first run was on a node of its own: job 12 on n12 and so on."""
    jobs = range(1, count + 1)
    ctl = Ctl(free=set(jobs))
    for job in jobs:
        ctl.knows(job)
    run(epoch, ctl, "".join(LINE % (1, (START % job).replace("n1", f"n{job}")) for job in jobs))
    return ctl


def test_a_node_that_was_removed_keeps_no_other_job_waiting(epoch: Path) -> None:
    ctl = on_nodes(epoch, 5)
    ctl.removed, ctl.silent = {"n2"}, {"n4"}
    assert settle(epoch, ctl) == {} and ctl.now == ["1", "3", "5"]
    assert list(requeues.read(epoch).jobs) == ["2", "4"], "nobody can tell how its first run ended"


def test_a_node_that_was_removed_is_unknown_although_all_others_respond(epoch: Path) -> None:
    ctl = on_nodes(epoch, 2)
    ctl.removed = {"n2"}
    assert settle(epoch, ctl) == {} and ctl.now == ["1"]


def test_many_nodes_are_asked_about_with_few_commands(epoch: Path) -> None:
    ctl = on_nodes(epoch, 300)
    ctl.silent = {"n7", "another"}
    assert settle(epoch, ctl) == {}
    assert list(requeues.read(epoch).jobs) == ["7"] and len(ctl.now) == 299
    assert ctl.looks == 2


@pytest.mark.parametrize(("nodes", "silent", "removed", "starts"), [
    ("n[1,2]", set(), set(), True),
    ("n[1,2]", {"n3"}, set(), True),
    ("n[1,2]", {"n2"}, set(), False),
    ("n[1,2]", set(), {"n1"}, False),
    ("n[1", set(), set(), False),
])  # fmt: skip
def test_a_job_waits_while_one_of_its_nodes_is_silent(
    epoch: Path, nodes: str, silent: set[str], removed: set[str], starts: bool
) -> None:
    ctl = Ctl(free={12})
    ctl.knows(12)
    assert run(epoch, ctl, LINE % (1, (START % 12).replace("n1", nodes))) == {"12": "requeued"}
    ctl.silent, ctl.removed = silent, removed
    assert settle(epoch, ctl) == {} and ctl.now == (["12"] if starts else [])


@pytest.mark.parametrize(("line", "silent", "starts"), [
    ("job_signal: 15 of running JobId=12 successful", {"n7"}, False),
    (START.replace("n1", "(null)") % 12, {"n7"}, False),
    ("job_signal: 15 of running JobId=12 successful", set(), True),
])  # fmt: skip
def test_a_job_whose_node_nobody_knows_waits_while_any_node_is_silent(
    epoch: Path, line: str, silent: set[str], starts: bool
) -> None:
    ctl = Ctl(free={12})
    ctl.knows(12)
    assert run(epoch, ctl, LINE % (1, line)) == {"12": "requeued"}
    ctl.silent = silent
    assert settle(epoch, ctl) == {} and ctl.now == (["12"] if starts else [])


def test_when_slurmctld_falls_silent_no_node_counts_as_removed(epoch: Path) -> None:
    class Dies(Ctl):
        def silent_nodes(self, hostlist: str) -> set[str]:
            self.looks += 1
            raise SlurmError("no answer")

        def has_silent_nodes(self) -> bool:
            raise SlurmError("no answer")

    ctl = Dies(free=set(range(1, 301)))
    for job in ctl.free:
        ctl.knows(job)
    run(epoch, ctl, "".join(LINE % (1, (START % job).replace("n1", f"n{job}")) for job in ctl.free))
    with pytest.raises(SlurmError):
        settle(epoch, ctl)
    assert ctl.looks == 1 and not ctl.now


def test_while_it_is_unknown_whether_nodes_respond_no_job_starts(epoch: Path) -> None:
    class Mute(Ctl):
        def silent_nodes(self, hostlist: str) -> set[str]:
            raise SlurmError("no")

        def has_silent_nodes(self) -> bool:
            raise SlurmError("no")

    ctl = Mute(free={12})
    ctl.knows(12)
    run(epoch, ctl, LINE % (1, START % 12))
    with pytest.raises(SlurmError):
        settle(epoch, ctl)
    assert not ctl.now and list(requeues.read(epoch).jobs) == ["12"]


def test_a_task_that_had_ended_is_held_if_others_wait_for_its_array(epoch: Path) -> None:
    ctl = Ctl(awaits={14: 20})
    ctl.knows(20, task="1", id_=21)
    ctl.knows(20, task="2", id_=20)
    ctl.knows(14)
    log = LINE % (1, START % "20_1(21)") + LINE % (2, "_job_complete: JobId=20_1(21) done")
    assert run(epoch, ctl, log) == {"20_1": "held"}
    assert not ctl.cancelled


def test_jobs_of_an_earlier_crash_are_settled_with_those_of_the_next(epoch: Path) -> None:
    requeues.remember(Findings(epoch, 7.0, floor="a line"), ["12"])
    requeues.remember(Findings(epoch, 9.0, floor="another"), ["14"])
    found = requeues.read(epoch)
    assert (sorted(found.jobs), found.since, found.floor) == (["12", "14"], 7.0, "a line")
    requeues.remember(Findings(epoch), [])
    assert requeues.read(epoch) == found


def test_each_job_is_settled_when_it_has_waited_long_enough(epoch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e9
    monkeypatch.setattr(settle_module, "time", SimpleNamespace(time=lambda: now))
    (epoch / requeues.FILE).write_text(
        json.dumps({"jobs": {"12": now - 50, "14": now - 5, "16": now + 900}, "since": None, "floor": ""})
    )
    ctl = Ctl(restarts={12: 1, 14: 1, 16: 1})
    for job in (12, 14, 16):
        ctl.knows(job)
    settle_jobs(epoch, ctl, recovery.RepairReport(), after=38)
    assert ctl.now == ["12", "16"], "what was added by a clock that is ahead doesn't wait for it"
    assert list(requeues.read(epoch).jobs) == ["14"]


def test_how_long_to_wait_for_the_next_job() -> None:
    unsettled = requeues.Unsettled({"12": 100.0, "14": 130.0})
    assert unsettled.wait(now=110, soonest=10, after=38) == 28
    assert unsettled.wait(now=135, soonest=10, after=38) == 10
    assert unsettled.wait(now=20, soonest=10, after=38) == 38, "a clock that is behind"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"jobs": ["12"], "since": 1, "floor": ""}', '{"jobs": 1}', '{"jobs": [], "floor": ""}', "\0"]
)
def test_a_file_that_makes_no_sense_is_empty(epoch: Path, text: str) -> None:
    (epoch / requeues.FILE).write_text(text)
    assert requeues.read(epoch) == requeues.Unsettled()


def test_when_slurmctld_does_not_answer_the_jobs_stay_unsettled(epoch: Path) -> None:
    requeues.remember(Findings(epoch), ["12"])
    with pytest.raises(SlurmError):
        settle(epoch, Ctl(deaf=True))
    assert list(requeues.read(epoch).jobs) == ["12"]
