"""A guard whose slurmctld was killed: the next one schedules nothing before what wasn't saved is repaired."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.guard.api import FakeApi
from tests.fakes.guard.rig import Rig, until
from tests.programs import write_program
from tests.unit.guard.recovery.test_files import LINE, submit, write_job

from seltzer.guard.recovery import Findings, first_job_id, requeues

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
    write_program(folder / "commands" / "squeue", squeue)


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
    assert [(group["jobs"], group["outcome"]) for group in found["groups"]] == [("12", "kept")]
    (whole,) = json.loads((rig.state / "epoch-1" / "seltzer.recoveries").read_text())
    assert (whole["time"], whole["groups"]) == (found["time"], found["groups"]), "it is on the volume too"
    until("it ends and saves all", lambda: len(rig.happened("end")) == ends + 1)
    assert rig.running() != pid
    assert len(rig.happened("reconfigure")) == before, "no slurmd has to start anew"
    quiet = (rig.folder / "while-repairing").read_text()
    assert "sched_interval=-1" in quiet and "FirstJobId=13" in quiet
    assert "sched_interval" not in conf(rig) and "FirstJobId" not in conf(rig)
    assert "echo 12" in (rig.state / "lost" / "job.12" / "script").read_text()
    until("all is forgotten", lambda: not (rig.state / "epoch-1" / "seltzer.recovery").exists())


def test_no_first_id_is_set_that_would_have_slurmctld_drop_jobs(rig: Rig) -> None:
    rig.configure("first", "MaxJobCount=20000\nMaxJobId=20012")
    rig.start()
    pid = rig.running()
    lose(rig, 12)
    answer(rig.folder, f"#!/bin/sh\ncp {rig.folder}/etc-pod-a/slurm.conf {rig.folder}/while-repairing\n")
    os.kill(pid, signal.SIGKILL)
    until("the job is named", lambda: rig.api.report.get("recovered"))
    quiet = (rig.folder / "while-repairing").read_text()
    assert "sched_interval=-1" in quiet and "FirstJobId" not in quiet


@pytest.mark.parametrize(("wanted", "conf", "given"), [
    (13, b"", True),
    (67_033_328, b"", True),
    (67_033_329, b"", False),
    (67_043_329, b"MaxJobCount=1", False),
    (67_033_328, b"MaxJobId=999999999", True),
    (67_033_329, b"MaxJobId=999999999", False),
    (13, b"MAXJOBCOUNT = 90\n maxjobid=103 # all", True),
    (14, b"MAXJOBCOUNT = 90\n maxjobid=103 # all", False),
    (13, b"MaxJobCount=90\nMaxJobId=9\n#MaxJobId=8\nMaxJobId=0x67\n", True),
    (13, b"MaxJobCount=many", False),
    (0, b"", False),
])  # fmt: skip
def test_a_first_id_leaves_room_for_all_jobs_that_may_be_saved(wanted: int, conf: bytes, given: bool) -> None:
    assert first_job_id.line(wanted, conf) == (f"FirstJobId={wanted}\n" if given else "")


def test_a_job_that_lost_does_not_take_survives_and_is_named(rig: Rig) -> None:
    rig.start()
    pid = rig.running()
    lose(rig, 12)
    (rig.state / "lost").write_text("not a folder")
    os.kill(pid, signal.SIGKILL)
    found = json.loads(until("the job is named", lambda: rig.api.report.get("recovered")))
    (group,) = found["groups"]
    assert (group["jobs"], group["outcome"]) == ("12", "kept") and "in seltzer.unkept" in group["why"]
    until("all else is forgotten", lambda: not (rig.state / "epoch-1" / "seltzer.recovery").exists())
    assert rig.running() != pid
    assert "echo 12" in (rig.state / "epoch-1" / "seltzer.unkept" / "job.12" / "script").read_text()


def test_what_can_be_kept_nowhere_is_looked_at_again_until_it_can(rig: Rig) -> None:
    rig.start()
    pid = rig.running()
    lose(rig, 12)
    for file in (rig.state / "lost", rig.state / "epoch-1" / "seltzer.unkept"):
        file.write_text("not a folder")
    os.kill(pid, signal.SIGKILL)
    until("the job is named", lambda: rig.api.report.get("recovered"))
    until("it is not forgotten", lambda: rig.said.count("the next start looks at them again") > 1)
    (rig.state / "lost").unlink()
    assert rig.running() != pid
    assert "echo 12" in (rig.state / "lost" / "job.12" / "script").read_text()


def test_the_log_has_the_day_in_each_line_whatever_a_site_sets(rig: Rig) -> None:
    rig.configure("first", "LogTimeFormat=short")
    rig.start()
    rig.running()
    words = [line.partition("=")[2] for line in conf(rig).splitlines() if line.startswith("LogTimeFormat=")]
    assert words[-1] == "iso8601_ms", "the last one counts"


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


def test_a_second_kill_takes_nothing_away_that_may_not_have_been_read_yet(rig: Rig) -> None:
    rig.start()
    pid = rig.running()

    def kill() -> dict[str, Any]:
        before = rig.api.report.get("recovered")
        os.kill(pid, signal.SIGKILL)
        until("something new is told", lambda: rig.api.report.get("recovered") not in (None, before))
        until("all is forgotten", lambda: not (rig.state / "epoch-1" / "seltzer.recovery").exists())
        return dict(json.loads(rig.api.report["recovered"]))

    lose(rig, 12)
    first = kill()
    pid = rig.running()
    shutil.rmtree(rig.state / "epoch-1" / "hash.2")  # as slurmctld does with jobs that it doesn't know
    (rig.state / "epoch-1" / "job_state").write_text("jobs")
    lose(rig, 13)
    second = kill()
    assert [each["groups"][0]["jobs"] for each in (second, *second["earlier"])] == ["13", "12"]
    assert second["earlier"][0]["time"] == first["time"]


def test_a_slurmctld_that_is_killed_before_it_first_saves_hides_behind_no_clean_stop_before(rig: Rig) -> None:
    guard = rig.start()
    rig.running()
    guard.send_signal(signal.SIGTERM)
    guard.wait()
    rig.start()
    pid = rig.running()
    (epoch,) = rig.state.glob("epoch-*")
    saved = (epoch / "job_state").stat().st_mtime
    write_job(epoch, 12, at=saved + 1)
    (epoch / "slurmctld.log").write_text(submit(12, 1))
    os.utime(epoch / "slurmctld.log", (saved + 1, saved + 1))
    os.kill(pid, signal.SIGKILL)
    until("the job is named", lambda: rig.api.report.get("recovered"))


def test_a_clean_stop_is_followed_by_a_start_as_ever(rig: Rig) -> None:
    guard = rig.start()
    rig.running()
    guard.send_signal(signal.SIGTERM)
    guard.wait()
    rig.start("pod-b")
    rig.running()
    assert rig.happened("start")[-1].state == "epoch-2"
    assert len(rig.happened("reconfigure")) == 1, "the one of a new cluster"
    assert "recovered" not in rig.api.report


def test_a_while_after_a_kill_all_nodes_register_once_more(rig: Rig) -> None:
    rig.start(reregister_after=0.3)
    pid = rig.running()
    lose(rig, 12)
    before = len(rig.happened("reconfigure"))
    os.kill(pid, signal.SIGKILL)
    until("they are told", lambda: len(rig.happened("reconfigure")) == before + 1)
    assert rig.running() != pid
    until("people are told", lambda: '"reason": "NodesCalled"' in rig.api.report.get("news", ""))


@pytest.mark.parametrize("recent", [True, False])
def test_after_a_clean_stop_they_do_if_a_job_was_started_right_before(rig: Rig, recent: bool) -> None:
    guard = rig.start()
    rig.running()
    guard.send_signal(signal.SIGTERM)
    guard.wait()
    start = "sched: Allocate JobId=12 NodeList=n1 #CPUs=1 Partition=cpu"
    log = LINE % (1, start) + LINE % (10 if recent else 50, "something else")
    (rig.state / "epoch-1" / "slurmctld.log").write_text(log)
    before = len(rig.happened("reconfigure"))
    rig.start("pod-b", reregister_after=0.3)
    rig.running()
    if recent:
        until("they are told", lambda: len(rig.happened("reconfigure")) == before + 1)
    else:
        rig.later("nobody tells them", lambda: len(rig.happened("start")) > 1)
        assert len(rig.happened("reconfigure")) == before


def test_jobs_that_are_not_settled_are_settled_a_while_after_a_start(rig: Rig) -> None:
    for name in ("scontrol", "scancel"):
        write_program(rig.folder / "commands" / name, f'#!/bin/sh\necho {name} "$@" >> {rig.folder}/said\n')
    write_program(rig.folder / "commands" / "sinfo", "#!/bin/sh\n")
    pending = "".join(f"{job}\\0371\\0371\\0371\\0370\\037No\\037\\037\\n" for job in (12, 13))
    queue = "12|N/A|12|PENDING|1000|5\\n13|N/A|13|PENDING|1000|5\\n"
    answer(rig.folder, f"#!/bin/sh\ncase $* in *--Format=*) printf '{pending}' ;; *) printf '{queue}' ;; esac\n")
    guard = rig.start(settle_after=0.2)
    pid = rig.running()
    guard.send_signal(signal.SIGTERM)
    guard.wait()
    epoch = rig.state / "epoch-1"
    requeues.remember(Findings(epoch), ["12", "13"])
    start, end = "sched: Allocate JobId=12 NodeList=n1 #CPUs=1", "job_complete: invalid JobId=12 SLUID=x"
    (epoch / "slurmctld.log").write_text(LINE % (1, start) + LINE % (2, end))
    rig.start("pod-b", settle_after=0.2)
    assert rig.running() != pid
    until("they are settled", lambda: not (rig.state / "epoch-2" / requeues.FILE).exists())
    assert (rig.folder / "said").read_text().splitlines() == ["scancel 12", "scontrol update JobId=13 StartTime=now"]
    found = json.loads(until("it is told", lambda: rig.api.report.get("recovered")))
    assert [(group["jobs"], group["outcome"]) for group in found["groups"]] == [("12", "ran")]


def diagnose(rig: Rig, *counts: int) -> None:
    """What sdiag says of slurmctld's threads that talk to nodes, one time after the other, and the last for ever."""
    (rig.folder / "counts").write_text("".join(f"{each}\n" for each in counts))
    sdiag = f"""#!/bin/sh
cd {rig.folder}
echo asked >> asked
echo "Agent count:          0"
echo "Agent thread count:   $(head -n 1 counts)"
[ "$(wc -l < counts)" = 1 ] || sed -i 1d counts
"""
    write_program(rig.folder / "sdiag", sdiag)


