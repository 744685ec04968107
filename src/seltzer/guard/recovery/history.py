"""The part of slurmctld's log that may tell of what it hasn't saved.

The times in the log are slurmctld's, those of files the volume's. Where the log ends both are known, and that is how
one is turned into the other, whatever time zone or clock either has. Clocks may be set, and differ between the nodes
that slurmctld has run on: so times may fall from one line to the next. The part begins with the first line that may be
young enough, and all lines behind it belong to it, whatever their times. To read too much only holds or names more.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from seltzer.guard.state import log_settings, rotation
from seltzer.guard.state.log_settings import stamp

LOG = log_settings.LOG
MARGIN = 15.0
"""slurmctld writes its state after it has packed it, and there it may wait for a slow disk."""
_MOST = 32 << 20
_TAIL = 1 << 20
_FALL = 2.0  # threads that write at the same time are less apart
_HOUR = 3600.0
_LATEST = 253_402_300_799.0
_STAMP = re.compile(rb"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?", re.MULTILINE)


@dataclass(frozen=True)
class History:
    """The end of the log, and before it the older lines that say how much of what happens the log tells."""

    lines: tuple[str, ...]
    older: int
    """How many of the lines are before the end."""
    first: float | None
    """The time of the first line of the end, as the log has it."""
    whole: bool = True
    """Whether the end is all that was logged in its time: the log reaches back to it."""


def read(epoch: Path, since: float | None, floor: str = "") -> History:
    """Everything from `since` on, in the log's time; all there is without it. At most the last 32 MiB.

    Nothing up to the line `floor`, if it is in the log.
    """
    text = _text(epoch)
    begin = max(0 if since is None else _begin(text, since), _behind(text, floor))
    # What is shorter has never lost anything to a rotation or a takeover.
    whole = since is None or begin > 0 or len(text) < rotation.LIMIT
    first = _STAMP.search(text, begin)
    older = _lines(b"".join(log_settings.older(epoch, text[:begin])))
    return History((*older, *_lines(text[begin:])), len(older), stamp(first) if first else None, whole)


def last_time(epoch: Path) -> float | None:
    """The time of the last line."""
    found = _last_stamps(epoch)
    return stamp(found[-1]) if found else None


def last_line(epoch: Path) -> str:
    """The last line by which the place can be found again, so whole and of plain characters; empty if there is none."""
    lines = [line for line in _lines(_text(epoch, _TAIL)) if line.isascii() and _STAMP.match(line.encode())]
    return lines[-1] if lines else ""


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


def was_set_back(epoch: Path) -> bool:
    """Whether the clock was set back and hasn't caught up: the last lines are younger than others with later times."""
    found = _last_stamps(epoch)
    return bool(found) and stamp(max(found, key=lambda match: match[0])) > stamp(found[-1]) + _FALL


def _text(epoch: Path, most: int = _MOST) -> bytes:
    """The end of the log, with that of the file before it; it begins with a whole line."""
    text = b""
    for file in (epoch / LOG, epoch / f"{LOG}.1"):
        try:
            with file.open("rb") as opened:
                size = opened.seek(0, 2)
                begin = max(0, size - (most - len(text)))
                opened.seek(begin)
                part = opened.read(size - begin)
        except OSError:
            continue
        if text:  # who wrote the file before was killed within a line, maybe
            part = part[: part.rfind(b"\n") + 1]
        text = (part.partition(b"\n")[2] if begin else part) + text
        if begin:
            break
    return text


def _lines(text: bytes) -> list[str]:
    """A last line that was cut off is none: what it says about a job may be half of a number."""
    return [line.decode(errors="replace") for line in text.split(b"\n")[:-1]]


def _last_stamps(epoch: Path) -> list[re.Match[bytes]]:
    return list(_STAMP.finditer(_text(epoch, _TAIL)))


def _begin(text: bytes, since: float, summer: bool = True) -> int:
    """Where the first line begins that isn't older; at the end if all are."""
    seconds = min(max(since, 0.0), _LATEST)
    # As text, since there may be hundreds of thousands of lines.
    wanted = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%03d" % (seconds % 1 * 1000)
    begin, before = 0, b""
    for line in text.split(b"\n"):
        if line[1:24] >= wanted and (match := _STAMP.match(line)):
            last = _STAMP.match(before)
            if summer and last and _HOUR <= stamp(match) - stamp(last) < _HOUR + 60:
                # Local time may have leapt to summer time there, and `since` is in that already.
                return _begin(text, since - _HOUR, summer=False)
            return begin
        begin, before = begin + len(line) + 1, line
    return len(text)


def _behind(text: bytes, line: str) -> int:
    """Where the first such line ends; 0 if there is none."""
    wanted = line.encode() + b"\n"
    if not line:
        return 0
    if text.startswith(wanted):
        return len(wanted)
    at = text.find(b"\n" + wanted)
    return at + 1 + len(wanted) if at >= 0 else 0
