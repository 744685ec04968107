"""The one table of colours. A style is one or two words that rich and CSS know: `green`, `dim`, `bold yellow`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GOOD: Final = "green"
IN_USE: Final = "cyan"
WARNING: Final = "yellow"
BAD: Final = "red"
ODD: Final = "magenta"
MINOR: Final = "dim"
TITLE: Final = "bold"

STATES: Final[Mapping[str, str]] = {
    "idle": GOOD,
    "mixed": IN_USE,
    "allocated": IN_USE,
    "draining": WARNING,
    "drained": WARNING,
    "down": BAD,
    "other": ODD,
    "unknown": ODD,
}
"""The states of a node, the best first. Each node is in one; unknown: Slurm has no record of it, or can't be asked."""

CONDITIONS: Final[Mapping[str, str]] = {"True": GOOD, "False": BAD, "Unknown": WARNING}
"""The statuses of a condition of ours."""

_JOBS: Final[Mapping[str, str]] = {
    "RUNNING": GOOD,
    "PENDING": WARNING,
    "COMPLETING": IN_USE,
    "CONFIGURING": IN_USE,
    "SUSPENDED": ODD,
}


def job(state: str) -> str:
    """Of a job in this state."""
    return _JOBS.get(state, ODD)


def event(type_: str) -> str:
    """Of an Event's reason."""
    return f"bold {WARNING}" if type_ == "Warning" else GOOD
