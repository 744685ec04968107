"""The guard's report, from the annotations of its Lease. Malformed annotations are ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from seltzer.api.core import Lease
from seltzer.api.labels import (
    CRASH,
    EPOCH,
    HOLD,
    MESSAGE,
    NAMES,
    NEWS,
    PHASE,
    RECOVERED,
    RESTARTS,
    SLURM_VERSION,
    STARTED,
    VOLUME,
)
from seltzer.api.status import Crash, Recovered, RecoveredJobs, Recovery, VolumeStatus
from seltzer.wire import lease_json
from seltzer.wire.lease_json import GuardEvent

_MOST_GROUPS = 512
_MOST_EARLIER = 8
_MOST_LINES = 20
_MOST_CHARACTERS = 300
_MOST_EVENTS = 16
# The reason of an Event: CamelCase, as Kubernetes wants it.
_REASON = re.compile("[A-Z][A-Za-z]{1,63}")

T = TypeVar("T")


class GuardReport:
    """A Lease, parsed."""

    def __init__(self, lease: Lease | None) -> None:
        self._annotations: Mapping[str, str] = lease.metadata.annotations if lease else {}
        self.holder = (lease.spec.holder_identity or "") if lease else ""
        """The active pod; empty: none is."""
        self.phase = self._annotations.get(PHASE, "") if self.holder else ""
        self.message = self._annotations.get(MESSAGE, "")
        self.version = self._annotations.get(SLURM_VERSION, "")
        self.epoch = _number(self._annotations.get(EPOCH))
        self.restarts = _number(self._annotations.get(RESTARTS))
        self.failovers = lease.spec.lease_transitions if lease else 0
        self.names = self._annotations.get(NAMES, "") if self.holder else ""
        """Why names can't be resolved; empty: they can be, or nobody has looked."""
        self.hold = self._annotations.get(HOLD) == "true"
        self.runs = self._annotations.get(PHASE) == "running"

    @property
    def running_since(self) -> float | None:
        """When the slurmctld that runs was started, by the clock of its machine; None if that isn't known."""
        try:
            return datetime.fromisoformat(self._annotations[STARTED]).timestamp() if self.runs else None
        except (KeyError, ValueError):
            return None

    @property
    def volume(self) -> VolumeStatus | UnsetType:
        found = self._json(VOLUME, lease_json.VolumeSpace)
        if not found or found.size <= 0:
            return UNSET
        return VolumeStatus(
            free=found.free, size=found.size, low=found.low, files=UNSET if found.files is None else found.files
        )

    @property
    def crash(self) -> Crash | UnsetType:
        found = self._json(CRASH, lease_json.Crash)
        if found is None:
            return UNSET
        return Crash(
            time=found.time,
            how=found.how[:_MOST_CHARACTERS],
            lines=_text(found.lines[-_MOST_LINES:]),
            backtrace=_text(found.backtrace[:_MOST_LINES]),
            core=found.core[:_MOST_CHARACTERS],
        )

    @property
    def recovered(self) -> Recovered | UnsetType:
        found = self._json(RECOVERED, lease_json.Recovered)
        if found is None:
            return UNSET
        newest = _recovery(found)
        # The API server refuses a list with a duplicate key; likewise below.
        earlier = {each.time: _recovery(each) for each in found.earlier if each.time != found.time}
        return Recovered(
            time=newest.time,
            epoch=newest.epoch,
            groups=newest.groups,
            more=newest.more,
            earlier=tuple(earlier.values())[-_MOST_EARLIER:],
        )

    @property
    def events(self) -> tuple[GuardEvent, ...]:
        """The last few events, in order."""
        found = self._json(NEWS, tuple[GuardEvent, ...]) or ()
        return tuple(
            GuardEvent(each.time, each.reason, each.message[:_MOST_CHARACTERS])
            for each in found[-_MOST_EVENTS:]
            if each.time and _REASON.fullmatch(each.reason)
        )

    def _json(self, annotation: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(self._annotations.get(annotation, ""), type=kind)
        except (msgspec.DecodeError, UnicodeError):
            return None


def _recovery(found: lease_json.Recovery) -> Recovery:
    groups = list({each.jobs: each for each in found.groups}.values())
    shown = tuple(
        RecoveredJobs(
            outcome=each.outcome, why=each.why[:_MOST_CHARACTERS], jobs=each.jobs, count=each.count, users=each.users
        )
        for each in groups[:_MOST_GROUPS]
    )
    more = found.more + sum(each.count for each in groups[_MOST_GROUPS:])
    return Recovery(time=found.time, epoch=found.epoch, groups=shown, more=more)


def _text(lines: tuple[str, ...]) -> str:
    return "\n".join(line[:_MOST_CHARACTERS] for line in lines)


def _number(word: str | None) -> int:
    return int(word) if word and word.isascii() and word.isdigit() else 0
