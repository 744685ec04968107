"""The JSON documents in the annotations of the controller's Lease: the guard writes, and the operator reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Crash:
    """In the annotation CRASH: the last crash of slurmctld."""

    time: str
    how: str = ""
    lines: tuple[str, ...] = ()
    """The last ones that slurmctld printed."""
    backtrace: tuple[str, ...] = ()
    core: str = ""
    """The path of the core file."""


@dataclass(frozen=True)
class OutcomeGroup:
    """Jobs with the same outcome and reason."""

    outcome: str
    why: str
    jobs: str
    """Job IDs as `job_ids.fold` writes them."""
    count: int
    users: str = ""
    """Empty if they are unknown, or too many."""


@dataclass(frozen=True)
class Recovery:
    """What one repair has reported."""

    time: str
    epoch: int = 0
    groups: tuple[OutcomeGroup, ...] = ()
    more: int = 0
    """The number of jobs that are missing in the groups for lack of space."""


@dataclass(frozen=True)
class Recovered(Recovery):
    """In the annotation RECOVERED: the last recovery, and some before it."""

    earlier: tuple[Recovery, ...] = ()


@dataclass(frozen=True)
class VolumeSpace:
    """In the annotation VOLUME: the state volume, in bytes."""

    free: int
    size: int
    low: bool = False
    files: int | None = None
    """How many files can still be made, where these are what runs out."""


@dataclass(frozen=True)
class GuardEvent:
    """In the annotation NEWS, which is a list of them: something that the guard did."""

    time: str
    reason: str
    message: str = ""
