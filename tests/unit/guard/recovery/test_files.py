"""Log, journal, job directories: read from real files that may be cut off anywhere or be full of garbage."""

from __future__ import annotations

import calendar
import errno
import itertools
import json
import os
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seltzer.guard import recovery
from seltzer.guard.recovery import findings, history, journal, spool, traces
from seltzer.guard.state import log_reserve, rotation

T0 = 1_700_000_000  # a time of the volume
LINE = "[2026-11-16T03:13:%02d.500] %s\n"


@pytest.fixture
def epoch(tmp_path: Path) -> Path:
    folder = tmp_path / "epoch-3"
    folder.mkdir()
    return folder


def write_log(epoch: Path, text: str, name: str = history.LOG, at: float = T0) -> None:
    (epoch / name).write_text(text)
    os.utime(epoch / name, (at, at))


def write_job(epoch: Path, job: int, at: float = T0, key: str = "") -> Path:
    folder = epoch / f"hash.{job % 10}" / f"job.{job}"
    folder.mkdir(parents=True)
    (folder / "script").write_bytes(b"#!/bin/sh\necho %d\n\0" % job)
    texts = ["A=b", f"SELTZER_JOB={key}", "TWO=lines\nof it"]
    (folder / "environment").write_bytes(struct.pack("=I", 3) + b"".join(text.encode() + b"\0" for text in texts))
    os.utime(folder, (at, at))
    os.utime(folder.parent, (at, at))
    return folder


def save_state(epoch: Path, at: float) -> None:
    (epoch / "job_state").write_text("jobs")
    os.utime(epoch / "job_state", (at, at))


def submit(job: int, second: int) -> str:
    return LINE % (second, f"_slurm_rpc_submit_batch_job: JobId={job} SLUID=x InitPrio=1 usec=1")


def test_lines_since_a_time_are_read_also_from_the_log_before(epoch: Path) -> None:
    write_log(epoch, "".join(LINE % (second, f"line {second}") for second in range(10)), f"{history.LOG}.1")
    write_log(epoch, "".join(LINE % (second, f"line {second}") for second in range(10, 20)))
    everything = history.read(epoch, None)
    assert everything.first is not None
    assert [line[-2:].strip() for line in everything.lines] == [str(second) for second in range(20)]
    some = history.read(epoch, everything.first + 7)
    assert [line[-2:].strip() for line in some.lines] == [str(second) for second in range(7, 20)]


@pytest.mark.parametrize("rotations", [0, 1, 3])
def test_how_much_the_log_tells_is_known_however_long_ago_that_was_said(
    epoch: Path, rotations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "LIMIT", 1)
    begin = LINE % (1, "slurmctld version 26.05.5 started on cluster x(885)")
    write_log(epoch, LINE % (0, "Set DebugFlags to none") + begin + LINE % (2, "Set debug level to 'info'"))
    for second in range(rotations):
        rotation.rotate(epoch, lambda: None)
        write_log(epoch, LINE % (second + 3, "something else"))
    with (epoch / history.LOG).open("a") as log:
        log.write(submit(7, 30))
    last = history.last_time(epoch)
    assert last
    lines = history.read(epoch, last - 5).lines
    assert [line.partition("] ")[2][:14] for line in lines if "JobId" not in line][-1] == "Set debug leve"
    assert not any("Flags" in line for line in lines), "a slurmctld that starts has them as they are configured"
    assert traces.read(lines).of(7).unseen


def test_the_next_guard_knows_how_much_the_log_said(epoch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "LIMIT", 200)
    write_log(epoch, LINE % (2, "Set debug level to 'info'") + LINE % (3, "x" * 300) + submit(7, 30))
    rotation.take_over(epoch)
    last = history.last_time(epoch)
    assert last and traces.read(history.read(epoch, last - 5).lines).of(7).unseen


def test_a_last_line_that_was_cut_off_is_left_out(epoch: Path) -> None:
    write_log(epoch, submit(1, 1) + submit(23, 2)[:-30])
    assert len(history.read(epoch, None).lines) == 1


def test_times_of_files_and_of_the_log_are_compared_where_the_log_ends(epoch: Path) -> None:
    write_log(epoch, submit(1, 1) + submit(2, 11), at=T0)
    last = history.last_time(epoch)
    assert last and history.in_log_time(epoch, T0 - 10) == pytest.approx(last - 10)


