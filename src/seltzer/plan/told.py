"""What the guard tells by its Lease. What makes no sense counts as not told: it can't be worse than silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from seltzer.api.core import Lease
from seltzer.api.labels import CRASH, EPOCH, HOLD, MESSAGE, PHASE, RECOVERED, RESTARTS, SLURM_VERSION, VOLUME
from seltzer.api.status import Crash, Recovered, RecoveredJob, VolumeStatus

_MOST_JOBS = 200
_MOST_LINES = 20
_MOST_WORDS = 300

T = TypeVar("T")


class _Crash(msgspec.Struct):
    time: str
    how: str = ""
    lines: tuple[str, ...] = ()
    backtrace: tuple[str, ...] = ()
    core: str = ""


class _Job(msgspec.Struct):
    id: str
    user: str = ""
    outcome: str = ""
    why: str = ""


class _Recovered(msgspec.Struct):
    time: str
    epoch: int = 0
    jobs: tuple[_Job, ...] = ()
    more: int = 0


class _Volume(msgspec.Struct):
    free: int
    size: int
    low: bool = False
    files: int | UnsetType = UNSET


class Told:
    """A Lease, read."""

    def __init__(self, lease: Lease | None) -> None:
        self._said: Mapping[str, str] = lease.metadata.annotations if lease else {}
        self.holder = (lease.spec.holder_identity or "") if lease else ""
        """The pod that is in charge; empty: none is."""
        self.phase = self._said.get(PHASE, "") if self.holder else ""
        self.message = self._said.get(MESSAGE, "")
        self.version = self._said.get(SLURM_VERSION, "")
        self.epoch = _number(self._said.get(EPOCH))
        self.restarts = _number(self._said.get(RESTARTS))
        self.failovers = lease.spec.lease_transitions if lease else 0
        self.hold = self._said.get(HOLD) == "true"

    @property
    def volume(self) -> VolumeStatus | UnsetType:
        found = self._json(VOLUME, _Volume)
        if not found or found.size <= 0:
            return UNSET
        return VolumeStatus(free=found.free, size=found.size, low=found.low, files=found.files)

    @property
    def crash(self) -> Crash | UnsetType:
        found = self._json(CRASH, _Crash)
        if found is None:
            return UNSET
        return Crash(
            time=found.time,
            how=found.how[:_MOST_WORDS],
            lines=_text(found.lines[-_MOST_LINES:]),
            backtrace=_text(found.backtrace[:_MOST_LINES]),
            core=found.core[:_MOST_WORDS],
        )

    @property
    def recovered(self) -> Recovered | UnsetType:
        found = self._json(RECOVERED, _Recovered)
        if found is None:
            return UNSET
        # The API server takes no list in which an ID is twice.
        jobs = list({job.id: job for job in found.jobs}.values())
        shown = tuple(
            RecoveredJob(id=job.id, user=job.user, outcome=job.outcome, why=job.why[:_MOST_WORDS])
            for job in jobs[:_MOST_JOBS]
        )
        return Recovered(time=found.time, epoch=found.epoch, jobs=shown, more=found.more + len(jobs) - len(shown))

    def _json(self, annotation: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(self._said.get(annotation, ""), type=kind)
        except (msgspec.DecodeError, UnicodeError):
            return None


def _text(lines: tuple[str, ...]) -> str:
    return "\n".join(line[:_MOST_WORDS] for line in lines)


def _number(word: str | None) -> int:
    return int(word) if word and word.isascii() and word.isdigit() else 0
