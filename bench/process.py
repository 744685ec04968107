"""What a process takes, as the kernel tells."""

from __future__ import annotations

import os
import re
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """How long it has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def megabytes(pid: int, what: str = "VmRSS") -> float:
    """What it has in memory; VmHWM: the most that it ever had."""
    match = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match, f"process {pid} doesn't tell its {what}"
    return int(match[1]) / 1024
