"""Room for slurmctld's log, taken ahead of it: what it tells counts most when nothing else can be written.

A line that finds no room is gone without a word. A job that has started since the last save then looks like one that
hasn't, and would run twice. So the log has room of its own, behind its end, while there is some to be had. Where that
is used up, or the file system has no such thing, a mark tells that lines may be missing.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from seltzer.guard.state.log_settings import LOG

MARK = "seltzer.unlogged"
WANTED = 4 << 20
"""Some 10,000 jobs that start and end."""
_TIGHT = 64 << 10
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE: what os.posix_fallocate can't say
_BLOCK = 512


def left(epoch: Path) -> int:
    """How many bytes the log can grow by, whatever is free. Raises OSError."""
    try:
        found = (epoch / LOG).stat()
    except FileNotFoundError:
        return 0
    return max(0, found.st_blocks * _BLOCK - found.st_size)


def keep(epoch: Path) -> None:
    """Take room for the log, if it has less than half of what it should. Its time stays that of its last line. Raises
    OSError."""
    if not (epoch / MARK).exists():
        (epoch / MARK).touch()
        os.utime(epoch / MARK, (0, 0))
    if left(epoch) >= WANTED // 2:
        return
    try:
        descriptor = os.open(epoch / LOG, os.O_WRONLY)
    except FileNotFoundError:
        return  # slurmctld makes it
    try:
        before = os.fstat(descriptor)
        try:
            _allocate(descriptor, before.st_size + WANTED)
        finally:
            _set_back(descriptor, before)
    finally:
        os.close(descriptor)


def look(epoch: Path, free: int) -> None:
    """Mark it if lines may get lost. The file is there already: a time of it takes no room. Raises OSError."""
    if free < _TIGHT and left(epoch) < _TIGHT:
        mark(epoch)


def mark(epoch: Path) -> None:
    """Lines may be missing. Raises OSError."""
    (epoch / MARK).touch()


def unlogged_since(epoch: Path, made: float) -> bool:
    """Whether lines may be missing that are younger than that time of the volume."""
    try:
        marked = (epoch / MARK).stat().st_mtime
    except FileNotFoundError:
        return False
    return 0 < marked >= made  # at 0 it has only been made, for later


def _set_back(descriptor: int, before: os.stat_result) -> None:
    """Have the log the time that it had, unless there are new lines: clocks are compared by that of the last one."""
    if os.fstat(descriptor).st_size == before.st_size:
        os.utime(descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))
        if os.fstat(descriptor).st_size != before.st_size:
            os.utime(descriptor)  # a line came just now


def _allocate(descriptor: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if libc.fallocate(descriptor, _KEEP_SIZE, 0, size):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
