"""The guard as a process, with a slurmctld and an API server that aren't real."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.fakes.guard.api import SLICE, FakeApi
from tests.fakes.guard.rig import Rig, alive, until

from seltzer.guard.state import log_reserve

WORDS = "error: _parse_next_key: Parsing error at unrecognized key: Foo; fatal: Unable to process configuration file"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with FakeApi() as api:
        made = Rig(tmp_path, api)
        yield made
        made.end()


def whats(rig: Rig) -> list[str]:
    return [event.what for event in rig.journal]


def names(rig: Rig, epoch: str) -> set[str]:
    """All files but the one that comes when the volume is looked at for the second time."""
    return {file.name for file in (rig.state / epoch).iterdir()} - {log_reserve.UNLOGGED}


def test_a_new_cluster_starts_is_reconfigured_once_and_reported(rig: Rig) -> None:
    rig.start()
    pid = rig.running()
    assert [(event.what, event.pid, event.state) for event in rig.journal] == [
        ("start", pid, "epoch-1"),
        ("reconfigure", pid, "epoch-1"),
        ("start", pid, "epoch-1"),
    ]
    assert (rig.state / "epoch-1" / "seltzer.told").read_text() == "first"
    assert names(rig, "epoch-1") == {"job_state", "seltzer.partitions", "seltzer.stamps", "seltzer.told"}
    until("all is told", lambda: {"slurm-version", "saved", "volume"} <= set(rig.api.report))
    report = rig.api.report
    assert report.pop("started").endswith("Z")
    assert int(report.pop("saved")) == (rig.state / "epoch-1" / "job_state").stat().st_mtime_ns
    assert set(json.loads(report.pop("volume"))) == {"free", "size", "low"}
    assert report == {
        "phase": "running",
        "config": "first",
        "epoch": "1",
        "restarts": "0",
        "slurm-version": "26.05.5",
    }
    spec = rig.api.get()["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("pod-a", 1, 0)
    assert rig.api.addresses == ["address-of-pod-a"]


def test_a_new_cluster_that_crashes_before_its_reconfigure_gets_it_afterwards(rig: Rig) -> None:
    rig.configure("first", "FakeHang=1")
    rig.start()
    (hanging,) = until("slurmctld hangs", lambda: rig.happened("start"))
    (rig.state / "epoch-1" / "job_state").write_text("saved, but never reconfigured")
    rig.configure("second")
    os.kill(hanging.pid, signal.SIGKILL)
    rig.running("second")
    assert whats(rig)[1:] == ["start", "reconfigure", "start"]


def test_an_old_cluster_is_not_reconfigured(rig: Rig) -> None:
    (rig.state / "epoch-7").mkdir()
    (rig.state / "epoch-7" / "job_state").write_text("jobs")
    (rig.state / "epoch-7" / "job_state.new").write_text("half of them")
    (rig.state / "epoch-7" / "seltzer.told").write_text("first")
    rig.start()
    rig.running()
    assert whats(rig) == ["start"]
    assert rig.epochs() == ["epoch-8"]
    assert "epoch" not in (rig.folder / "etc-pod-a" / "slurm.conf").read_text(), "it is the same for all slurmds"
    assert rig.api.report["epoch"] == "8"
    assert names(rig, "epoch-8") == {"job_state", "seltzer.partitions", "seltzer.stamps", "seltzer.told"}


def test_a_crashed_slurmctld_is_started_again_in_place(rig: Rig) -> None:
    guard = rig.start()
    os.kill(rig.running(), signal.SIGKILL)
    until("it is counted", lambda: rig.api.report["restarts"] == "1")
    second = rig.running(again=True)
    assert guard.poll() is None
    assert rig.epochs() == ["epoch-1"], "an epoch is for who wins the Lease, not for every start"
    assert rig.journal[-1].pid == second != rig.journal[0].pid


def test_crashes_in_a_row_are_waited_out_longer_and_longer_and_say_why(rig: Rig) -> None:
    rig.configure("first", "Foo=1")
    rig.start(backoff=[0.0, 0.3, 600.0])
    until("it gave up for a while", lambda: rig.api.report.get("restarts") == "3")
    until("it says why", lambda: rig.api.report.get("phase") == "crashed")
    assert rig.api.report["message"] == f"slurmctld exited with code 1: {WORDS}"
    rig.configure("second")
    rig.running("second")
    assert "message" not in rig.api.report, "a new configuration is tried at once, and all is well"


def test_the_pauses_between_crashes() -> None:
    from seltzer.guard.settings import Times
    from seltzer.guard.term import Backoff

    backoff = Backoff(Times())
    assert [backoff.after(1) for _ in range(9)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert [backoff.after(61), backoff.after(1)] == [0, 0.5]


def test_on_sigterm_slurmctld_ends_first_and_then_the_lease_is_free(rig: Rig) -> None:
    guard = rig.start()
    pid = rig.running()
    seen: list[tuple[str, bool]] = []
    rig.api.on_write = lambda lease: seen.append((lease["spec"]["holderIdentity"], alive(pid)))
    guard.terminate()
    guard.terminate()
    assert guard.wait() == 0
    assert seen[-1] == ("", False)
    assert ("", True) not in seen
    assert rig.journal[-1].what == "end"
    assert (rig.api.holder, rig.api.report["phase"]) == ("", "stopping")


def test_a_slurmctld_that_does_not_end_is_killed_after_the_grace(rig: Rig) -> None:
    rig.configure("first", "FakeDeaf=1")
    guard = rig.start(grace=0.3)
    pid = rig.running()
    guard.terminate()
    until("it was asked", lambda: rig.happened("deaf"))
    assert alive(pid)
    rig.let_pass(0.3)
    assert guard.wait() == 0
    assert rig.journal[-1].what == "deaf"
    assert not alive(pid)
    assert rig.api.holder == ""


def test_who_waits_for_the_lease_ends_at_once_and_leaves_it_alone(rig: Rig) -> None:
    rig.api.take("somebody")
    rig.api.patch({"spec": {"leaseDurationSeconds": 600}})
    before = rig.api.get()
    guard = rig.start()
    until("it runs", lambda: len(list(Path(f"/proc/{guard.pid}/task").iterdir())) > 2)
    guard.terminate()
    assert guard.wait() == 0
    assert rig.api.get() == before
    assert rig.epochs() == []


def test_a_lease_that_is_left_alone_is_taken_and_its_holder_fenced(rig: Rig) -> None:
    first = rig.start("pod-a")
    pid = rig.running()
    first.send_signal(signal.SIGSTOP)  # with its slurmctld alive: the worst that can happen
    rig.start("pod-b")
    rig.later("pod-b wins", lambda: rig.api.holder == "pod-b")
    until("pod-b took over", lambda: rig.epochs() == ["epoch-2"] and rig.api.addresses == ["address-of-pod-b"])
    assert rig.api.get()["spec"]["leaseTransitions"] == 1
    first.send_signal(signal.SIGCONT)
    until("the loser's slurmctld is killed", lambda: not alive(pid))
    assert rig.api.holder == "pod-b"
    assert "end" not in whats(rig), "killed, not asked"
    assert first.poll() is None, "it waits for the Lease"
    rig.running()
    assert [event.state for event in rig.happened("start")] == ["epoch-1", "epoch-1", "epoch-2"]


def test_a_slurmctld_whose_directory_is_gone_is_killed_at_once_and_comes_back_in_another_epoch(rig: Rig) -> None:
    rig.start()
    pid = rig.running()
    (rig.state / "epoch-1").rename(rig.state / "epoch-2")
    until("it is killed", lambda: not alive(pid))
    until("it runs in an epoch of its own", lambda: rig.api.report.get("epoch") == "3")
    assert "end" not in whats(rig)
    assert rig.epochs() == ["epoch-3"]


def test_who_sees_another_holder_ends_slurmctld_politely_and_waits(rig: Rig) -> None:
    guard = rig.start()
    pid = rig.running()
    rig.api.take("pod-b")
    until("slurmctld has ended", lambda: rig.happened("end"))
    until("it is gone", lambda: not alive(pid))
    assert guard.poll() is None
    rig.later("the Lease that nobody renews is its own again", lambda: rig.api.holder == "pod-a")
    until("a new epoch", lambda: rig.epochs() == ["epoch-2"])


def test_the_api_server_may_be_away_for_as_long_as_it_likes(rig: Rig) -> None:
    guard = rig.start()
    pid = rig.running()
    rig.api.away = True
    version = rig.api.get()["metadata"]["resourceVersion"]
    os.kill(pid, signal.SIGKILL)
    until("slurmctld was started again without it", lambda: len(rig.happened("start")) == 3)
    rig.configure("second")
    until("and reconfigured", lambda: rig.journal[-1].partition == "second")
    assert rig.api.get()["metadata"]["resourceVersion"] == version
    rig.api.away = False
    rig.running("second")
    assert guard.poll() is None
    assert rig.api.report["restarts"] == "1"
    assert rig.epochs() == ["epoch-1"]


def test_an_endpointslice_that_can_not_be_written_is_tried_again_and_stops_nobody(rig: Rig) -> None:
    rig.api.slice_broken = True
    rig.start()
    rig.running()
    assert rig.api.addresses == []
    rig.api.slice_broken = False
    until("the address is there", lambda: rig.api.addresses == ["address-of-pod-a"])
    rig.api.patch({"endpoints": [{"addresses": ["address-of-a-loser"]}]}, SLICE)
    rig.later("it is put right", lambda: rig.api.addresses == ["address-of-pod-a"])


def test_somebody_else_may_annotate_the_lease(rig: Rig) -> None:
    rig.start()
    rig.running()
    rig.api.patch({"metadata": {"annotations": {"somebody": "was here"}}})
    writes = len(rig.api.writes)
    until("it is renewed as before", lambda: len(rig.api.writes) > writes)
    assert rig.api.holder == "pod-a"
    assert rig.api.report["somebody"] == "was here"


def test_a_changed_configuration_is_a_reconfigure(rig: Rig) -> None:
    rig.start()
    pid = rig.running()
    rig.configure("second")
    assert rig.running("second") == pid
    assert [event.what for event in rig.journal[-2:]] == ["reconfigure", "start"]
    assert rig.api.report["restarts"] == "0"


def test_a_change_that_needs_a_restart_is_a_clean_one(rig: Rig) -> None:
    rig.start()
    pid = rig.running()
    rig.configure("second", restart="r2")
    assert rig.running("second") != pid
    # The nodes are told once it has begun, or nobody would tell them.
    assert [event.what for event in rig.journal[-4:]] == ["end", "start", "reconfigure", "start"]
    assert rig.api.report["restarts"] == "0"
    assert rig.epochs() == ["epoch-1"]


@pytest.mark.parametrize("restart", ["r1", "r2"])
def test_a_bad_configuration_is_taken_back_and_said_so(rig: Rig, restart: str) -> None:
    etc = rig.folder / "etc-pod-a"
    rig.start(probation=0.0)
    rig.running()
    rig.configure("bad", "Foo=1", restart=restart)
    until("it complains", lambda: rig.api.report.get("message") == WORDS)
    rig.running("first")
    assert "Foo" not in (etc / "slurm.conf").read_text()
    starts = len(rig.journal)
    rig.configure("third", restart=restart)
    rig.running("third")
    assert "message" not in rig.api.report
    assert len(rig.journal) > starts
    bad = [write for write in rig.api.writes if write["metadata"]["annotations"].get("seltzer.dev/config") == "bad"]
    assert bad == [], "it was never said to run with it"


def test_a_configuration_with_which_slurmctld_dies_soon_is_taken_back(rig: Rig) -> None:
    rig.start(probation=0.5)
    rig.running()
    rig.let_pass(0.5)
    until("the first one is proven", lambda: "configuration first is good" in rig.said)
    rig.configure("bad", "FakeDie=0.1")
    until("it complains", lambda: rig.api.report.get("message") == "fatal: asked to die")
    rig.running("first")


def test_orphans_are_reaped(rig: Rig) -> None:
    file = rig.folder / "orphan"
    rig.configure("first", f"FakeOrphan={file}")
    guard = rig.start()
    rig.running()
    pid = int(until("there is an orphan", lambda: file.exists() and file.read_text()))
    until("no trace is left of it", lambda: not Path(f"/proc/{pid}").exists())
    until("nor of any other", lambda: all(alive(each) for each in _children(guard.pid)))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that has just ended
            found += map(int, (task / "children").read_text().split())
    return found


def test_two_states_are_a_riddle_that_a_person_has_to_solve(rig: Rig) -> None:
    for name in ("epoch-3", "epoch-5"):
        (rig.state / name).mkdir()
        (rig.state / name / "job_state").touch()
    rig.start()
    until("it is blocked", lambda: rig.api.report.get("phase") == "blocked")
    assert "epoch-3, epoch-5" in rig.api.report["message"]
    assert rig.journal == []
    (rig.state / "epoch-3").rename(rig.state / "moved-away")
    rig.running()
    assert rig.epochs() == ["epoch-6"]


def test_slurmctld_ends_with_its_guard(rig: Rig) -> None:
    guard = rig.start()
    pid = rig.running()
    guard.kill()
    guard.wait()
    until("it is gone", lambda: not alive(pid))
