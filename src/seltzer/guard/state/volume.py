"""The free space of the state volume: an alarm before it runs out, and a reserve for when it has.

A slurmctld that can't save carries on and acknowledges jobs that the next one won't know. A reserve file therefore
takes up space, and is deleted when the volume is full: saves go on while the alarm is raised. A running slurmctld is
never ended because of a full volume, since its memory is then the best copy there is; but none is started on one.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.kube.report import Report
from seltzer.guard.settings import Settings
from seltzer.guard.state import continuity as state
from seltzer.guard.state import log_reserve
from seltzer.guard.state.epoch import Blocked
from seltzer.wire.lease_json import VolumeSpace

RESERVE = "reserve"
_PROBE = "seltzer.probe"
MIB = 1 << 20
_ALARM = 256 * MIB
_INODES = 4096
_SHARE = 20  # one part in 20 is 5 %


@dataclass(frozen=True)
class Space:
    """The volume's space, in bytes."""

    size: int
    free: int
    reserve: int = 0
    """How much of the used space is the reserve."""
    state: int = 0
    """The size of Slurm's files."""
    inodes: int = 0
    """The maximum number of files; 0 if the file system has none."""
    inodes_free: int = 0
    most: int = 64 * MIB
    """The size of the reserve on a volume that is large enough."""

    @property
    def wanted(self) -> int:
        """The size that the reserve should have."""
        return min(self.most, self.size // _SHARE)

    @property
    def spare(self) -> int:
        """The free space besides the whole reserve, which may have been released."""
        return max(0, self.free + self.reserve - self.wanted)

    @property
    def needed(self) -> int:
        """The space that a save takes: files are written beside the old ones."""
        return 2 * self.state + MIB

    @property
    def alarm(self) -> int:
        return max(min(self.size // _SHARE, _ALARM), 4 * self.state, self.needed)

    def low(self, was_low: bool = False) -> bool:
        """Whether somebody should act. The alarm ends at a higher level than it begins."""
        slack = 5 if was_low else 4
        return self.few_files(slack) or 4 * self.spare < slack * self.alarm

    def few_files(self, slack: int = 5) -> bool:
        """Whether hardly any files can be created, whatever the free space: every queued job takes three."""
        return bool(self.inodes) and 4 * self.inodes_free < slack * min(self.inodes // _SHARE, _INODES)


class Volume:
    """Watches the space during one epoch, in a thread of its own: allocating a file may take long."""

    def __init__(self, settings: Settings, folder: Path, report: Report) -> None:
        self._root = settings.places.state
        self._reserve = settings.reserve
        self._folder = folder
        self._report = report
        self._every = settings.times.volume
        self._low = False
        self._trouble = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="volume")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def require_space(self) -> None:
        """Raises Blocked if a slurmctld started now couldn't save, and OSError if that is unknown."""
        space = self._look()
        free = space.free
        if space.free < space.needed and space.reserve:
            self._release_reserve(space)
            space = self._look()
        lacks = ""
        if space.free < space.needed:
            lacks = f"has {_mib(space.free)} left, and slurmctld needs {_mib(space.needed)} to save its state"
        try:
            log_reserve.look(self._folder, free)
            (self._folder / _PROBE).touch()
            (self._folder / _PROBE).unlink()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            lacks = lacks or f"takes no more files ({error.strerror})"
        if not lacks:
            return
        todo = f"enlarge it (controller.storage.size), or remove files that aren't Slurm's from {self._root}"
        raise Blocked(f"the state volume is full, it {lacks}: {todo}")

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.maintain()
            except FileNotFoundError:
                pass  # the epoch has ended, or is about to
            except Exception as error:  # unexpected ones, too: no other thread watches the space
                words = str(error) if isinstance(error, OSError) else repr(error)
                if words != self._trouble:
                    log.say(f"the state volume: {words}")
                self._trouble = words
            else:
                self._trouble = ""
            self._over.wait(self._every)

    def maintain(self) -> None:
        """Check the space, adjust the reserve and the log's space, and report. Raises OSError."""
        space = self._look()
        was_low, self._low = self._low, space.low(self._low)
        self._report_space(space, self._low != was_low)
        if space.reserve and space.free < space.needed:
            self._release_reserve(space)
        elif not self._low and space.reserve < space.wanted:
            _allocate(self._root / RESERVE, space.wanted)
        elif not self._low:
            log_reserve.keep(self._folder)
        # Last: with no files left it fails, unless releasing the reserve has freed one.
        log_reserve.look(self._folder, space.free)

    def _release_reserve(self, space: Space) -> None:
        log.say(f"the state volume is full: releases the reserve of {_mib(space.reserve)}")
        (self._root / RESERVE).unlink(missing_ok=True)

    def _look(self) -> Space:
        return look(self._root, self._folder, self._reserve)

    def _report_space(self, space: Space, changed: bool) -> None:
        if changed:
            log.say(f"the state volume {'runs full' if self._low else 'has space again'}: {_mib(space.spare)} are free")
        # Rounded, so that the Lease doesn't change with every job.
        step = max(1, space.size // 100)
        files = space.inodes_free // 100 * 100 if self._low and space.few_files() else None
        volume = VolumeSpace(space.spare // step * step, space.size, self._low, files)
        (self._report.set if changed else self._report.note)(
            volume=json.dumps({name: value for name, value in asdict(volume).items() if value is not None})
        )


def look(root: Path, folder: Path, most: int) -> Space:
    """Raises OSError, also when the folder belongs to another epoch by now."""
    found = os.statvfs(root)
    reserve = 0
    with suppress(FileNotFoundError):
        reserve = (root / RESERVE).stat().st_size
    return Space(
        size=found.f_blocks * found.f_frsize,
        free=found.f_bavail * found.f_frsize,
        reserve=reserve,
        state=state.size(folder),
        inodes=found.f_files,
        inodes_free=found.f_favail,
        most=most,
    )


def _allocate(file: Path, size: int) -> None:
    """Allocate the file in full, without holes; removes it if that fails."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        file.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
