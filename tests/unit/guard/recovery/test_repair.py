"""The repair: whatever slurmctld knows, refuses or doesn't answer, nothing runs twice and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.guard.recovery.test_files import LINE, T0, save_state, submit, write_job, write_log

from seltzer.guard import recovery
from seltzer.guard.processes import Processes
from seltzer.guard.recovery import history, spool
from seltzer.guard.recovery.journal import FROM_CRONTAB
from seltzer.guard.recovery.repairer import Repairer
from seltzer.guard.recovery.slurm import DUPLICATE, Cancelled, SlurmError
from seltzer.guard.recovery.verdicts import UNSEEN, may_have_started
from seltzer.guard.settings import Settings
from seltzer.guard.state import log_reserve, rotation
from seltzer.wire.squeue import PendingJob, QueueEntry

START = "sched: Allocate JobId=%s NodeList=n1 #CPUs=1 Partition=cpu"


@dataclass
class Ctl:
    """slurmctld: its queue, what it was told, and what it refuses."""

    jobs: dict[tuple[int, str], QueueEntry] = field(default_factory=dict)
    submitted: dict[int, dict[str, Any]] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    never_again: list[str] = field(default_factory=list)
    completed: dict[int, int] = field(default_factory=dict)
    refuses: dict[int, SlurmError] = field(default_factory=dict)
    deaf: bool = False
    dead: bool = False
    holds_nothing: bool = False
    comments: list[str] = field(default_factory=list)
    """The reasons of each call that held jobs."""
    keeps: str = ""
    """The job that it refuses to cancel."""
    deaf_afterwards: bool = False
    """It no longer answers after that."""
    runs_on: int = 0
    """The job that it refuses to complete."""
    old: bool = False
    gone: bool = False
    chokes: int = 0
    """The job whose submission ends in an error of which nobody thought."""
    free: set[int] = field(default_factory=set)
    """Jobs that may be requeued."""
    restarts: dict[int, int] = field(default_factory=dict)
    awaits: dict[int, int] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    now: list[str] = field(default_factory=list)
    delays_nothing: bool = False
    requeues_nothing: bool = False
    silent: set[str] = field(default_factory=set)
    """Nodes that don't respond."""
    removed: set[str] = field(default_factory=set)
    """Nodes that Slurm doesn't know any more."""
    crontabs: dict[int, list[int]] = field(default_factory=dict)
    """The jobs of each user's crontab."""
    saved: list[int] = field(default_factory=list)
    """Users whose crontabs were saved again."""
    looks: int = 0
    """How often it was asked about nodes."""
    unanswered: dict[int, Callable[[Ctl], None]] = field(default_factory=dict)
    """Jobs whose submission isn't answered, with what happens meanwhile."""

    def knows(self, job: int, state: str = "PENDING", task: str = "", id_: int = 0, held: bool = False) -> None:
        self.jobs[job, task] = QueueEntry(job, task, id_ or job, state, 1000, held)

    def _answer(self) -> None:
        if self.dead:
            raise Cancelled
        if self.deaf:
            raise SlurmError("no answer")

    def queue(self) -> list[QueueEntry]:
        self._answer()
        return list(self.jobs.values())

    def pending(self) -> dict[int, PendingJob]:
        self._answer()
        found = {}
        for listed in self.jobs.values():
            if listed.state == "PENDING":
                awaits = frozenset({self.awaits[listed.id]} if listed.id in self.awaits else ())
                from_crontab = listed.id in self.crontabs.get(listed.user, ())
                restarts = self.restarts.get(listed.id, 0)
                found[listed.id] = PendingJob(listed.id, listed.id in self.free, restarts, awaits, from_crontab)
        return found

    def has_silent_nodes(self) -> bool:
        self._answer()
        self.looks += 1
        return bool(self.silent)

    def silent_nodes(self, hostlist: str) -> set[str]:
        self._answer()
        self.looks += 1
        if hostlist.count("[") != hostlist.count("]"):
            raise SlurmError("Invalid hostlist")
        first, _, rest = hostlist.partition("[")
        names = {f"{first}{number}" for number in rest.strip("]").split(",")} if rest else set(hostlist.split(","))
        return names & (self.silent | self.removed)

    def requeues_by_default(self) -> bool:
        return bool(self.free)

    def delay(self, names: Sequence[str]) -> None:
        self._answer()
        if self.delays_nothing:
            raise SlurmError("no")
        self.late += names

    def start_now(self, names: Sequence[str]) -> None:
        self._answer()
        self.now += names

    def requeue(self, jobs: Collection[int]) -> None:
        self._answer()
        if self.old:
            raise SlurmError("only Slurm 26.05 requeues a pending job")
        for job in () if self.requeues_nothing else set(jobs) & self.free:
            self.restarts[job] = self.restarts.get(job, 0) + 1

    def hold(self, names: Sequence[str], why: str) -> None:
        self._answer()
        self.comments.append(why)
        for name in names:
            job, _, task = name.partition("_")
            for key, listed in self.jobs.items():
                if key[0] == int(job) and task in ("", key[1]) and not self.holds_nothing:
                    self.jobs[key] = replace(listed, held=True)

    def release(self, names: Sequence[str]) -> None:
        self._answer()
        for key, listed in self.jobs.items():
            if (f"{key[0]}_{key[1]}" if key[1] else str(key[0])) in names:
                self.jobs[key] = replace(listed, held=False)

    def cancel_jobs(self, names: Sequence[str]) -> None:
        self._answer()
        self.cancelled += names
        for key, listed in self.jobs.items():
            # An array's ID stands for all its tasks, also those that run.
            if {str(key[0]), listed.name} & set(names) and listed.name != self.keeps:
                self.jobs[key] = replace(listed, state="CANCELLED")
        if self.keeps in names:
            self.deaf = self.deaf_afterwards
            raise SlurmError("Kill job error")

    def complete(self, statuses: dict[int, int]) -> None:
        self._answer()
        if self.old:
            raise SlurmError("only Slurm 26.05 lets a job be completed with its status")
        for key, listed in self.jobs.items():
            if listed.id in statuses.keys() - {self.runs_on}:
                self.jobs[key] = replace(listed, state="COMPLETED")
                self.completed[listed.id] = statuses[listed.id]
        if self.runs_on in statuses:
            raise SlurmError("slurmctld answered 1 of 2 requests not at all")

    def never_requeue(self, names: Sequence[str]) -> None:
        self._answer()
        if any(listed.name in names and listed.state == "COMPLETED" for listed in self.jobs.values()):
            raise SlurmError("Job/step already completing or completed")
        self.never_again += names

    def save_crontab_again(self, user: int) -> None:
        self._answer()
        if user not in self.crontabs:
            raise SlurmError(f"invalid user: {user}")
        self.saved.append(user)

    def left(self) -> float:
        raise SlurmError("there was no time left")

    def pause(self, seconds: float) -> None:
        if self.gone:
            raise Cancelled

    def rest(self) -> Ctl:
        return self

    def submit(self, job: dict[str, Any], script: str) -> None:
        self._answer()
        if job["job_id"] == self.chokes:
            raise ValueError("not a number")
        if job["job_id"] in self.unanswered:
            self.unanswered[job["job_id"]](self)
            raise SlurmError("slurmrestd gave no answer")
        if job["job_id"] in self.refuses and ("dependency" in job or not self.refuses[job["job_id"]].refused):
            raise self.refuses[job["job_id"]]
        if job["job_id"] in self.submitted:
            raise SlurmError("Duplicate job id", DUPLICATE)
        self.submitted[job["job_id"]] = {**job, "script": script}
        self.knows(job["job_id"], held=job.get("hold", False))

    def close(self) -> None:
        pass


