"""Space allocated for slurmctld's log ahead of time: the log matters most when nothing else can be written.

A log line that finds no space is lost without notice. A job that has started since the last save then looks as if it
hadn't, and would run twice. The log therefore has space allocated behind its end, while the volume has any to give.
Once that is used up, or if the file system can't allocate, the file `seltzer.unlogged` records that lines may be
missing.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from seltzer.guard.state.log_settings import LOG

UNLOGGED = "seltzer.unlogged"
WANTED = 4 << 20
"""Enough for about 10,000 jobs that start and end."""
_TIGHT = 64 << 10
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE, which os.posix_fallocate doesn't support
_BLOCK = 512


def left(epoch: Path) -> int:
    """How many bytes the log can grow by, even on a full volume. Raises OSError."""
    try:
        found = (epoch / LOG).stat()
    except FileNotFoundError:
        return 0
    return max(0, found.st_blocks * _BLOCK - found.st_size)


def keep(epoch: Path) -> None:
    """Allocate space for the log if it has less than half of the target. Its mtime stays that of its last line.

    Raises OSError.
    """
    if not (epoch / UNLOGGED).exists():
        (epoch / UNLOGGED).touch()
        os.utime(epoch / UNLOGGED, (0, 0))
    if left(epoch) >= WANTED // 2:
        return
    try:
        descriptor = os.open(epoch / LOG, os.O_WRONLY)
    except FileNotFoundError:
        return  # slurmctld creates it
    try:
        before = os.fstat(descriptor)
        try:
            _allocate(descriptor, before.st_size + WANTED)
        finally:
            _set_back(descriptor, before)
    finally:
        os.close(descriptor)


def look(epoch: Path, free: int) -> None:
    """Record it if lines may get lost. The file exists already: a new mtime takes no space. Raises OSError."""
    if free < _TIGHT and left(epoch) < _TIGHT:
        set_unlogged(epoch)


def set_unlogged(epoch: Path) -> None:
    """Record that lines may be missing. Raises OSError."""
    (epoch / UNLOGGED).touch()


def unlogged_since(epoch: Path, made: float) -> bool:
    """Whether lines may be missing since this time of the volume's clock."""
    try:
        since = (epoch / UNLOGGED).stat().st_mtime
    except FileNotFoundError:
        return False
    return 0 < since >= made  # 0: the file was only created for later


def _set_back(descriptor: int, before: os.stat_result) -> None:
    """Restore the log's mtime unless there are new lines: clocks are compared by the time of the last line."""
    if os.fstat(descriptor).st_size == before.st_size:
        os.utime(descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))
        if os.fstat(descriptor).st_size != before.st_size:
            os.utime(descriptor)  # a line arrived just now


def _allocate(descriptor: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if libc.fallocate(descriptor, _KEEP_SIZE, 0, size):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
