"""The guard's own lines, among slurmctld's."""

from __future__ import annotations

import os
from contextlib import suppress


def say(line: str) -> None:
    """One line to where slurmctld's output goes too. Never fails."""
    with suppress(OSError):
        os.write(2, f"seltzer-guard: {line}\n".encode(errors="replace"))
