"""Keeps slurmctld's log and the journal of jobs small, and free of writes by previous guards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.state import continuity, log_reserve, log_settings

LOG = log_settings.LOG
JOURNAL = "seltzer.journal"
LIMIT = 16 << 20
_OWNER = "seltzer.log-epoch"
_RECENT = 60.0  # a save covers everything that is this much older, however slow the disk was


def take_over(epoch: Path) -> None:
    """Start a new log: a previous slurmctld may still have the current one open. A copy of that is kept as `.1`.

    Without space for a copy the log itself becomes `.1`: a nearly full volume must not block the start.
    """
    owner, current = epoch / _OWNER, epoch / LOG
    if _text(owner) == epoch.name or not current.exists():
        return
    log_settings.remember(epoch)
    try:
        _copy(epoch)
    except OSError as error:
        log.say(f"{LOG} can't be copied and is renamed instead: {error}")
        _put_aside(epoch)
    owner.write_text(epoch.name)


def _copy(epoch: Path) -> None:
    """Raises OSError, and then nothing has changed."""
    current, old = epoch / LOG, epoch / f"{LOG}.1"
    half = old.with_name(f"{old.name}.half")
    try:
        status = current.stat()
        half.write_bytes((_end(old, LIMIT - status.st_size) + _end(current, LIMIT))[-LIMIT:])
        # Clocks are compared by the time of its last line.
        os.utime(half, ns=(status.st_atime_ns, status.st_mtime_ns))
        half.rename(old)
    except OSError:
        half.unlink(missing_ok=True)  # it would take the space that slurmctld needs to save
        raise
    current.unlink()


def _put_aside(epoch: Path) -> None:
    """Takes no space, but replaces the old `.1`. Records it if that may have described unsaved changes."""
    current, old = epoch / LOG, epoch / f"{LOG}.1"
    if old.exists() and old.stat().st_mtime >= continuity.saved(epoch) / 1e9 - _RECENT:
        log_reserve.set_unlogged(epoch)
    current.rename(old)


def rotate(epoch: Path, reopen: Callable[[], None]) -> None:
    """Rename files that have grown too large; `reopen` makes slurmctld start a new log. Failures are only logged."""
    for name in (LOG, JOURNAL):
        file = epoch / name
        try:
            if file.stat().st_size < LIMIT:
                continue
            if name == LOG:
                log_settings.remember(epoch)
            file.rename(epoch / f"{name}.1")
        except FileNotFoundError:
            continue
        except OSError as error:
            log.say(f"{name} can't be renamed: {error}")
            continue
        if name == LOG:
            reopen()


def _end(file: Path, length: int) -> bytes:
    if length <= 0:
        return b""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, 2) - length))
            return opened.read(length)
    except FileNotFoundError:
        return b""


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
