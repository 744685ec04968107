"""slurmctld's log and the journal of jobs stay small, and nobody but us writes into them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from seltzer.guard import log, logsettings

LOG = "slurmctld.log"
JOURNAL = "seltzer.journal"
LIMIT = 16 << 20
_OWNER = "seltzer.log-epoch"


def take_over(epoch: Path) -> None:
    """Leave the log behind that a predecessor may still have open: a copy of it is `.1`, and ours will be new."""
    owner, current, old = epoch / _OWNER, epoch / LOG, epoch / f"{LOG}.1"
    if _text(owner) == epoch.name or not current.exists():
        return
    logsettings.remember(epoch)
    status = current.stat()
    text = (_end(old, LIMIT - status.st_size) + _end(current, LIMIT))[-LIMIT:]
    half = old.with_name(f"{old.name}.half")
    half.write_bytes(text)
    # The time of its last line is how the clocks are compared.
    os.utime(half, ns=(status.st_atime_ns, status.st_mtime_ns))
    half.rename(old)
    current.unlink()
    owner.write_text(epoch.name)


def rotate(epoch: Path, reopen: Callable[[], None]) -> None:
    """Put aside what has grown too large; `reopen` has slurmctld begin a new log. Failing is said, and no harm."""
    for name in (LOG, JOURNAL):
        file = epoch / name
        try:
            if file.stat().st_size < LIMIT:
                continue
            if name == LOG:
                logsettings.remember(epoch)
            file.rename(epoch / f"{name}.1")
        except FileNotFoundError:
            continue
        except OSError as error:
            log.say(f"{name} can't be put aside: {error}")
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