BEGIN = calendar.timegm((2026, 11, 16, 3, 13, 0))
SAVED, KILLED = BEGIN + 100, BEGIN + 104
START = "sched: Allocate JobId=%d NodeList=n1 #CPUs=1 Partition=cpu"


def at(seconds: float, text: str) -> str:
    """A line of that time."""
    return f"[{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1000):03d}] {text}\n"


def told_of(epoch: Path, found: recovery.Findings) -> set[int]:
    """Of which jobs the repair knows something."""
    return {job for job, _ in traces.read(history.read(epoch, found.since, found.floor).lines).jobs}


def kill(epoch: Path, zone: float = 0, step: float = 0, busy: bool = True) -> None:
    """Job 4 is old, 5 starts after the last save, and then slurmctld is killed.

    Between the save and the start the log's time leaps by `zone`, and all clocks by `step`.
    """
    log = at(BEGIN, START % 4)
    if busy:
        log += at(SAVED - 1, "x") + at(SAVED + 1, START % 6)
    log += at(SAVED + zone + step + 3, START % 5)
    write_log(epoch, log, at=SAVED + step + 3)
    save_state(epoch, SAVED)


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize(("zone", "step"), [(0, 0), (0, -60), (0, -20), (3600, 0), (-3600, 0), (0, 60)])
def test_whatever_happens_to_the_clock_all_lines_since_the_last_save_are_read(
    epoch: Path, zone: float, step: float, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(epoch, zone, step, busy)
    monkeypatch.setattr(findings, "_now", lambda _: int((SAVED + step + 4) * 1e9))
    found = recovery.find(epoch)
    wanted = {5, 6} if busy else {5}
    if zone < 0:
        wanted.add(4)  # an hour seems to be there twice: both are read
    assert found.needs_repair and told_of(epoch, found) == wanted


@pytest.mark.parametrize("ahead", [0, 10, 30, 4000, -10, -30, -4000])
def test_who_takes_over_reads_what_another_clock_wrote(
    epoch: Path, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(epoch)
    rotation.take_over(epoch)
    monkeypatch.setattr(findings, "_now", lambda _: int((KILLED - ahead) * 1e9))
    found = recovery.find(epoch)
    write_log(epoch, at(KILLED - ahead, "slurmctld version 26.05.5 started on cluster x(885)"))
    assert told_of(epoch, found) == {5, 6}


def test_what_was_repaired_is_not_looked_at_again_however_late_it_seems_to_be(epoch: Path) -> None:
    kill(epoch)
    rotation.take_over(epoch)
    recovery.find(epoch)
    mine = at(KILLED - 3000, "Recovered JobId=5 Assoc=0")
    write_log(epoch, mine, at=KILLED - 3000)
    recovery.mark_repaired(epoch, history.last_line(epoch))
    save_state(epoch, KILLED - 2995)
    assert not recovery.find(epoch).needs_repair
    write_log(epoch, mine + at(KILLED - 2990, START % 7), at=KILLED - 2990)
    assert told_of(epoch, recovery.find(epoch)) == {7}


def test_the_place_up_to_which_all_is_repaired_is_found_again_whatever_users_write(epoch: Path) -> None:
    odd = at(4, "caf").encode().rstrip() + b"\xe9\n"
    (epoch / history.LOG).write_bytes((at(2, START % 5) + at(3, "x")).encode() + odd + b"[2026-")
    line = history.last_line(epoch)
    assert line == at(3, "x").rstrip()
    assert told_of(epoch, recovery.Findings(epoch, floor=line)) == set()


def test_a_repair_that_the_log_does_not_know_hides_nothing(epoch: Path) -> None:
    kill(epoch)
    for floor in (repr(float(KILLED + 1800)), at(KILLED + 1800, "x").rstrip()):
        recovery.mark_repaired(epoch, floor)
        assert told_of(epoch, recovery.find(epoch)) == {5, 6}


def test_a_time_that_a_user_wrote_hides_nothing(epoch: Path) -> None:
    kill(epoch)
    with (epoch / history.LOG).open("a") as log:
        log.write(at(0, "x") + at(KILLED, "y"))
    os.utime(epoch / history.LOG, (KILLED, KILLED))
    assert {5, 6} <= told_of(epoch, recovery.find(epoch))


def test_a_line_within_which_a_slurmctld_was_killed_is_not_completed_by_the_next(epoch: Path) -> None:
    write_log(epoch, submit(1, 1) + submit(23, 2)[:-25], f"{history.LOG}.1")
    write_log(epoch, submit(3, 3))
    assert history.read(epoch, None).lines == tuple(submit(job, job).rstrip() for job in (1, 3))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(content=st.binary(max_size=2000), old=st.binary(max_size=200))
def test_garbage_in_the_files_breaks_nothing(epoch: Path, content: bytes, old: bytes) -> None:
    (epoch / history.LOG).write_bytes(content)
    (epoch / f"{history.LOG}.1").write_bytes(old)
    (epoch / journal.JOURNAL).write_bytes(content)
    folder = epoch / spool.RECOVERY / "job.5"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment").write_bytes(content)
    (folder / "script").write_bytes(old)
    history.read(epoch, None)
    history.read(epoch, 1.0)
    journal.read(epoch, {"x"})
    spool.read(epoch, 5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(length=st.integers(0, 400))
def test_a_journal_that_is_cut_off_has_whole_entries_or_none(epoch: Path, length: int) -> None:
    lines = [{"v": 1, "key": f"k-{number}", "time": 1, "uid": 1, "options": {"name": "n"}} for number in range(5)]
    (epoch / journal.JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines)[:length])
    for entry in journal.read(epoch, {f"k-{number}" for number in range(5)}).entries.values():
        assert entry.options == {"name": "n"}


def test_the_journal_has_options_and_which_jobs_were_changed(epoch: Path) -> None:
    (epoch / f"{journal.JOURNAL}.1").write_text('{"v":1,"key":"a-1","time":1,"uid":7,"options":{"name":"old"}}\n')
    (epoch / journal.JOURNAL).write_text(
        '\n{"v":1,"key":"a-2","time":1,"uid":7,"cannot":"why","options":{"name":"new"}}\n'
        '{"v":1,"modified":"12","time":2}\n{"v":1,"key":"a-3","time":1,"uid":7,"options":{}}\n'
    )
    found = journal.read(epoch, {"a-1", "a-2"})
    assert {key: (entry.options["name"], entry.cannot) for key, entry in found.entries.items()} == {
        "a-1": ("old", ""),
        "a-2": ("new", "why"),
    }
    assert found.modified == {12}


def test_script_and_environment_are_read_as_slurm_wrote_them(epoch: Path) -> None:
    write_job(epoch, 12, key="abc-1")
    spool.save(epoch, [12])
    files = spool.read(epoch, 12)
    assert files == spool.Files("#!/bin/sh\necho 12\n", ("A=b", "SELTZER_JOB=abc-1", "TWO=lines\nof it"))
    assert files.key == "abc-1"


def test_what_is_safe_stays_when_slurmctld_purges_the_directory(epoch: Path) -> None:
    source = write_job(epoch, 12)
    spool.save(epoch, [12])
    spool.save(epoch, [12])
    for file in source.iterdir():
        file.unlink()
    source.rmdir()
    assert spool.saved(epoch) == {12}
    assert spool.read(epoch, 12).script == "#!/bin/sh\necho 12\n"


def test_only_new_directories_are_looked_for(epoch: Path) -> None:
    for job in range(1, 200):
        write_job(epoch, job, at=T0 - 1000)
    write_job(epoch, 203)
    write_job(epoch, 99_998, at=T0 + 5)
    for number in range(10):
        if (folder := epoch / f"hash.{number}").exists():
            os.utime(folder, (T0 + 5, T0 + 5))
    assert spool.newer(epoch, T0 - 1) == {203, 99_998}


def keep(epoch: Path, job: int, hours_ago: int = 0) -> None:
    write_job(epoch, job)
    spool.save(epoch, [job])
    folder = spool.keep(epoch, job, "why", {"name": "n"})
    assert folder
    at = folder.stat().st_mtime - 3600 * hours_ago
    os.utime(folder, (at, at))


def test_kept_jobs_are_on_the_volume_and_only_the_newest_stay(epoch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "KEPT", 2)
    for job, hours_ago in ((1, 100), (2, 50), (3, 0)):
        keep(epoch, job, hours_ago)
    spool.forget(epoch)
    lost = epoch.parent / spool.LOST
    assert sorted(folder.name for folder in lost.iterdir()) == ["job.2", "job.3"]
    assert json.loads((lost / "job.3" / "options.json").read_text()) == {"why": "why", "options": {"name": "n"}}
    assert (lost / "job.3" / "script").exists()


def test_however_many_jobs_a_crash_leaves_they_stay_long_enough_to_be_found(
    epoch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "KEPT", 2)
    for job, hours_ago in ((1, 25), (2, 23), (3, 0), (4, 0), (5, 0)):
        keep(epoch, job, hours_ago)
    spool.forget(epoch)
    assert sorted(folder.name for folder in (epoch.parent / spool.LOST).iterdir()) == [
        f"job.{job}" for job in (2, 3, 4, 5)
    ]


def test_a_withdrawn_job_only_fails_but_its_script_is_kept(epoch: Path) -> None:
    source = write_job(epoch, 4)
    before = (source / "script").read_bytes()
    spool.withdraw(epoch, 4)
    spool.withdraw(epoch, 4)
    done = subprocess.run(["sh", "-c", (source / "script").read_bytes().rstrip(b"\0")], capture_output=True)
    assert (done.returncode, b"put aside" in done.stderr) == (1, True)
    assert (epoch.parent / spool.LOST / "job.4" / "script").read_bytes() == before


@pytest.mark.parametrize("step", ["link", "mkdir", "write_bytes", "chmod", "rename"])
@pytest.mark.parametrize("times", range(1, 4))
def test_whenever_a_withdrawal_is_cut_off_the_jobs_own_script_is_somewhere(
    epoch: Path, monkeypatch: pytest.MonkeyPatch, step: str, times: int
) -> None:
    source = write_job(epoch, 4)
    own = (source / "script").read_bytes()
    with monkeypatch.context() as patch:
        place: Any = os if step == "link" else Path
        real, calls = getattr(place, step), itertools.count(1)

        def killed(*args: Any, **named: Any) -> Any:
            done = real(*args, **named)
            if next(calls) == times:
                raise KeyboardInterrupt
            return done

        patch.setattr(place, step, killed)
        with suppress(KeyboardInterrupt):
            spool.withdraw(epoch, 4)
    spool.forget(epoch)  # the next start could hold the job, and is done
    lost = epoch.parent / spool.LOST / "job.4" / "script"
    assert own in [file.read_bytes() for file in (source / "script", lost) if file.exists()]
    spool.withdraw(epoch, 4)
    assert lost.read_bytes() == own != (source / "script").read_bytes()


def test_a_job_is_withdrawn_although_an_older_one_of_its_id_was_kept(epoch: Path) -> None:
    (epoch.parent / spool.LOST / "job.4").mkdir(parents=True)
    source = write_job(epoch, 4)
    before = (source / "script").read_bytes()
    spool.withdraw(epoch, 4)
    assert (epoch.parent / spool.LOST / "job.4" / "script").read_bytes() == before != (source / "script").read_bytes()


def test_what_is_kept_of_a_withdrawn_job_is_not_replaced_by_the_script_that_only_fails(epoch: Path) -> None:
    before = (write_job(epoch, 4) / "script").read_bytes()
    spool.withdraw(epoch, 4)
    spool.save(epoch, [4])
    kept = spool.keep(epoch, 4, "why", None)
    assert kept and (kept / "script").read_bytes() == before


def test_a_new_cluster_has_lost_nothing(epoch: Path) -> None:
    assert not recovery.find(epoch).needs_repair


def test_jobs_younger_than_the_state_are_found_and_safe_before_the_start(epoch: Path) -> None:
    write_job(epoch, 12, at=T0 - 1)
    save_state(epoch, T0 - 5)
    write_log(epoch, submit(12, 30) + LINE % (31, "sched: Allocate JobId=12_3(15) NodeList=n1 #CPUs=1 Partition=cpu"))
    found = recovery.find(epoch)
    assert (found.needs_repair, found.jobs, found.first_job_id) == (True, frozenset({12}), 16)
    assert spool.saved(epoch) == {12}


def test_an_idle_cluster_that_crashes_starts_as_ever(epoch: Path) -> None:
    write_job(epoch, 12, at=T0 - 5000)
    save_state(epoch, T0 - 4000)
    write_log(epoch, submit(12, 1) + LINE % (59, "Running as primary controller"))
    with (epoch / history.LOG).open("a") as log:
        log.write("[2026-11-16T05:13:00.000] Node n1 now responding\n")
    os.utime(epoch / history.LOG, (T0 + 2199, T0 + 2199))
    assert not recovery.find(epoch).needs_repair
    assert not (epoch / spool.RECOVERY).exists()


def test_after_a_clean_end_nothing_is_looked_for(epoch: Path) -> None:
    write_job(epoch, 12, at=T0 - 1)
    save_state(epoch, T0)
    write_log(epoch, submit(12, 30))
    recovery.mark_clean_exit(epoch, before=(T0 - 5) * 10**9)
    assert not recovery.find(epoch).needs_repair
    save_state(epoch, T0 + 9)  # slurmctld has run since
    assert recovery.find(epoch).needs_repair


def test_an_end_without_a_save_is_not_clean(epoch: Path) -> None:
    write_job(epoch, 12, at=T0 - 1)
    save_state(epoch, T0 - 3)
    write_log(epoch, submit(12, 30))
    recovery.mark_clean_exit(epoch, before=(T0 - 3) * 10**9)
    assert recovery.find(epoch).needs_repair


def test_a_repair_that_was_cut_short_is_found_again_until_it_is_finished(epoch: Path) -> None:
    source = write_job(epoch, 12, at=T0 - 1)
    save_state(epoch, T0 - 3)
    write_log(epoch, submit(12, 30))
    first = recovery.find(epoch)
    for file in source.iterdir():
        file.unlink()
    source.rmdir()  # slurmctld has started, and saved a state without the job
    save_state(epoch, T0 + 3000)
    again = recovery.find(epoch)
    assert (again.needs_repair, again.jobs, again.since) == (True, first.jobs, first.since)
    recovery.mark_repaired(epoch, history.last_line(epoch))
    assert not recovery.find(epoch).needs_repair


def test_who_begins_an_epoch_leaves_the_log_of_the_one_before_behind(epoch: Path) -> None:
    write_log(epoch, "old\n", f"{history.LOG}.1")
    write_log(epoch, "new\n", at=T0 - 7)
    with (epoch / history.LOG).open("a") as loser:
        rotation.take_over(epoch)
        loser.write("late\n")
    assert not (epoch / history.LOG).exists()
    assert (epoch / f"{history.LOG}.1").read_text() == "old\nnew\n"
    assert (epoch / f"{history.LOG}.1").stat().st_mtime == T0 - 7
    write_log(epoch, "ours\n")
    rotation.take_over(epoch)
    assert (epoch / history.LOG).read_text() == "ours\n", "once for an epoch"


@pytest.mark.parametrize(("put_aside", "unlogged"), [(T0 - 100, False), (T0 - 40, True)])
def test_a_volume_without_room_for_a_copy_of_the_log_blocks_nobody(
    epoch: Path, monkeypatch: pytest.MonkeyPatch, put_aside: float, unlogged: bool
) -> None:
    def full(file: Path, content: bytes) -> None:
        file.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    save_state(epoch, T0)
    write_log(epoch, "old\n", f"{history.LOG}.1", at=put_aside)
    write_log(epoch, "new\n", at=T0 + 4)
    monkeypatch.setattr(Path, "write_bytes", full)
    rotation.take_over(epoch)
    assert not (epoch / history.LOG).exists()
    assert not list(epoch.glob(f"{history.LOG}.*.half")), "nothing takes the room that is left"
    assert (epoch / f"{history.LOG}.1").read_text() == "new\n"
    assert (epoch / f"{history.LOG}.1").stat().st_mtime == T0 + 4
    assert log_reserve.unlogged_since(epoch, 1.0) == unlogged, "what is gone may tell of jobs that aren't saved"


def test_what_has_grown_too_large_is_put_aside(epoch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "LIMIT", 10)
    write_log(epoch, "x" * 20)
    (epoch / journal.JOURNAL).write_text("y" * 5)
    reopened: list[bool] = []
    rotation.rotate(epoch, lambda: reopened.append(True))
    rotation.rotate(epoch, lambda: reopened.append(True))
    assert reopened == [True]
    assert (epoch / f"{history.LOG}.1").exists() and (epoch / journal.JOURNAL).exists()