@pytest.fixture
def epoch(tmp_path: Path) -> Path:
    folder = tmp_path / "epoch-3"
    folder.mkdir()
    save_state(folder, T0 - 4)
    return folder


def journal(epoch: Path, **options: dict[str, Any]) -> None:
    lines = [{"v": 1, "key": key, "time": 1, "uid": 1000, "options": its} for key, its in options.items()]
    (epoch / "seltzer.journal").write_text("".join(json.dumps(line) + "\n" for line in lines))


def outcomes(recovered: recovery.RepairReport) -> dict[str, str]:
    return {job.id: job.outcome for job in recovered.jobs}


def run(epoch: Path, ctl: Ctl, log: str, keep_jobs: bool = True) -> dict[str, str]:
    write_log(epoch, log)
    recovered = recovery.RepairReport()
    recovery.repair(recovery.find(epoch), ctl, keep_jobs, recovered)
    return outcomes(recovered)


def repaired(epoch: Path, ctl: Ctl, log: str) -> tuple[bool, dict[str, str]]:
    """Whether what was found may be forgotten, and what each job is told."""
    write_log(epoch, log)
    recovered = recovery.RepairReport()
    safe = recovery.repair(recovery.find(epoch), ctl, True, recovered)
    return safe, {job.id: job.why for job in recovered.jobs}


