"""slurmctld's records of nodes in the model world, as slurmctld changes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.builders import slurm as slurm_builders

from seltzer.plan.slurm_state import OURS
from seltzer.slurm.models import Node, Number

CPUS = 4
OUTAGE = "Not responding"


@dataclass
class Record:
    """slurmctld's record of a node, and the jobs on it: of each, whose slurmd runs it."""

    name: str
    life: str = ""
    address: str = ""
    # When its slurmd did.
    started: float = 0.0
    drained: bool = False
    down: bool = False
    reason: str = ""
    reasoned: float = 0.0
    comment: str = ""
    # What its checks have reported.
    extra: str = ""
    last_busy: float = 0.0
    jobs: dict[int, str] = field(default_factory=dict)
    # Jobs that were told to end, and are being cleaned up.
    completing: dict[int, str] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        return bool(self.jobs or self.completing)

    @property
    def held(self) -> bool:
        """By a person, who drained it or set it down: whatever it says that isn't ours, nor of an outage."""
        if self.drained:
            return not self.reason.startswith(OURS)
        return self.down and bool(self.reason) and not self.reason.startswith((OURS, OUTAGE))

    # --- as slurmctld does it -------------------------------------------------------------------------------------

    def take(self, life: str, address: str, started: float) -> None:
        """A slurmd registers."""
        if not self.drained:
            self.reason = ""
        self.life, self.address, self.started, self.down = life, address, started, False
        self.jobs = {job: owner for job, owner in self.jobs.items() if owner == life}
        self.completing = {job: owner for job, owner in self.completing.items() if owner == life}

    def drain(self, reason: str, now: float) -> None:
        self.drained, self.reason, self.reasoned = True, reason, now

    def go_down(self, reason: str, now: float) -> None:
        """Its jobs go back to the queue."""
        self.down, self.reason, self.reasoned = True, reason, now
        self._empty(now)

    def resume(self) -> None:
        self.drained, self.down, self.reason = False, False, ""

    def kill_jobs(self) -> None:
        self.completing |= self.jobs
        self.jobs.clear()

    def end_one(self, now: float) -> None:
        jobs = self.completing or self.jobs
        if jobs:
            del jobs[min(jobs)]
            self.last_busy = now

    def with_words(self, words: str) -> str:
        """slurmctld's own words are added to what is there."""
        if not self.reason or words in self.reason:
            return self.reason or words
        return f"{self.reason} : {words}"

    def _empty(self, now: float) -> None:
        if self.busy:
            self.last_busy = now
        self.jobs.clear()
        self.completing.clear()

    def seen(self) -> Node:
        used = len(self.jobs) + len(self.completing)
        base = "DOWN" if self.down else "ALLOCATED" if used >= CPUS else "MIXED" if used else "IDLE"
        flags = [
            flag
            for flag, holds in (
                ("NOT_RESPONDING", self.down),
                ("DRAIN", self.drained),
                ("COMPLETING", bool(self.completing)),
            )
            if holds
        ]
        return slurm_builders.node(
            self.name,
            " ".join([base, *flags]),
            reason=self.reason,
            since=int(self.reasoned),
            comment=self.comment,
            extra=self.extra,
            alloc_cpus=used,
            address=self.address,
            busy_until=Number(set=True, number=int(self.last_busy)),
            started=Number(set=True, number=int(self.started)),
        )
