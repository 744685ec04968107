"""The resources that a process uses, according to the kernel."""

from __future__ import annotations

import os
import re
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Its CPU time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def megabytes(pid: int, what: str = "VmRSS") -> float:
    """Its memory; VmHWM is the peak."""
    match = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match, f"process {pid} doesn't report its {what}"
    return int(match[1]) / 1024