def test_jobs_come_back_under_their_ids_with_script_environment_and_options(epoch: Path) -> None:
    for job in (13, 12):
        write_job(epoch, job, key=f"k{job}")
    journal(epoch, k12={"user_id": "1000", "name": "a"}, k13={"user_id": "1001", "dependency": "afterok:12"})
    ctl = Ctl()
    assert run(epoch, ctl, submit(12, 1) + submit(13, 2)) == {"12": "put-back", "13": "put-back"}
    assert list(ctl.submitted) == [12, 13], "in the order in which they were submitted"
    first = ctl.submitted[12]
    assert (first["name"], first["script"]) == ("a", "#!/bin/sh\necho 12\n")
    assert first["environment"] == ["SELTZER_PUT_BACK=k12", "A=b", "SELTZER_JOB=k12", "TWO=lines\nof it"]
    assert "hold" not in first


@pytest.mark.parametrize("saved", [False, True])
def test_no_job_comes_back_with_the_options_of_another(epoch: Path, saved: bool) -> None:
    for job, key in ((12, "k12"), (13, "k12"), (14, "k14")):
        write_job(epoch, job, key=key)
    journal(epoch, k12={"user_id": "1000"}, k14={"user_id": "1001"})
    ctl = Ctl()
    if saved:
        ctl.knows(12)
    told = run(epoch, ctl, submit(12, 1) + submit(13, 2) + submit(14, 3))
    assert told == ({} if saved else {"12": "kept"}) | {"13": "kept", "14": "put-back"}
    assert list(ctl.submitted) == [14]
    assert (epoch.parent / spool.LOST / "job.13" / "script").exists()


def test_options_that_a_job_loses_are_reported(epoch: Path) -> None:
    for job in (12, 13):
        folder = write_job(epoch, job, key=f"k{job}")
        (folder / "script").write_bytes(b"#!/bin/sh\n#SBATCH --deadline=2030-01-01\ntrue\n\0")
    journal(epoch, k12={"user_id": "1000"}, k13={"user_id": "1000"})
    ctl = Ctl()
    _, whys = repaired(epoch, ctl, submit(12, 1) + submit(13, 2) + LINE % (3, START % 13))
    assert whys["12"] == "it had not started; without --deadline, which no plugin sees"
    assert whys["13"] == ctl.submitted[13]["admin_comment"]
    assert whys["13"].endswith("it had started on n1; without --deadline, which no plugin sees")


