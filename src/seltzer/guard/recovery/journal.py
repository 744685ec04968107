"""Reads the journal that job_submit.lua writes: the options that each batch job was submitted with."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOURNAL = "seltzer.journal"
FROM_CRONTAB = "it comes from a crontab"
"""What job_submit.lua says of such a job."""
_MOST = 64 << 20
_KEY = re.compile(rb'^\s*\{"v": ?1, ?"key": ?"([^"\\]+)"')


@dataclass(frozen=True)
class Entry:
    """One submission: what POST /job/submit needs besides the script and the environment."""

    options: dict[str, Any]
    cannot: str = ""
    """Why these options are incomplete; empty if they are complete."""


@dataclass(frozen=True)
class Journal:
    entries: dict[str, Entry] = field(default_factory=dict)
    modified: frozenset[int] = frozenset()
    """Jobs that were changed after their submission."""


def read(epoch: Path, keys: Collection[str]) -> Journal:
    """The entries of these keys, and all jobs that were changed. Malformed lines are ignored."""
    entries: dict[str, Entry] = {}
    modified: set[int] = set()
    wanted = {key.encode() for key in keys}
    for name in (f"{JOURNAL}.1", JOURNAL):
        try:
            text = _end(epoch / name)
        except OSError:
            continue
        for line in text.split(b"\n"):
            key = _KEY.match(line)
            if not key or key[1] in wanted:  # parsing the others would only take time
                _take(line, entries, modified)
    return Journal(entries, frozenset(modified))


def _take(line: bytes, entries: dict[str, Entry], modified: set[int]) -> None:
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or found.get("v") != 1:
            return
        if "modified" in found:
            modified.add(int(found["modified"]))
        elif isinstance(found["key"], str) and isinstance(found["options"], dict):
            entries[found["key"]] = Entry(found["options"], str(found.get("cannot") or ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        return


def _end(file: Path) -> bytes:
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - _MOST))
        return opened.read(_MOST)
