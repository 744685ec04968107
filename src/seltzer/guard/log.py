"""The guard's own log lines, among slurmctld's."""

from __future__ import annotations

import os
from contextlib import suppress


def say(line: str) -> None:
    """Write one line to the stream that slurmctld's output goes to. Never fails."""
    with suppress(OSError):
        os.write(2, f"seltzer-guard: {line}\n".encode(errors="replace"))