def test_jobs_that_slurmctld_knows_are_left_alone(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    ctl = Ctl()
    ctl.knows(12)
    assert run(epoch, ctl, submit(12, 1)) == {}
    assert not ctl.submitted and not (epoch.parent / spool.LOST).exists()


def test_a_job_that_had_started_comes_back_held(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    ctl = Ctl()
    assert run(epoch, ctl, submit(12, 1) + LINE % (2, START % 12)) == {"12": "held"}
    assert ctl.submitted[12]["hold"] is True
    assert "it had started on n1" in ctl.submitted[12]["admin_comment"]


def test_without_keep_jobs_everything_is_kept_on_the_volume(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    ctl = Ctl()
    assert run(epoch, ctl, submit(12, 1), keep_jobs=False) == {"12": "kept"}
    assert not ctl.submitted and (epoch.parent / spool.LOST / "job.12" / "script").exists()


def test_putting_back_twice_is_as_good_as_once(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    ctl = Ctl(submitted={12: {}})
    assert run(epoch, ctl, submit(12, 1)) == {"12": "put-back"}


def give_away(epoch: Path, job: int) -> None:
    """Another job has got its ID meanwhile, and slurmctld has removed the directory of the one before."""
    shutil.rmtree(spool.directory(epoch, job))
    write_job(epoch, job, key="another")


@pytest.mark.parametrize("known", [True, False])
def test_a_job_whose_id_was_given_to_another_one_is_kept_and_the_other_is_left_alone(epoch: Path, known: bool) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    write_log(epoch, submit(12, 1) + LINE % (2, START % 12))
    found, recovered = recovery.find(epoch), recovery.RepairReport()
    give_away(epoch, 12)
    ctl = Ctl(submitted={12: {}})
    if known:  # otherwise it comes between the look at the queue and the submission
        ctl.knows(12)
    recovery.repair(found, ctl, True, recovered)
    ((told),) = recovered.jobs
    assert (told.id, told.outcome, told.why) == (
        "12",
        "kept",
        "it could not be put back: another job was given its ID",
    )
    assert (epoch.parent / spool.LOST / "job.12" / "script").exists()
    assert not any(listed.held for listed in ctl.jobs.values())


def test_a_job_that_was_not_put_back_is_not_taken_for_the_other_one_that_has_its_id(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})

    def other(ctl: Ctl) -> None:
        give_away(epoch, 12)
        ctl.knows(12)

    assert run(epoch, Ctl(unanswered={12: other}), submit(12, 1)) == {"12": "kept"}


def test_a_job_whose_put_back_was_not_answered_is_known_by_its_key(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    write_log(epoch, submit(12, 1))
    found, recovered = recovery.find(epoch), recovery.RepairReport()
    environment = spool.directory(epoch, 12) / "environment"
    environment.unlink()  # so that the one that is safe stays as it was
    environment.write_bytes(struct.pack("=I", 2) + b"SELTZER_PUT_BACK=\0SELTZER_JOB=k12\0")
    recovery.repair(found, Ctl(submitted={12: {}}), True, recovered)
    assert outcomes(recovered) == {"12": "put-back"}


def test_a_job_whose_dependency_is_gone_is_held_without_it(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000", "dependency": "afterok:9"})
    ctl = Ctl(refuses={12: SlurmError("Job dependency problem", 2040)})
    assert run(epoch, ctl, submit(12, 1)) == {"12": "held"}
    assert ctl.submitted[12]["hold"] is True and "dependency" not in ctl.submitted[12]


def test_a_job_that_was_taken_without_an_answer_is_not_kept_for_a_person_to_run_again(epoch: Path) -> None:
    for job in (12, 13):
        write_job(epoch, job, key=f"k{job}")
    journal(epoch, k12={"user_id": "1000"}, k13={"user_id": "1000"})
    ctl = Ctl(unanswered={12: lambda ctl: ctl.knows(12), 13: lambda ctl: None})
    _, whys = repaired(epoch, ctl, submit(12, 1) + submit(13, 2))
    assert whys == {"12": "it had not started", "13": "it could not be put back: slurmrestd gave no answer"}
    assert [folder.name for folder in (epoch.parent / spool.LOST).iterdir()] == ["job.13"]


def test_a_job_of_which_nobody_knows_whether_it_was_taken_says_so(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    _, whys = repaired(epoch, Ctl(unanswered={12: lambda ctl: setattr(ctl, "deaf", True)}), submit(12, 1))
    assert whys["12"].startswith("first check whether it is in the queue")
    assert (epoch.parent / spool.LOST / "job.12" / "script").exists()


def test_a_job_that_slurmctld_was_never_asked_to_take_needs_no_look(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    ctl = Ctl(refuses={12: SlurmError("there was no time left", unasked=True)})
    _, whys = repaired(epoch, ctl, submit(12, 1))
    assert whys == {"12": "it could not be put back: there was no time left"}


def test_what_had_started_and_is_waiting_again_is_held_task_by_task(epoch: Path) -> None:
    ctl = Ctl()
    ctl.knows(12)
    ctl.knows(20, task="1", id_=20)
    ctl.knows(20, task="2", id_=20)
    log = LINE % (1, START % 12) + LINE % (2, START % "20_1(21)")
    assert run(epoch, ctl, log) == {"12": "held", "20_1": "held"}
    assert {key: listed.held for key, listed in ctl.jobs.items()} == {(12, ""): True, (20, "1"): True, (20, "2"): False}


@pytest.mark.parametrize(("jobs", "calls"), [(20, 20), (21, 1), (500, 1)])
def test_many_jobs_are_held_with_few_calls_although_each_had_started_somewhere_else(
    epoch: Path, jobs: int, calls: int
) -> None:
    ctl = Ctl()
    log = ""
    for job in range(1, jobs + 1):
        ctl.knows(job)
        log += LINE % (1, f"sched: Allocate JobId={job} NodeList=n{job} #CPUs=1 Partition=cpu")
    _, whys = repaired(epoch, ctl, log)
    assert all(listed.held for listed in ctl.jobs.values())
    assert len(ctl.comments) == calls
    assert whys["7"] == "it had started on n7, which was not saved: it would have run twice"
    if calls == 1:
        assert ctl.comments == ["it had started, which was not saved: it would have run twice"]


def withdrawn(source: Path) -> bool:
    return b"put aside" in (source / "script").read_bytes()


def test_a_job_of_a_crontab_waits_for_its_next_time_and_the_crontab_is_saved_once(epoch: Path) -> None:
    for job in (12, 13, 14):
        write_job(epoch, job, key=f"k{job}")
    journal(epoch, k14={"user_id": "1000"})
    with (epoch / "seltzer.journal").open("a") as file:
        line = {"v": 1, "key": "k15", "time": 1, "uid": 1001, "cannot": FROM_CRONTAB, "options": {"user_id": "1001"}}
        file.write(json.dumps(line) + "\n")
    write_job(epoch, 15, key="k15")
    ctl = Ctl(crontabs={1000: [12, 13], 1001: []}, free={12, 13, 14})
    for job in (12, 13, 14):
        ctl.knows(job)
    log = "".join(LINE % (job, START % job) for job in (12, 13)) + LINE % (3, "_job_complete: JobId=12 WEXITSTATUS 0")
    told = run(epoch, ctl, log)
    assert told == dict.fromkeys(("12", "13", "15"), "requeued")
    assert ctl.saved == [1000, 1001]
    assert not ctl.restarts and not ctl.late and not any(each.held for each in ctl.jobs.values())
    assert (spool.directory(epoch, 13) / "script").read_text() != "", "its script isn't replaced"


def test_a_crontab_that_can_not_be_saved_keeps_no_other_from_it(epoch: Path) -> None:
    lines = [
        {"v": 1, "key": f"k{uid}", "time": 1, "uid": uid, "cannot": FROM_CRONTAB, "options": {"user_id": str(uid)}}
        for uid in (1000, 1001)
    ]
    (epoch / "seltzer.journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for job in (1000, 1001):
        write_job(epoch, job, key=f"k{job}")
    ctl = Ctl(crontabs={1001: []})
    _, whys = repaired(epoch, ctl, "")
    assert ctl.saved == [1001]
    assert "save it with scrontab -e; invalid user: 1000" in whys["1000"]


def test_what_can_not_be_held_is_made_to_fail(epoch: Path) -> None:
    source = write_job(epoch, 12, at=T0 - 900)
    ctl = Ctl(holds_nothing=True)
    ctl.knows(12)
    assert run(epoch, ctl, LINE % (1, START % 12)) == {"12": "kept"}
    assert withdrawn(source) and (epoch.parent / spool.LOST / "job.12" / "script").exists()


def test_when_slurmctld_does_not_answer_nothing_runs_twice_and_nothing_is_lost(epoch: Path) -> None:
    started, waiting = write_job(epoch, 12, at=T0 - 900), write_job(epoch, 13, at=T0 - 900)
    write_job(epoch, 14, key="k14")
    journal(epoch, k14={"user_id": "1000"})
    log = LINE % (1, START % 12) + submit(14, 2)
    log += "".join(LINE % (3, f"Recovered JobId={job} Assoc=0") for job in (12, 13))
    assert run(epoch, Ctl(deaf=True), log) == {"12": "kept", "14": "kept"}
    assert withdrawn(started) and not withdrawn(waiting)


def test_when_slurmctld_dies_everything_is_left_for_the_next_start(epoch: Path) -> None:
    started = write_job(epoch, 12, at=T0 - 900)
    write_job(epoch, 14, key="k14")
    write_log(epoch, LINE % (1, START % 12) + submit(14, 2))
    for ctl in (Ctl(dead=True), Ctl(deaf=True, gone=True)):
        with pytest.raises(Cancelled):
            recovery.repair(recovery.find(epoch), ctl, True, recovery.RepairReport())
    assert not withdrawn(started) and spool.saved(epoch) == {14}
    assert not (epoch.parent / spool.LOST).exists()


def test_a_job_that_nobody_thought_of_costs_no_other(epoch: Path) -> None:
    for job in (12, 13, 14):
        write_job(epoch, job, key=f"k{job}")
    journal(epoch, **{f"k{job}": {"user_id": "1000"} for job in (12, 13, 14)})
    ctl = Ctl(chokes=13)
    log = submit(12, 1) + submit(13, 2) + submit(14, 3)
    assert run(epoch, ctl, log) == {"12": "put-back", "13": "kept", "14": "put-back"}
    assert (epoch.parent / spool.LOST / "job.13" / "script").exists()


def test_where_lost_takes_nothing_jobs_are_kept_beside_the_state(epoch: Path) -> None:
    started = write_job(epoch, 12, at=T0 - 900)
    write_job(epoch, 14)
    (epoch.parent / spool.LOST).write_text("not a folder")
    ctl = Ctl(holds_nothing=True)
    ctl.knows(12)
    safe, whys = repaired(epoch, ctl, LINE % (1, START % 12) + submit(14, 2))
    assert safe and all(why.startswith("in seltzer.unkept beside the state") for why in whys.values())
    assert withdrawn(started)
    for job in (12, 14):
        assert f"echo {job}" in (epoch / spool.UNKEPT / f"job.{job}" / "script").read_text()


def test_a_job_that_can_be_kept_nowhere_is_reported_and_not_forgotten(epoch: Path) -> None:
    write_job(epoch, 14)
    for file in (epoch.parent / spool.LOST, epoch / spool.UNKEPT):
        file.write_text("not a folder")
    safe, whys = repaired(epoch, Ctl(), submit(14, 2))
    assert not safe and "can't be kept: " in whys["14"]
    assert spool.saved(epoch) == {14}


def test_what_can_neither_be_held_nor_put_aside_is_not_left_to_run(
    epoch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(epoch, 12, at=T0 - 900)
    monkeypatch.setattr(spool, "withdraw", fail)
    ctl = Ctl(holds_nothing=True)
    ctl.knows(12)
    safe, whys = repaired(epoch, ctl, LINE % (1, START % 12))
    assert not safe, "so the next start looks at it again, before anything is scheduled"
    assert "did not succeed: Input/output error" in whys["12"]


def fail(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_job_that_was_kept_by_a_start_that_could_not_tell_is_reported_by_the_next(epoch: Path) -> None:
    write_job(epoch, 14)
    assert run(epoch, Ctl(), submit(14, 2)) == {"14": "kept"}
    safe, whys = repaired(epoch, Ctl(), submit(14, 2))
    assert safe and whys == {"14": "there is no journal of its options"}


def test_a_cancelled_repair_keeps_nothing_without_a_report(epoch: Path) -> None:
    write_job(epoch, 12)
    write_job(epoch, 13, key="k13")
    journal(epoch, k13={"user_id": "1000"})
    write_log(epoch, submit(12, 1) + submit(13, 2))
    found = recovery.find(epoch)
    with pytest.raises(Cancelled):
        recovery.repair(found, Ctl(refuses={13: SlurmError("no answer")}, gone=True), True, recovery.RepairReport())
    assert spool.saved(epoch) == {12, 13} and not (epoch.parent / spool.LOST).exists()


def test_a_job_that_was_put_back_is_named_although_the_repair_is_cancelled(epoch: Path) -> None:
    for job in (12, 13):
        write_job(epoch, job, key=f"k{job}")
    journal(epoch, k12={"user_id": "1000"}, k13={"user_id": "1000"})
    write_log(epoch, submit(12, 1) + submit(13, 2))
    recovered = recovery.RepairReport()
    with pytest.raises(Cancelled):
        recovery.repair(recovery.find(epoch), Ctl(refuses={13: SlurmError("no answer")}, gone=True), True, recovered)
    assert outcomes(recovered) == {"12": "put-back"}


def test_when_the_repair_itself_fails_all_that_was_not_put_back_is_kept_and_told(
    epoch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in (12, 13, 14):
        write_job(epoch, job)
    started = write_job(epoch, 15, at=T0 - 900)
    write_log(epoch, "".join((submit(12, 1), submit(13, 2), LINE % (3, START % 15))))

    def breaks(_: object, __: object, ___: object, recovered: recovery.RepairReport) -> bool:
        recovered.add("12", 1000, "put-back", "it had not started")
        raise RuntimeError("of which nobody thought")

    found = recovery.find(epoch)
    with (epoch / history.LOG).open("a") as log:
        log.write("".join(LINE % (4, f"Recovered JobId={job} Assoc=0") for job in (14, 15)))
    monkeypatch.setattr(recovery, "repair", breaks)
    ended = threading.Event()
    repairer = Repairer(found, Settings("ns", "lease", "slice", "pod", "address"), Processes(), ended.set)
    assert ended.wait() and repairer.done and repairer.safe
    assert outcomes(repairer.recovered) == {"12": "put-back", "13": "kept", "15": "kept"}
    assert "of which nobody thought" in repairer.recovered.jobs[-1].why
    assert withdrawn(started) and (epoch.parent / spool.LOST / "job.13" / "script").exists()


def test_what_had_ended_is_completed_with_its_status(epoch: Path) -> None:
    log = LINE % (1, START % 12) + LINE % (2, "_job_complete: JobId=12 WEXITSTATUS 3")
    log += LINE % (2, "_job_complete: JobId=12 done")
    ctl = Ctl()
    ctl.knows(12, "RUNNING")
    assert run(epoch, ctl, log) == {"12": "ran"}
    assert ctl.completed == {12: 768} and not ctl.cancelled


def test_where_slurm_can_not_be_told_the_status_the_job_is_cancelled_rather_than_run_again(epoch: Path) -> None:
    log = LINE % (1, START % 12) + LINE % (2, "_job_complete: JobId=12 WEXITSTATUS 0")
    log += LINE % (2, "_job_complete: JobId=12 done")
    ctl = Ctl(old=True)
    ctl.knows(12, "RUNNING")
    assert run(epoch, ctl, log) == {"12": "ran"}
    assert ctl.cancelled == ["12"]


def test_of_jobs_that_had_ended_only_those_are_cancelled_that_could_not_be_completed(epoch: Path) -> None:
    log = ""
    for job in (12, 13):
        log += LINE % (1, START % job) + LINE % (2, f"_job_complete: JobId={job} WEXITSTATUS 0")
        log += LINE % (2, f"_job_complete: JobId={job} done")
    ctl = Ctl(runs_on=13)
    ctl.knows(12, "RUNNING")
    ctl.knows(13, "RUNNING")
    _, told = repaired(epoch, ctl, log)
    assert ctl.completed == {12: 0} and ctl.cancelled == ["13"]
    assert "cancelled" not in told["12"] and "it shows as cancelled" in told["13"]


def test_an_acknowledged_scancel_is_done_again(epoch: Path) -> None:
    ctl = Ctl()
    ctl.knows(12)
    ctl.knows(13, "RUNNING")
    ctl.knows(20, task="3", id_=20)
    ctl.knows(20, task="5", id_=20)
    log = "".join(
        (
            LINE % (1, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=12 uid 1000"),
            LINE % (1, "job_signal: 9 of pending JobId=12 successful"),
            LINE % (1, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=13 uid 1000"),
            LINE % (1, "job_signal: 9 of running JobId=13 successful 0x8004"),
            LINE % (1, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=20_[3-4] uid 1000"),
        )
    )
    assert run(epoch, ctl, log) == {"12": "cancelled", "13": "cancelled", "20_3": "cancelled"}
    assert ctl.cancelled == ["12", "13", "20_3"]


def test_of_an_array_whose_pending_tasks_were_cancelled_the_others_run_on(epoch: Path) -> None:
    ctl = Ctl()
    ctl.knows(20, "RUNNING", task="1", id_=21)
    for task in ("2", "3"):
        ctl.knows(20, task=task, id_=20)
    log = LINE % (1, "job_signal: 9 of pending JobId=20_* successful")
    told = run(epoch, ctl, log)
    assert ctl.jobs[20, "1"].state == "RUNNING"
    assert told == {"20_2": "cancelled", "20_3": "cancelled"}
    assert ctl.cancelled == ["20_2", "20_3"]


@pytest.mark.parametrize("deaf", [False, True])
def test_what_can_not_be_cancelled_is_made_to_fail_where_it_may_be_pending(epoch: Path, deaf: bool) -> None:
    sources = {job: write_job(epoch, job, at=T0 - 900) for job in (12, 13, 14)}
    ctl = Ctl(keeps="13", deaf_afterwards=deaf)
    for job, state in ((12, "PENDING"), (13, "PENDING"), (14, "RUNNING")):
        ctl.knows(job, state)
    log = "".join(LINE % (1, f"job_signal: 9 of pending JobId={job} successful") for job in sources)
    assert run(epoch, ctl, log) == dict.fromkeys(("12", "13", "14"), "cancelled")
    made_to_fail = {job for job, source in sources.items() if withdrawn(source)}
    assert made_to_fail == ({12, 13} if deaf else {13}), "what is known to be cancelled keeps its script"


def test_an_interactive_job_is_named_although_nothing_of_it_is_left(epoch: Path) -> None:
    log = LINE % (1, "sched: _slurm_rpc_allocate_resources JobId=15 NodeList=n1 usec=1276")
    assert run(epoch, Ctl(), log) == {"15": "lost"}


def mark(epoch: Path, at: float) -> None:
    """Then there was no room for the log."""
    (epoch / log_reserve.UNLOGGED).touch()
    os.utime(epoch / log_reserve.UNLOGGED, (at, at))


def test_where_lines_of_the_log_may_be_missing_nothing_that_waits_is_taken_for_unstarted(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    journal(epoch, k12={"user_id": "1000"})
    mark(epoch, T0)
    ctl = Ctl()
    ctl.knows(1)
    ctl.knows(2, held=True)
    ctl.knows(3, "RUNNING")
    ctl.knows(4, task="7", id_=5)
    found = run(epoch, ctl, submit(12, 1))
    assert found == {"1": "held", "4_7": "held", "12": "held"}
    assert all(ctl.jobs[name].held for name in ((1, ""), (4, "7"))) and ctl.submitted[12]["hold"]
    assert ctl.never_again == ["3"], "it may have ended, and Slurm would start it again"


@pytest.mark.parametrize("reaches_back", [True, False])
def test_a_log_that_does_not_reach_back_to_the_last_save_proves_nothing(
    epoch: Path, reaches_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "LIMIT", 100)
    write_log(epoch, LINE % (10 if reaches_back else 30, "debug3: x" * 10), f"{history.LOG}.1")
    ctl = Ctl()
    ctl.knows(1)
    told = run(epoch, ctl, submit(12, 31))
    assert told == ({"12": "lost"} if reaches_back else {"1": "held", "12": "lost"})


@pytest.mark.parametrize("level", ["info", "verbose"])
def test_where_the_log_was_set_too_quiet_nothing_that_waits_is_taken_for_unstarted(epoch: Path, level: str) -> None:
    ctl = Ctl()
    ctl.knows(1)
    ctl.knows(2, held=True)
    log = LINE % (1, "slurmctld version 26.05.5 started on cluster x(885)") + LINE % (
        2,
        f"Set debug level to '{level}'",
    )
    _, whys = repaired(epoch, ctl, log + submit(12, 50))
    assert whys.pop("12") and whys == ({"1": may_have_started(UNSEEN)} if level == "info" else {})


def test_a_young_log_is_all_there_ever_was(epoch: Path) -> None:
    write_log(epoch, LINE % (30, "slurmctld version 26.05.5 started on cluster x(885)"), f"{history.LOG}.1")
    ctl = Ctl()
    ctl.knows(1)
    assert run(epoch, ctl, submit(12, 31)) == {"12": "lost"}


def test_a_repair_that_was_cut_short_still_knows_that_lines_are_missing(epoch: Path) -> None:
    write_log(epoch, submit(12, 1))
    write_job(epoch, 12, key="k12")
    mark(epoch, T0)
    assert recovery.find(epoch).unlogged
    mark(epoch, 0)  # what was saved meanwhile is younger
    assert recovery.find(epoch).unlogged
    recovery.mark_repaired(epoch, "")
    assert not recovery.find(epoch).unlogged


def test_without_a_state_a_mark_that_was_never_set_means_nothing(epoch: Path) -> None:
    (epoch / "job_state").unlink()
    write_job(epoch, 12, key="k12")
    log_reserve.keep(epoch)
    write_log(epoch, submit(12, 1))
    found = recovery.find(epoch)
    assert found.jobs == {12} and not found.unlogged


def test_a_mark_that_is_older_than_the_state_means_nothing(epoch: Path) -> None:
    write_job(epoch, 12, key="k12")
    mark(epoch, 0)
    ctl = Ctl()
    ctl.knows(1)
    assert run(epoch, ctl, submit(12, 1)).keys() == {"12"}
