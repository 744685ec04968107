"""What the steps of a repair share: their view of slurmctld, and the report of what became of the jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from seltzer.guard import log
from seltzer.guard.recovery import recoveries
from seltzer.guard.recovery.recoveries import JobOutcome
from seltzer.guard.recovery.verdicts import Outcome
from seltzer.wire.lease_json import Recovery
from seltzer.wire.squeue import PendingJob, QueueEntry

DYING = 1.0  # a dead slurmctld is noticed within this time, and then everything is left as it is
_WHY = 200


class Submitter(Protocol):
    def submit(self, job: dict[str, Any], script: str) -> None: ...

    def close(self) -> None: ...


class Controller(Protocol):
    """slurmctld, as implemented by `recovery.slurm.SlurmCommands`. Every method may raise SlurmError or Cancelled."""

    def queue(self) -> list[QueueEntry]: ...

    def pending(self) -> dict[int, PendingJob]: ...

    def has_silent_nodes(self) -> bool: ...

    def silent_nodes(self, hostlist: str) -> set[str]: ...

    def requeues_by_default(self) -> bool: ...

    def delay(self, names: Sequence[str]) -> None: ...

    def start_now(self, names: Sequence[str]) -> None: ...

    def requeue(self, jobs: Collection[int]) -> None: ...

    def hold(self, names: Sequence[str], why: str) -> None: ...

    def release(self, names: Sequence[str]) -> None: ...

    def cancel_jobs(self, names: Sequence[str]) -> None: ...

    def complete(self, statuses: dict[int, int]) -> None: ...

    def never_requeue(self, names: Sequence[str]) -> None: ...

    def save_crontab_again(self, user: int) -> None: ...

    def left(self) -> float: ...

    def pause(self, seconds: float) -> None: ...

    def rest(self) -> Submitter: ...


@dataclass
class RepairReport:
    """What became of all jobs that were found."""

    jobs: list[JobOutcome] = field(default_factory=list)
    written: Recovery | None = None

    def add(self, id_: str, user: object, outcome: Outcome, why: str) -> None:
        self.jobs.append(JobOutcome(id_, "" if user is None else str(user), outcome, why[:_WHY]))
        log.say(f"job {id_} of user {user}: {outcome}: {why}")

    def write(self, epoch: Path) -> None:
        """Store it on the volume, unless it is empty. Also after a repair that was cut short: the next repair may have
        nothing to report about these jobs."""
        if self.jobs:
            self.written = recoveries.add(epoch, self.jobs)

    def as_json(self, epoch: Path) -> str:
        """For the Lease: this and earlier recoveries, as far as they fit. Empty if there are none."""
        known = recoveries.read(epoch)
        if self.written and self.written not in known:
            known.append(self.written)  # the volume may be full
        return recoveries.for_lease(known)
