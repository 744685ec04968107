"""The state volume as seen from outside: its stamps, and what its files contain."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

STAMPS = "seltzer.stamps"
_STAMP = re.compile(r"\S+ epoch=(\d+) by=\S+ (?:start|stop|crash|save)\b")
# Written by the guard, which goes on while slurmctld stands still; none of them is slurmctld's state.
_OURS = ("seltzer.", "slurmctld.log")


def out_of_order(stamps: str) -> list[str]:
    """The lines of an older epoch that come after one of a newer: each was written by a controller that had lost."""
    wrong, newest = [], 0
    for line in stamps.splitlines():
        found = _STAMP.match(line)
        if not found:
            wrong.append(f"not a stamp: {line[:200]}")
        elif int(found[1]) < newest:
            wrong.append(line)
        else:
            newest = int(found[1])
    return wrong


def epoch(volume: Path) -> Path | None:
    """The epoch directory; None where there isn't just one."""
    found = list(volume.glob("epoch-*"))
    return found[0] if len(found) == 1 else None


def checksums(folder: Path) -> dict[str, str]:
    """All of slurmctld's files below an epoch directory, with what is in them."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith(_OURS)
    }


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The files that differ, are new, or are gone."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