def asked(rig: Rig) -> int:
    """How often sdiag was asked."""
    return len((rig.folder / "asked").read_text().split()) if (rig.folder / "asked").exists() else 0


def test_nodes_that_do_not_answer_put_that_off(rig: Rig) -> None:
    diagnose(rig, 3)
    rig.start(reregister_after=0.1, reregister_retry=0.05, node_reply=0.02)
    pid = rig.running()
    lose(rig, 12)
    before = len(rig.happened("reconfigure"))
    os.kill(pid, signal.SIGKILL)
    rig.later("it is put off", lambda: "do not register again yet: slurmctld waits for 3 answers" in rig.said)
    rig.later("it is asked again and again", lambda: asked(rig) > 10)
    assert len(rig.happened("reconfigure")) == before
    diagnose(rig, 0)
    until("they are told", lambda: len(rig.happened("reconfigure")) == before + 1)


def test_a_talk_to_nodes_that_is_over_soon_puts_nothing_off(rig: Rig) -> None:
    diagnose(rig, 2, 1, 0)
    rig.start(reregister_after=0.1, reregister_retry=60.0, node_reply=0.5)
    pid = rig.running()
    lose(rig, 12)
    before = len(rig.happened("reconfigure"))
    os.kill(pid, signal.SIGKILL)
    until("they are told", lambda: len(rig.happened("reconfigure")) == before + 1)
    assert "do not register again yet" not in rig.said


def test_a_guard_that_can_not_tell_is_not_waited_for(rig: Rig) -> None:
    write_program(rig.folder / "sdiag", "#!/bin/sh\necho something else\n")
    rig.start(reregister_after=0.1, reregister_retry=60.0)
    pid = rig.running()
    lose(rig, 12)
    before = len(rig.happened("reconfigure"))
    os.kill(pid, signal.SIGKILL)
    until("they are told", lambda: len(rig.happened("reconfigure")) == before + 1)
    assert "no longer waits for nodes" in rig.said
