"""The guard's report about itself: annotations of its Lease, written with each renewal."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

from seltzer.guard import log
from seltzer.guard.slurmctld.output import LIMIT
from seltzer.wire import annotations as wire
from seltzer.wire.annotations import Phase
from seltzer.wire.lease_json import GuardEvent

JSON_LIMIT = 16 << 10
_OURS = {
    "config": wire.CONFIG,
    "phase": wire.PHASE,
    "message": wire.MESSAGE,
    "slurm_version": wire.SLURM_VERSION,
    "started": wire.STARTED,
    "restarts": wire.RESTARTS,
    "volume": wire.VOLUME,
    "names": wire.NAMES,
}
# They describe the cluster, not this guard: a predecessor's values stay until we know better.
_INHERITED = {
    "epoch": wire.EPOCH,
    "saved": wire.SAVED,
    "crash": wire.CRASH,
    "recovered": wire.RECOVERED,
    "news": wire.NEWS,
}
_STAYING = ("slurm_version", "restarts")
_JSON = ("volume", "crash", "recovered")
# Together they are shorter than JSON_LIMIT, whatever they contain.
_MOST_NEWS = 8
_MOST_WORDS = 280


class Report:
    """The current report. May be read and written from any thread."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._changed = changed
        self._values: dict[str, str] = {"phase": "starting", "restarts": "0"}
        self._news: list[GuardEvent] = []

    def set(self, phase: Phase | None = None, **values: str) -> None:
        """Change some values; an empty value removes the annotation. Published at once."""
        if phase:
            values["phase"] = phase
        if self._put(values):
            self._changed()

    def note(self, **values: str) -> None:
        """Change some values; published with the next renewal of the Lease."""
        self._put(values)

    def add_event(self, reason: str, message: str) -> None:
        """Report something that was done: the operator records it as an Event. Keeps a few, in case it reads late."""
        event = GuardEvent(now(), reason, message[:_MOST_WORDS])
        with self._lock:
            self._news = [*self._news, event][-_MOST_NEWS:]
            self._values["news"] = json.dumps([asdict(each) for each in self._news])
        self._changed()

    def _put(self, values: dict[str, str]) -> bool:
        if "message" in values:
            values["message"] = values["message"][:LIMIT]
        for name in _JSON:
            # A truncated document is useless. Producers keep it short; if they don't, the Lease must not suffer.
            if len(values.get(name, "").encode()) > JSON_LIMIT:
                log.say(f"{name} is too long for the Lease and is left out")
                del values[name]
        with self._lock:
            if {**self._values, **values} == self._values:
                return False
            self._values |= values
            return True

    def get(self, name: str) -> str:
        with self._lock:
            return self._values.get(name, "")

    def inherit(self) -> None:
        """Forget the values of our last term: another guard may have led since."""
        with self._lock:
            kept = {name: value for name, value in self._values.items() if name in _STAYING}
            self._values = {**kept, "phase": "starting"}
            self._news = []

    def annotations(self) -> dict[str, str | None]:
        """All annotations to write. None removes one; annotations that aren't included stay as they are."""
        with self._lock:
            ours = {annotation: self._values.get(name) or None for name, annotation in _OURS.items()}
            inherited = {annotation: name for name, annotation in _INHERITED.items() if name in self._values}
            return ours | {annotation: self._values[name] or None for annotation, name in inherited.items()}


def now() -> str:
    """RFC 3339, with the microseconds that a Lease requires."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1000:06d}Z"
