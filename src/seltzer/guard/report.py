"""What the guard tells about itself: annotations of its Lease, written by whoever renews that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

from seltzer.guard.output import LIMIT

Phase = Literal["starting", "running", "stopping", "crashed", "blocked"]


class Report:
    """The newest state of things; may be written and read from any thread."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._changed = changed
        self._values: dict[str, str] = {"phase": "starting", "restarts": "0"}

    def set(self, phase: Phase | None = None, **values: str) -> None:
        """Change some of it; an empty value removes the annotation."""
        if phase:
            values["phase"] = phase
        if "message" in values:
            values["message"] = values["message"][:LIMIT]
        with self._lock:
            if {**self._values, **values} == self._values:
                return
            self._values |= values
        self._changed()

    def annotations(self) -> dict[str, str | None]:
        """All of them, those without a value too: a predecessor's must not stay."""
        names = ("epoch", "config", "phase", "message", "slurm-version", "started", "restarts")
        with self._lock:
            return {f"seltzer.dev/{name}": self._values.get(name.replace("-", "_")) or None for name in names}


def now() -> str:
    """RFC 3339, with the microseconds that a Lease wants."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1000:06d}Z"
