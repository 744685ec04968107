"""What a repeat showed, and the book of the jobs: each is listed once, in the repeat in which it happened."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from seltzer.wire import job_ids

from . import account
from .account import Fate
from .rig import Rig

# Slurm itself holds those that it could not start.
_BY_US = ("JobHeldAdmin", "JobHeldUser")


@dataclass
class Outcome:
    """What one repeat showed. Without seconds it failed, and `failure` says how."""

    did: str
    operator: bool
    answer_s: float | None = None
    job_s: float | None = None
    whole_s: float | None = None
    slowest_s: float = 0.0
    unanswered: int = 0
    fault_time: float = 0.0
    interactive: int = 0
    """How many srun ran or waited when the fault came, and how many of them failed or hung."""
    interactive_broken: int = 0
    drained: list[str] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    requeued: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    ghosts: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    once: set[str] = field(default_factory=set, repr=False)
    """All that were submitted with --no-requeue, whatever became of them."""
    kept: list[str] = field(default_factory=list)
    checks: dict[str, str] = field(default_factory=dict)
    failure: str = ""


class Book:
    """Who was accounted for already."""

    def __init__(self) -> None:
        self._closed: set[str] = set()
        self._twice: set[str] = set()
        self._requeued: set[str] = set()
        self._ghosts: set[str] = set()

    def close(self, rig: Rig, outcome: Outcome) -> int:
        """Account for every job that is open; how many are left in the queue."""
        known = rig.load.acks()
        acks = [ack for ack in known.values() if ack.key not in self._closed]
        queue = rig.load.queue()
        runs = rig.load.runs()
        named = _named(rig)
        found = account.fates(acks, runs, queue, named)
        by_fate = {fate: [key for key, its in found.items() if its is fate] for fate in Fate}
        ids = {ack.key: ack.job for ack in acks}
        outcome.checks["ids"] = account.reused(known.values()) or "ok"
        if unnamed := [key for key in by_fate[Fate.HELD] if queue[key].reason in _BY_US and ids[key] not in named]:
            outcome.checks["named"] = f"{len(unnamed)} are held and nobody is told, such as {unnamed[0]}"
        outcome.checks.setdefault("named", "ok")
        outcome.lost += [f"{key} ({ids[key]})" for key in by_fate[Fate.LOST]]
        outcome.killed += by_fate[Fate.KILLED]
        outcome.failed += by_fate[Fate.FAILED]
        outcome.kept += by_fate[Fate.KEPT]
        outcome.held += by_fate[Fate.HELD]
        once = {key for key, ack in known.items() if not ack.requeue}
        outcome.once |= once
        outcome.twice += _new(account.twice(runs, once, [*rig.away, *rig.ended()]), self._twice)
        outcome.requeued += _new(account.requeued(runs, queue) & known.keys(), self._requeued)
        self._closed |= found.keys() - set(by_fate[Fate.QUEUED])
        rig.load.recount(queue)
        now = time.time()
        ghosts = account.ghosts(runs, queue, now, account.GHOSTLY)
        unnoticed = {one.key for one in account.ghosts(runs, queue, now, 0.0)}
        outcome.ghosts += _new({one.key for one in ghosts}, self._ghosts)
        self._closed |= self._ghosts
        done = [*(ids[key] for key in by_fate[Fate.HELD]), *(one.job for one in ghosts)]
        if done:  # a person has seen them now
            rig.load.command("scancel", *done)
        return len((unnoticed | set(by_fate[Fate.QUEUED])) - self._ghosts)


def _new(found: set[str], told: set[str]) -> list[str]:
    """Those that weren't told of yet; from now on they are."""
    new = sorted(found - told)
    told.update(new)
    return new


def _named(rig: Rig) -> dict[str, str]:
    """The jobs of which the guard has told, by ID, with what became of them."""
    try:
        told = json.loads(rig.annotation("recovered") or "{}")
        recoveries = [*told.get("earlier", []), told]  # of a job that was found twice, the last counts
        groups = [group for each in recoveries for group in each.get("groups", [])]
        return {job: str(group["outcome"]) for group in groups for job in job_ids.expand(str(group["jobs"]))}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
