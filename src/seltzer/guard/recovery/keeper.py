"""Keeps jobs for a person, and says where they are if the volume gets in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seltzer.guard.recovery import spool


class JobKeeper:
    """Never raises: a failure is reported with its job, and doesn't affect the others."""

    def __init__(self, epoch: Path) -> None:
        self.epoch = epoch
        self.safe = True
        """Whether `seltzer.recovery` may be removed: every job in there that wasn't put back is kept elsewhere, too."""

    def keep(self, job: int, why: str, options: dict[str, Any] | None = None) -> str:
        """Keep the job. Returns the reason, with the location if that isn't `lost`."""
        try:
            return _placed(spool.keep(self.epoch, job, why, options), why)
        except Exception as error:
            self.safe = False
            return f"{why}; it stays in {spool.RECOVERY}, since it can't be kept: {_words(error)}"

    def withdraw(self, job: int, why: str) -> str:
        """Keep the job and make it fail if slurmctld starts it. Returns the reason, with the location or the error."""
        try:
            spool.withdraw(self.epoch, job)
        except Exception as error:
            self.safe = False  # nothing is scheduled yet
            return f"{why}, which did not succeed: {_words(error)}"
        return _placed(spool.kept(self.epoch, job), why)


def _placed(folder: Path | None, why: str) -> str:
    beside = folder and folder.parent.name == spool.UNKEPT
    return f"in {spool.UNKEPT} beside the state, not in lost/: {why}" if beside else why


def _words(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) and error.strerror else repr(error)
