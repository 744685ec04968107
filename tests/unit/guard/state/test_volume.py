"""A state volume that runs full is seen in time; some space is kept back for when nobody looked."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.fakes.guard.rig import until

from seltzer.guard.kube.report import Report
from seltzer.guard.settings import Places, Settings, Times
from seltzer.guard.state import log_reserve, volume
from seltzer.guard.state.epoch import Blocked
from seltzer.guard.state.volume import MIB, Space, Volume

GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("space", "low"),
    [
        (Space(size=4 * GIB, free=300 * MIB, reserve=64 * MIB), False),
        (Space(size=4 * GIB, free=200 * MIB, reserve=64 * MIB), True),
        (Space(size=100 * GIB, free=250 * MIB, reserve=64 * MIB), True),
        (Space(size=4 * GIB, free=300 * MIB, reserve=64 * MIB, state=100 * MIB), True),
        (Space(size=4 * GIB, free=300 * MIB, reserve=0), False),
        (Space(size=4 * GIB, free=260 * MIB, reserve=0), True),
        (Space(size=10 * MIB, free=2 * MIB, reserve=MIB // 2), False),
        (Space(size=10 * MIB, free=MIB - 1, reserve=MIB // 2), True),
        (Space(size=4 * GIB, free=GIB, reserve=64 * MIB, inodes=100_000, inodes_free=5000), False),
        (Space(size=4 * GIB, free=GIB, reserve=64 * MIB, inodes=100_000, inodes_free=4000), True),
    ],
    ids=[
        "enough",
        "under 5 %",
        "under 256 MiB of a large one",
        "under four times the state",
        "enough beside a reserve that was given up",
        "only the reserve that was given up",
        "a small one",
        "a small one without room for a save",
        "enough files",
        "too few files",
    ],
)
def test_low(space: Space, low: bool) -> None:
    assert space.low() == low


def test_an_alarm_does_not_flap() -> None:
    space = Space(size=100 * GIB, free=300 * MIB, reserve=64 * MIB)
    assert not space.low(was_low=False)
    assert space.low(was_low=True)
    assert not Space(size=100 * GIB, free=321 * MIB, reserve=64 * MIB).low(was_low=True)


class Disk:
    """A volume of 100 MiB, of which others take some; the reserve in it is a real file."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder
        self.epoch = folder / "epoch-1"
        self.epoch.mkdir()
        self.reserve = folder / "reserve"
        self.others = 10 * MIB
        self.hurried = 0
        self.report = Report(self._renew_now)
        places = Places(state=folder)
        self.settings = Settings("ns", "lease", "slice", "pod", "address", places)
        self.volume = Volume(self.settings, self.epoch, self.report)
        monkeypatch.setattr(os, "statvfs", self._statvfs)

    def _renew_now(self) -> None:
        self.hurried += 1

    def _statvfs(self, _: Path) -> SimpleNamespace:
        kept = self.reserve.stat().st_size if self.reserve.exists() else 0
        free = max(0, 100 * MIB - self.others - kept)
        return SimpleNamespace(f_blocks=100 * 256, f_frsize=4096, f_bavail=free // 4096, f_files=0, f_favail=0)

    @property
    def told(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.report.get("volume"))
        return found


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_space_is_kept_back_and_given_up_when_there_is_none_and_kept_back_again(disk: Disk) -> None:
    disk.volume.maintain()
    assert disk.reserve.stat().st_blocks * 512 >= 5 * MIB, "it really takes the space"
    assert disk.told == {"free": 85 * MIB, "size": 100 * MIB, "low": False}
    disk.others = 93 * MIB
    disk.volume.maintain()
    assert disk.told["low"], "the alarm comes first"
    assert disk.reserve.exists()
    disk.others = 95 * MIB
    disk.volume.maintain()
    assert not disk.reserve.exists()
    disk.volume.maintain()
    assert disk.told == {"free": 0, "size": 100 * MIB, "low": True}, "what was kept back isn't free"
    disk.others = 10 * MIB
    disk.volume.maintain()
    assert disk.told["low"] is False
    assert disk.reserve.exists()


def test_little_changes_are_not_reported_and_great_ones_at_once(disk: Disk) -> None:
    disk.volume.maintain()
    told = disk.told
    disk.others += 4096
    disk.volume.maintain()
    disk.others += 50 * MIB
    disk.volume.maintain()
    assert disk.told != told
    assert disk.hurried == 0
    disk.others = 99 * MIB
    disk.volume.maintain()
    assert disk.hurried == 1


def test_nothing_is_started_into_a_full_volume(disk: Disk) -> None:
    (disk.epoch / "job_state").write_bytes(b"x" * MIB)
    disk.volume.maintain()
    disk.others = 95 * MIB
    disk.volume.require_space()
    assert not disk.reserve.exists(), "it takes what was kept back"
    disk.others = 98 * MIB
    with pytest.raises(Blocked, match=r"full, it has 2.0 MiB left, and slurmctld needs 3.0 MiB .*storage.size"):
        disk.volume.require_space()
    disk.others = 97 * MIB
    disk.volume.require_space()
    assert {file.name for file in disk.epoch.iterdir()} == {"job_state", log_reserve.UNLOGGED}


def test_a_volume_that_takes_no_more_files_is_full(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    with pytest.raises(Blocked, match="takes no more files"):
        disk.volume.require_space()


def test_space_that_can_not_be_kept_back_leaves_nothing_behind(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        disk.volume.maintain()
    assert not disk.reserve.exists()


def test_the_log_has_room_of_its_own_which_it_can_use_when_there_is_none(disk: Disk) -> None:
    log = disk.epoch / "slurmctld.log"
    log.write_text("a line\n")
    disk.volume.maintain()  # makes the reserve
    disk.volume.maintain()
    assert log.read_text() == "a line\n", "it is no longer than it was"
    assert log_reserve.left(disk.epoch) >= log_reserve.WANTED - 4096
    with log.open("a") as file:
        file.write("x" * (3 * MIB))
    disk.others = 100 * MIB
    disk.volume.maintain()
    assert log_reserve.left(disk.epoch) < 2 * MIB, "no more is taken while others need it"
    assert not log_reserve.unlogged_since(disk.epoch, 1.0), "the log goes on"


def test_lines_that_may_be_missing_are_reported_for_as_long_as_they_matter(disk: Disk) -> None:
    log = disk.epoch / "slurmctld.log"
    log.touch()
    before = time.time() - 1
    disk.volume.maintain()
    disk.volume.maintain()
    with log.open("a") as file:
        file.write("x" * log_reserve.WANTED)
    assert not log_reserve.unlogged_since(disk.epoch, before)
    disk.others = 100 * MIB
    disk.reserve.unlink()
    with pytest.raises(Blocked):
        disk.volume.require_space()
    assert log_reserve.unlogged_since(disk.epoch, before)
    assert not log_reserve.unlogged_since(disk.epoch, time.time() + 1), "what was saved later knows all of it"


def test_a_file_system_without_such_room_loses_nothing_else(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(log_reserve, "_allocate", unsupported)
    (disk.epoch / "slurmctld.log").touch()
    disk.volume.maintain()
    with pytest.raises(OSError, match="not supported"):
        disk.volume.maintain()
    assert disk.reserve.exists()
    assert disk.told["low"] is False


def test_taking_room_leaves_the_log_the_time_of_its_last_line(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = disk.epoch / "slurmctld.log"
    log.write_text("a line\n")
    os.utime(log, (1_000_000, 1_000_000))
    line = ""

    def allocate(descriptor: int, _: int) -> None:
        os.utime(descriptor)  # as ext4 does it, and others
        with log.open("a") as file:
            file.write(line)

    monkeypatch.setattr(log_reserve, "_allocate", allocate)
    log_reserve.keep(disk.epoch)
    assert log.stat().st_mtime == 1_000_000
    line = "a line that slurmctld writes meanwhile\n"
    log_reserve.keep(disk.epoch)
    assert log.stat().st_mtime > 1_000_000


def test_a_mark_that_was_only_made_tells_of_no_missing_line_where_nothing_was_ever_saved(disk: Disk) -> None:
    log_reserve.keep(disk.epoch)
    assert not log_reserve.unlogged_since(disk.epoch, -math.inf)
    log_reserve.look(disk.epoch, 0)
    assert log_reserve.unlogged_since(disk.epoch, -math.inf)


@pytest.fixture
def no_more_files(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file can be made only where another one goes."""
    touch = Path.touch

    def full(file: Path) -> None:
        if disk.reserve.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        touch(file)

    monkeypatch.setattr(Path, "touch", full)


@pytest.mark.usefixtures("no_more_files")
def test_the_reserve_is_given_up_before_a_mark_is_made_which_may_need_it(disk: Disk) -> None:
    disk.reserve.write_bytes(b"x" * (5 * MIB))
    disk.others = 95 * MIB
    disk.volume.maintain()
    assert not disk.reserve.exists()
    assert log_reserve.unlogged_since(disk.epoch, 1.0), "there was no room for a moment"


@pytest.mark.usefixtures("no_more_files")
def test_a_mark_that_can_not_be_made_keeps_no_start_from_the_reserve(disk: Disk) -> None:
    disk.reserve.write_bytes(b"x" * (5 * MIB))
    disk.others = 95 * MIB
    disk.volume.require_space()
    assert log_reserve.unlogged_since(disk.epoch, 1.0)


def test_an_error_of_which_nobody_thought_is_reported_and_the_space_looked_after_still(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def look(*_: object) -> Space:
        asked.append(0)
        raise ValueError("not a number")

    monkeypatch.setattr(volume, "look", look)
    fast = dataclasses.replace(disk.settings, times=Times(volume=0.01))
    other = Volume(fast, disk.epoch, disk.report)
    other.start()
    until("it has looked again", lambda: len(asked) > 2)
    other.stop()
    assert capfd.readouterr().err.count("not a number") == 1
