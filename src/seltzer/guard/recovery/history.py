"""The part of slurmctld's log that may tell of what it hasn't saved.

The times in the log are slurmctld's, those of files the volume's. Where the log ends both are known, and that is how
one is turned into the other, whatever time zone or clock either has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from seltzer.guard import logsettings
from seltzer.guard.logsettings import stamp

LOG = logsettings.LOG
MARGIN = 15.0
"""slurmctld writes its state after it has packed it, and there it may wait for a slow disk."""
_MOST = 32 << 20
_BLOCK = 256 << 10
_STAMP = re.compile(rb"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?", re.MULTILINE)


@dataclass(frozen=True)
class History:
    """The end of the log, and before it the older lines that say how much of what happens the log tells."""

    lines: tuple[str, ...]
    first: float | None
    """The time of the first line of the end, as the log has it."""
    last: float | None


def read(epoch: Path, since: float | None) -> History:
    """Everything from `since` on, in the log's time; all there is without it. At most the last 32 MiB."""
    text = b""
    for file in (epoch / LOG, epoch / f"{LOG}.1"):
        try:
            text = _end(file, since, _MOST - len(text)) + text
        except OSError:
            continue
        first = _STAMP.search(text)
        if len(text) >= _MOST or (since is not None and first and stamp(first) < since):
            break
    lines = text.split(b"\n")
    if since is not None:
        lines = lines[_first_since(lines, since) :]
    stamps = [stamp(match) for line in (*lines[:100], *lines[-100:]) if (match := _STAMP.match(line))]
    # A line that was cut off is none: what it says about a job may be half of a number.
    whole = tuple(line.decode(errors="replace") for line in lines[:-1])
    if since is not None:
        whole = (*(line.decode(errors="replace").rstrip("\n") for line in logsettings.find(epoch, since)), *whole)
    return History(whole, stamps[0] if stamps else None, stamps[-1] if stamps else None)


def last_time(epoch: Path) -> float | None:
    """The time of the last line."""
    for file in (epoch / LOG, epoch / f"{LOG}.1"):
        try:
            found = list(_STAMP.finditer(_end(file, None, 64 << 10)))
        except OSError:
            continue
        if found:
            return stamp(found[-1])
    return None


def in_log_time(epoch: Path, file_time: float) -> float | None:
    """A time of the volume, as the log would have written it; None if there is no log to tell."""
    last = last_time(epoch)
    if last is None:
        return None
    for name in (LOG, f"{LOG}.1"):
        try:
            status = (epoch / name).stat()
        except OSError:
            continue
        if status.st_size:
            return file_time + last - status.st_mtime
    return None


def _end(file: Path, since: float | None, most: int) -> bytes:
    """The end of the file, with a line older than `since` in it if there is one; whole lines."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        length = min(_BLOCK if since is not None else most, most)
        while True:
            begin = max(0, size - length)
            opened.seek(begin)
            text = opened.read(size - begin)
            if begin:
                text = text.partition(b"\n")[2]
            first = _STAMP.search(text)
            if begin == 0 or length >= most or (since is not None and first and stamp(first) < since):
                return text
            length = min(4 * length, most)


def _first_since(lines: list[bytes], since: float) -> int:
    """The first line that isn't older, seen from the end: times needn't be in order, nor be there at all."""
    for index in range(len(lines) - 1, -1, -1):
        match = _STAMP.match(lines[index])
        if match and stamp(match) < since:
            return index + 1
    return 0
