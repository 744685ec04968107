"""A guard whose slurmctld was killed: the next one schedules nothing before what wasn't saved is repaired."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.guard_api import FakeApi
from tests.fakes.guard_rig import Rig, until
from tests.unit.test_guard_recovery_files import submit, write_job

NO_JOBS = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    commands = tmp_path / "commands"
    commands.mkdir()
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    answer(tmp_path, NO_JOBS)
    with FakeApi() as api:
        rig = Rig(tmp_path, api)
        yield rig
        rig.end()


def answer(folder: Path, squeue: str) -> None:
    """What squeue does from now on."""
    half = folder / "commands" / "half"
    half.write_text(squeue)
    half.chmod(0o755)
    half.rename(folder / "commands" / "squeue")


def conf(rig: Rig) -> str:
    return (rig.folder / "etc-pod-a" / "slurm.conf").read_text()


def lose(rig: Rig, job: int) -> None:
    """A job that slurmctld has acknowledged and not saved."""
    epoch = rig.state / "epoch-1"
    saved = (epoch / "job_state").stat().st_mtime
    write_job(epoch, job, at=saved + 1)
    (epoch / "slurmctld.log").write_text(submit(job, 1))
    os.utime(epoch / "slurmctld.log", (saved + 1, saved + 1))


def test_after_a_kill_jobs_are_looked_for_before_anything_is_scheduled(rig: Rig) -> None:
    rig.start()
    pid = rig.running()
    lose(rig, 12)
    answer(rig.folder, f"#!/bin/sh\ncp {rig.folder}/etc-pod-a/slurm.conf {rig.folder}/while-repairing\n")
    before = len(rig.happened("reconfigure"))
    ends = len(rig.happened("end"))
    os.kill(pid, signal.SIGKILL)
    found = json.loads(until("the job is named", lambda: rig.api.report.get("recovered")))
    assert [(job["id"], job["outcome"]) for job in found["jobs"]] == [("12", "kept")]
    until("it ends and saves all", lambda: len(rig.happened("end")) == ends + 1)
    assert rig.running() != pid
    assert len(rig.happened("reconfigure")) == before, "no slurmd has to start anew"
    quiet = (rig.folder / "while-repairing").read_text()
    assert "sched_interval=-1" in quiet and "FirstJobId=13" in quiet
    assert "sched_interval" not in conf(rig) and "FirstJobId" not in conf(rig)
    assert "echo 12" in (rig.state / "lost" / "job.12" / "script").read_text()
    until("all is forgotten", lambda: not (rig.state / "epoch-1" / "seltzer.recovery").exists())


def test_it_is_starting_until_all_is_repaired_and_a_kill_meanwhile_loses_nothing(rig: Rig) -> None:
    rig.start()
    pid = rig.running()
    lose(rig, 12)
    answer(rig.folder, "#!/bin/sh\nexec sleep 60\n")
    os.kill(pid, signal.SIGKILL)
    until("another one runs", lambda: rig.journal[-1].pid != pid)
    quiet = rig.journal[-1].pid
    until("it is being repaired", lambda: (rig.state / "epoch-1" / "seltzer.recovery" / "job.12").exists())
    until("it is told", lambda: rig.api.report.get("phase") in ("starting", "crashed"))
    os.kill(quiet, signal.SIGKILL)
    answer(rig.folder, NO_JOBS)
    until("the job is named", lambda: rig.api.report.get("recovered"))
    rig.running()
    assert (rig.state / "lost" / "job.12" / "script").exists()


def test_a_clean_stop_is_followed_by_a_start_as_ever(rig: Rig) -> None:
    guard = rig.start()
    rig.running()
    guard.send_signal(signal.SIGTERM)
    guard.wait(10)
    rig.start("pod-b")
    rig.running()
    assert rig.happened("start")[-1].state == "epoch-2"
    assert len(rig.happened("reconfigure")) == 1, "the one of a new cluster"
    assert "recovered" not in rig.api.report


def test_a_while_after_a_kill_all_nodes_register_once_more(rig: Rig) -> None:
    rig.start(roll_call=0.3)
    pid = rig.running()
    lose(rig, 12)
    before = len(rig.happened("reconfigure"))
    os.kill(pid, signal.SIGKILL)
    until("they are told", lambda: len(rig.happened("reconfigure")) == before + 1)
    assert rig.running() != pid


def test_nodes_that_do_not_answer_put_that_off(rig: Rig) -> None:
    sinfo, silent = rig.folder / "sinfo", rig.folder / "silent"
    sinfo.write_text(f"#!/bin/sh\ncat {silent}; echo asked >> {rig.folder}/asked\n")
    sinfo.chmod(0o755)
    silent.write_text("cpu-3\ncpu-3\n")
    rig.start(roll_call=0.1, roll_call_again=0.05)
    pid = rig.running()
    lose(rig, 12)
    before = len(rig.happened("reconfigure"))
    os.kill(pid, signal.SIGKILL)
    until(
        "it is asked more than once",
        lambda: (rig.folder / "asked").exists() and len((rig.folder / "asked").read_text()) > 12,
    )
    assert len(rig.happened("reconfigure")) == before
    assert "not yet, since 1 of them" in rig.said
    silent.write_text("")
    until("they are told", lambda: len(rig.happened("reconfigure")) == before + 1)
