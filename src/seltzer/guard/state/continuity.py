"""Checks that the state on the volume is the one this cluster wrote last: starting from an older one loses jobs.

The Lease says what was written last; restoring a volume doesn't restore the Lease. The Lease may be behind the volume
but never ahead of it, since an epoch begins, and a file is saved, before either is reported. A state that is older than
the Lease says is therefore not ours, or not complete. The Lease has to be read before the volume. Times are compared
within one epoch only, where they all come from one clock.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seltzer.guard.state.epoch import Blocked
from seltzer.wire.annotations import ACCEPT_STATE, EPOCH, SAVED

JOBS = ("job_state", "job_state.old")
"""The job queue as saved last. The first file is missing for a moment during every save."""
PARTITIONS = ("part_state", "part_state.old")
"""The same for the partitions."""
_LOGS = ("slurmctld.log", "seltzer.")
# Slurm saves every 5 s at most. A smaller difference is no other save, but a clock that was adjusted.
_SKEW = 2_000_000_000
NOTHING = "empty"
"""The value of `accept-state` that accepts an empty volume."""


@dataclass(frozen=True)
class Written:
    """What this cluster has written, according to the Lease."""

    epoch: int = 0
    saved: int = 0
    """The mtime of `job_state` in nanoseconds, if it has been saved in this epoch."""


def written(annotations: Mapping[str, str]) -> Written:
    """From the annotations of the Lease; zero where one is missing."""
    return Written(*(_number(annotations.get(name, "")) for name in (EPOCH, SAVED)))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def name(folder: Path | None) -> str:
    """The name of this state in `accept-state`."""
    return folder.name if folder else NOTHING


def check(folder: Path | None, known: Written, accepted: str, lease: str) -> None:
    """Raises Blocked, with the problem and the remedy, unless slurmctld may continue from this state.

    `accepted` is the state that a person has accepted as it is; `lease` is the Lease as arguments for kubectl.
    """
    if accepted != name(folder) and (older := _older(folder, known)):
        accept = f"kubectl annotate --overwrite {lease} {ACCEPT_STATE}={name(folder)}"
        raise Blocked(f"{older}: restore the newer state, or continue without it: {accept}")
    if folder:
        usable(folder)


def _older(folder: Path | None, known: Written) -> str:
    """How it is older than what the cluster wrote; empty if it isn't."""
    if folder is None:
        return f"the state volume is empty, but this cluster has written epoch-{known.epoch}" if known.epoch else ""
    number, found = int(folder.name.partition("-")[2]), saved(folder)
    if number < known.epoch:
        return f"the state volume has {folder.name}, but this cluster has written epoch-{known.epoch}"
    if number > known.epoch or found > known.saved - _SKEW:
        return ""
    if not found:
        return f"{folder.name} has no job_state, but this cluster has saved one"
    return f"job_state in {folder.name} is {_seconds(known.saved - found)} older than what this cluster has saved"


def _seconds(nanoseconds: int) -> str:
    seconds = nanoseconds / 1e9
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 3600:.1f} hours"


def usable(folder: Path) -> None:
    """Raises Blocked if slurmctld couldn't read everything in it, or couldn't save there."""
    user = os.getuid()
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise Blocked(f"user {user} can't write to {folder}: change its owner (chown -R {user} {folder})")
    for file in _regular(folder):
        try:
            with Path(file.path).open("rb") as opened:
                opened.read(1)
        except FileNotFoundError:
            continue  # a concurrent save removed it
        except OSError as error:
            why = f"user {user} can't read {file.name} in {folder} ({error.strerror})"
            raise Blocked(f"{why}: make it readable (chown -R {user} {folder}), or replace it") from error


def saved(folder: Path, files: Sequence[str] = JOBS) -> int:
    """When the queue was last saved, in nanoseconds; 0 if never. Costs one stat."""
    for file in files:
        with suppress(OSError):
            return (folder / file).stat().st_mtime_ns
    return 0


def size(folder: Path) -> int:
    """The size of Slurm's own files. A save writes some of them again, beside the old ones."""
    return sum(file.stat(follow_symlinks=False).st_size for file in _regular(folder) if not file.name.startswith(_LOGS))


def _regular(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        for file in found:
            with suppress(FileNotFoundError):
                if stat.S_ISREG(file.stat(follow_symlinks=False).st_mode):
                    yield file
