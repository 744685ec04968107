"""The guard as a process: what it starts from, what it holds, and what it keeps of a crash."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.guard.api import FakeApi
from tests.fakes.guard.rig import Rig, alive, until
from tests.programs import write_program


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with FakeApi() as api:
        made = Rig(tmp_path, api)
        yield made
        made.end()


def crash(rig: Rig) -> dict[str, Any]:
    """The last crash, as it is reported."""
    found: dict[str, Any] = json.loads(until("a crash is told", lambda: rig.api.report.get("crash")))
    return found


def test_starts_saves_crashes_and_stops_are_stamped_in_their_order(rig: Rig) -> None:
    guard = rig.start("pod-a")
    os.kill(rig.running(), signal.SIGKILL)
    rig.running(again=True)
    guard.terminate()
    guard.wait()
    rig.start("pod-b")
    until("the next one runs", lambda: rig.api.holder == "pod-b" and rig.api.report["phase"] == "running")
    stamps = rig.stamps()
    whats = [(stamp.epoch, stamp.by, stamp.what) for stamp in stamps]
    saves = [stamp for stamp in stamps if stamp.what == "save"]
    assert [what for what in whats if what[2] != "save"] == [
        (1, "pod-a", "start"),
        (1, "pod-a", "crash"),
        (1, "pod-a", "start"),
        (1, "pod-a", "stop"),
        (2, "pod-b", "start"),
    ]
    assert len(saves) == 2, "at its first reconfigure, and at its end"
    assert saves[-1].detail == f"job_state={(rig.state / 'epoch-2' / 'job_state').stat().st_mtime_ns}"
    assert next(stamp.detail for stamp in stamps if stamp.what == "stop") == "the pod ends"


def test_what_was_saved_last_is_told_when_the_lease_is_given_back(rig: Rig) -> None:
    guard = rig.start()
    rig.running()
    guard.terminate()
    guard.wait()
    assert rig.api.holder == ""
    assert int(rig.api.report["saved"]) == (rig.state / "epoch-1" / "job_state").stat().st_mtime_ns


def test_an_older_state_is_not_started_from_until_a_person_accepts_it(rig: Rig) -> None:
    (rig.state / "epoch-3").mkdir()
    (rig.state / "epoch-3" / "job_state").write_text("old jobs")
    rig.annotate(epoch="7", saved="1")
    rig.start()
    message = rig.phase("blocked")
    assert "has epoch-3, but this cluster has written epoch-7" in message
    assert (rig.epochs(), rig.journal) == (["epoch-3"], [])
    assert (rig.api.report["epoch"], rig.api.report["saved"]) == ("7", "1"), "the next guard has to know too"
    assert rig.readyz() == (503, f"slurmctld is blocked: {message}\n")
    rig.annotate(accept_state="epoch-4")
    writes = len(rig.api.writes)
    until("it has looked again", lambda: len(rig.api.writes) > writes + 3)
    assert rig.journal == []
    rig.annotate(accept_state="epoch-3")
    rig.running()
    assert rig.epochs() == ["epoch-8"], "numbers only grow"
    until("what was accepted isn't for the next time", lambda: "accept-state" not in rig.api.report)
    assert rig.api.report["epoch"] == "8"


def test_a_newer_state_that_is_brought_back_is_gone_on_from(rig: Rig) -> None:
    rig.annotate(epoch="7")
    rig.start()
    assert "is empty, but this cluster has written epoch-7" in rig.phase("blocked")
    (rig.state / "epoch-7").mkdir()
    (rig.state / "epoch-7" / "job_state").write_text("jobs")
    rig.running()
    assert rig.epochs() == ["epoch-8"]


def test_a_state_that_was_exchanged_beside_a_held_slurmctld_is_noticed(rig: Rig) -> None:
    rig.start()
    rig.running()
    rig.annotate(hold="true")
    rig.phase("held")
    file = rig.state / "epoch-1" / "job_state"
    os.utime(file, ns=(10**18, 10**18))
    rig.annotate(hold=None)
    assert "older than what this cluster has saved" in rig.phase("blocked")
    assert rig.happened("start")[-1] == rig.journal[-2], "nothing was started since it ended"
    rig.annotate(accept_state="epoch-1")
    rig.running()
    until("it is what was saved", lambda: rig.api.report["saved"] == str(10**18))


def test_held_means_ended_cleanly_and_not_started_until_it_is_over(rig: Rig) -> None:
    guard = rig.start()
    pid = rig.running()
    until("kubelet is told", lambda: rig.readyz() == (200, "ok\n"))
    rig.annotate(hold="true")
    rig.phase("held")
    assert not alive(pid)
    assert rig.journal[-1].what == "end"
    assert rig.readyz() == (503, "slurmctld is held\n")
    writes = len(rig.api.writes)
    until("the Lease is renewed", lambda: len(rig.api.writes) > writes + 2)
    assert (rig.api.holder, guard.poll(), rig.journal[-1].what) == ("pod-a", None, "end")
    assert rig.stamps()[-1].detail == "it is held for debugging"
    rig.annotate(hold="false")
    rig.running()
    assert rig.api.report["restarts"] == "0"
    assert rig.epochs() == ["epoch-1"]


def test_a_crash_loop_that_is_held_stays_crashed_and_starts_at_once_afterwards(rig: Rig) -> None:
    rig.configure("first", "Foo=1")
    rig.start(backoff=[0.0, 600.0])
    message = rig.phase("crashed")
    until("it has given up", lambda: rig.api.report["restarts"] == "2")
    rig.annotate(hold="true")
    assert rig.phase("held") == message
    rig.annotate(hold=None)
    until("it was started at once", lambda: int(rig.api.report["restarts"]) > 2)


def test_who_is_held_ends_at_once_and_the_next_one_holds_too(rig: Rig) -> None:
    rig.annotate(hold="true")
    first = rig.start("pod-a")
    rig.phase("held")
    first.terminate()
    assert first.wait() == 0
    assert rig.api.holder == ""
    rig.start("pod-b")
    until("the next one has it", lambda: rig.api.holder == "pod-b" and rig.epochs() == ["epoch-2"])
    rig.phase("held")
    assert rig.journal == []
    rig.annotate(hold=None)
    rig.running()


def test_who_stands_by_is_ready_as_long_as_it_would_notice(rig: Rig) -> None:
    rig.start("pod-a")
    rig.running()
    rig.start("pod-b")
    until("it stands by", lambda: _ready(rig, "pod-b"))
    rig.api.away = True
    unready = (503, "it stands by, but the API server doesn't answer\n")
    rig.later("it would not notice", lambda: rig.readyz("pod-b") == unready)
    until("who leads is ready", lambda: rig.readyz("pod-a") == (200, "ok\n"))


def _ready(rig: Rig, identity: str) -> bool:
    try:
        return rig.readyz(identity)[0] == 200
    except OSError:
        return False  # it doesn't listen yet


def test_what_a_crash_left_is_reported_and_the_backtrace_comes_after_the_restart(rig: Rig) -> None:
    gdb = f"#!/bin/sh\ntail -1 {rig.state}/*/seltzer.stamps > {rig.folder}/seen\necho '#0  boom ()'\n"
    write_program(rig.folder / "gdb", gdb)
    rig.start()
    pid = rig.running()
    starts = len(rig.happened("start"))
    cores = rig.folder / "cores-pod-a"
    assert Path(f"/proc/{pid}/cwd").readlink() == cores
    (cores / "core").write_text("all of its memory")
    os.kill(pid, signal.SIGKILL)
    until("there is a backtrace", lambda: json.loads(rig.api.report.get("crash", "{}")).get("backtrace"))
    told = crash(rig)
    assert (told["how"], told["backtrace"]) == ("was ended by SIGKILL", ["#0  boom ()"])
    assert Path(told["core"]).read_text() == "all of its memory"
    assert "start" in (rig.folder / "seen").read_text().split()
    until("it runs again", lambda: len(rig.happened("start")) == starts + 1)
    assert rig.api.report["restarts"] == "1"


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_CORE)[1] == 0
    or Path("/proc/sys/kernel/core_pattern").read_text()[0] in "|/"
    or not shutil.which("gdb"),
    reason="this machine puts cores elsewhere, or has no gdb",
)
def test_a_real_core_has_a_real_backtrace(rig: Rig) -> None:
    (rig.folder / "gdb").symlink_to(str(shutil.which("gdb")))
    rig.start()
    os.kill(rig.running(), signal.SIGSEGV)
    until("there is a backtrace", lambda: json.loads(rig.api.report.get("crash", "{}")).get("backtrace"))
    told = crash(rig)
    assert told["how"] == "was ended by SIGSEGV"
    assert [frame.split()[0] for frame in told["backtrace"][:2]] == ["#0", "#1"]
    assert Path(told["core"]).exists()


def test_nothing_is_started_into_a_full_volume_and_what_runs_goes_on(rig: Rig) -> None:
    """Full is when there are 2 x the state and 1 MiB: a state with a large hole in it wants more than there is."""
    guard = rig.start()
    pid = rig.running()
    until("some space is kept back", lambda: (rig.state / "reserve").exists())
    hole = rig.state / "epoch-1" / "node_state"
    with hole.open("wb") as file:
        file.truncate(1 << 43)
    until("the alarm rings", lambda: json.loads(rig.api.report.get("volume", "{}")).get("low"))
    until("what was kept back is given up", lambda: not (rig.state / "reserve").exists())
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert "the state volume is full" in rig.phase("blocked")
    assert guard.poll() is None
    starts = len(rig.happened("start"))
    hole.unlink()
    rig.running()
    assert len(rig.happened("start")) == starts + 1
    until("some space is kept back again", lambda: (rig.state / "reserve").exists())


def test_a_standby_goes_on_from_what_was_fenced_and_never_from_less(rig: Rig) -> None:
    first = rig.start("pod-a")
    rig.running()
    rig.start("pod-b")
    first.send_signal(signal.SIGSTOP)
    rig.later("pod-b wins", lambda: rig.api.holder == "pod-b")
    until("pod-b runs", lambda: rig.api.holder == "pod-b" and rig.api.report["phase"] == "running")
    first.send_signal(signal.SIGCONT)
    until("the loser has noticed", lambda: "epoch 1 ends" in rig.said)
    assert {(stamp.epoch, stamp.by) for stamp in rig.stamps()} == {(1, "pod-a"), (2, "pod-b")}
    assert rig.api.report["epoch"] == "2"
