"""The part of slurmctld's log that may describe unsaved changes.

Times in the log are slurmctld's, those of files are the volume's. Both are known at the end of the log, and from that
one is converted into the other, whatever time zone or clock each has. Clocks may be adjusted, and differ between the
machines that slurmctld has run on, so times may decrease from one line to the next. The part begins with the first line
that may be recent enough, and includes all lines after it, whatever their times. Reading too much only holds or reports
more jobs.
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
"""slurmctld packs its state before it writes it, and may wait for a slow disk in between."""
_MOST = 32 << 20
_TAIL = 1 << 20
_FALL = 2.0  # lines of concurrent threads are closer than this
_HOUR = 3600.0
_LATEST = 253_402_300_799.0
_STAMP = re.compile(rb"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?", re.MULTILINE)


@dataclass(frozen=True)
class History:
    """The end of the log, preceded by the older lines that say how detailed the log is."""

    lines: tuple[str, ...]
    older: int
    """How many of the lines precede the end."""
    first: float | None
    """The time of the first line of the end, in the log's time."""
    whole: bool = True
    """Whether the end contains everything that was logged in its time: the log reaches back that far."""


def read(epoch: Path, since: float | None, floor: str = "") -> History:
    """Everything since `since`, in the log's time, or everything if that is None; at most the last 32 MiB.

    Excludes everything up to the line `floor`, if that is in the log.
    """
    text = _text(epoch)
    begin = max(0 if since is None else _begin(text, since), _behind(text, floor))
    # A log that is shorter has never lost anything to a rotation or a takeover.
    whole = since is None or begin > 0 or len(text) < rotation.LIMIT
    first = _STAMP.search(text, begin)
    older = _lines(b"".join(log_settings.older(epoch, text[:begin])))
    return History((*older, *_lines(text[begin:])), len(older), stamp(first) if first else None, whole)


def last_seconds(epoch: Path, seconds: float) -> list[str]:
    """What was logged in the last seconds before the last line, at most 1 MiB."""
    text = _text(epoch, _TAIL)
    last = last_time(epoch)
    return [] if last is None else _lines(text[_begin(text, last - seconds) :])


def last_time(epoch: Path) -> float | None:
    """The time of the last line."""
    found = _last_stamps(epoch)
    return stamp(found[-1]) if found else None


def last_line(epoch: Path) -> str:
    """The last line by which this position can be found again: complete and plain ASCII. Empty if there is none."""
    lines = [line for line in _lines(_text(epoch, _TAIL)) if line.isascii() and _STAMP.match(line.encode())]
    return lines[-1] if lines else ""


def in_log_time(epoch: Path, file_time: float) -> float | None:
    """A time of the volume in the log's time; None without a log to convert it by."""
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
    """Whether the clock was set back and hasn't caught up: the last line has an earlier time than one before it."""
    found = _last_stamps(epoch)
    return bool(found) and stamp(max(found, key=lambda match: match[0])) > stamp(found[-1]) + _FALL


def _text(epoch: Path, most: int = _MOST) -> bytes:
    """The end of the log, continued into the file before it. Begins with a complete line."""
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
        if text:  # the writer of the older file may have been killed in the middle of a line
            part = part[: part.rfind(b"\n") + 1]
        text = (part.partition(b"\n")[2] if begin else part) + text
        if begin:
            break
    return text


def _lines(text: bytes) -> list[str]:
    """Drops a last line that was cut off: it may contain half of a number."""
    return [line.decode(errors="replace") for line in text.split(b"\n")[:-1]]


def _last_stamps(epoch: Path) -> list[re.Match[bytes]]:
    return list(_STAMP.finditer(_text(epoch, _TAIL)))


def _begin(text: bytes, since: float, summer: bool = True) -> int:
    """Where the first line begins that isn't older; the end if all are."""
    seconds = min(max(since, 0.0), _LATEST)
    # Compared as text, since there may be hundreds of thousands of lines.
    wanted = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%03d" % (seconds % 1 * 1000)
    begin, before = 0, b""
    for line in text.split(b"\n"):
        if line[1:24] >= wanted and (match := _STAMP.match(line)):
            last = _STAMP.match(before)
            if summer and last and _HOUR <= stamp(match) - stamp(last) < _HOUR + 60:
                # Local time may have jumped to summer time there, and `since` is already in summer time.
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
