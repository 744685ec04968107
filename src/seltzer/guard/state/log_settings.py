"""Finds the lines of slurmctld's log that say how detailed the log is.

Its level and flags may have been changed long before the part of the log that is read. These lines are therefore found
however old they are, even when the part of the log that contained them is gone.
"""

from __future__ import annotations

import calendar
import re
import time
from contextlib import suppress
from pathlib import Path

LOG = "slurmctld.log"
_OLD = "seltzer.log-settings"
_LINE = re.compile(
    rb"^\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\]\n]*\] "
    rb"(slurmctld version |Set debug level to |Set DebugFlags to ).*\n",
    re.MULTILINE,
)


def remember(epoch: Path) -> None:
    """Store these lines. Called before a part of the log is removed."""
    half = epoch / f"{_OLD}.half"
    with suppress(OSError):  # on a full volume it matters more that the log becomes shorter
        half.write_bytes(b"".join(find(epoch)))
        half.rename(epoch / _OLD)


def find(epoch: Path) -> list[bytes]:
    """These lines since the last start of a slurmctld.

    A line may occur twice, but then so do all lines that followed it.
    """
    return older(epoch, _read(epoch / f"{LOG}.1") + b"\n" + _read(epoch / LOG))


def older(epoch: Path, text: bytes) -> list[bytes]:
    """The lines that are in effect at the end of this part of the log."""
    found: list[bytes] = []
    for match in _LINE.finditer(_read(epoch / _OLD) + b"\n" + text):
        if match[1].startswith(b"slurmctld"):
            found.clear()
        found.append(match[0])
    return found


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def stamp(match: re.Match[bytes]) -> float:
    """The time of a line, from its date, time and optional fraction."""
    try:
        return calendar.timegm(time.strptime(match[1].decode(), "%Y-%m-%dT%H:%M:%S")) + float(match[2] or 0)
    except ValueError:
        return 0.0  # an invalid date
