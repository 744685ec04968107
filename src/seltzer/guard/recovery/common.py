"""What the steps of a repair need: slurmctld as they see it, and somebody to tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from seltzer.guard import log
from seltzer.guard.recovery.slurm import Listed
from seltzer.guard.recovery.verdicts import Outcome
from seltzer.guard.report import now

DYING = 1.0  # a slurmctld that died is noticed within that, and then everything is left as it is
LIMIT = 15 << 10  # of the annotation
_WHY = 200


class Submitter(Protocol):
    def submit(self, job: dict[str, Any], script: str) -> None: ...

    def close(self) -> None: ...


class Controller(Protocol):
    """slurmctld, as `recovery.slurm.Slurm` has it. All of it may raise SlurmError or Cancelled."""

    def queue(self) -> list[Listed]: ...

    def hold(self, names: Sequence[str], why: str) -> None: ...

    def cancel_jobs(self, names: Sequence[str]) -> None: ...

    def complete(self, statuses: dict[int, int]) -> None: ...

    def never_requeue(self, names: Sequence[str]) -> None: ...

    def left(self) -> float: ...

    def pause(self, seconds: float) -> None: ...

    def rest(self) -> Submitter: ...


@dataclass(frozen=True)
class Told:
    """What became of a job."""

    id: str
    user: str
    outcome: Outcome
    why: str


@dataclass
class Recovered:
    """What became of all jobs that were found."""

    jobs: list[Told] = field(default_factory=list)

    def tell(self, id_: str, user: object, outcome: Outcome, why: str) -> None:
        self.jobs.append(Told(id_, "" if user is None else str(user), outcome, why[:_WHY]))
        log.say(f"job {id_} of user {user}: {outcome}: {why}")

    def as_json(self, epoch: int) -> str:
        """For the Lease; short enough for it. Empty if there is nothing to tell."""
        if not self.jobs:
            return ""
        jobs = [{"id": job.id, "user": job.user, "outcome": job.outcome, "why": job.why} for job in self.jobs]
        told, size = 0, 200
        for job in jobs:
            size += len(json.dumps(job).encode()) + 2
            told += size <= LIMIT
        return json.dumps({"time": now(), "epoch": epoch, "jobs": jobs[:told], "more": len(jobs) - told})
