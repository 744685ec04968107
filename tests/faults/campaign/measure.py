"""How long a fault was felt. Pure: what was asked and answered in, seconds out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .account import Ack, Away, Run

# What a node's state may be besides idle, mixed or allocated while it takes jobs.
_HARMLESS = frozenset({"CLOUD", "COMPLETING", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "PLANNED"})


@dataclass(frozen=True)
class Ask:
    """One question to slurmctld from a login pod, and whether it was answered."""

    begun: float
    ended: float
    answered: bool
    said: str = ""
    """What was said instead of an answer."""

    def overtaken_by(self, other: Ask) -> bool:
        return self.begun < other.begun and other.ended < self.ended


@dataclass(frozen=True)
class Look:
    """One look at Slurm's nodes: those of the pool that take jobs; None where nobody answered."""

    begun: float
    ended: float
    taking: frozenset[str] | None


@dataclass(frozen=True)
class Outage:
    """When slurmctld was last asked in vain; None if it never was."""

    last: float | None
    over: float | None
    """When it answered for the first time after that; None if it hasn't yet."""


def outage(asks: Iterable[Ask], fault: float) -> Outage:
    """What was felt of a fault. A slurmctld that answers in between, on its way down, isn't back yet.

    A question that others overtook doesn't count: it was held up on its way, by a machine with too much to do.
    """
    after = sorted((ask for ask in asks if ask.begun >= fault), key=lambda ask: ask.begun)
    good = [ask for ask in after if ask.answered]
    failed = [ask.begun for ask in after if not ask.answered and not any(map(ask.overtaken_by, good))]
    last = max(failed, default=None)
    return Outage(last, min((ask.ended for ask in good if last is None or ask.begun > last), default=None))


def answer_seconds(asks: Iterable[Ask], fault: float) -> float | None:
    """From the fault until slurmctld answers and goes on answering; None if it doesn't yet.

    It is never 0: where nothing is felt it is how long one question takes.
    """
    over = outage(asks, fault).over
    return None if over is None else over - fault


def read_nodes(text: str, partition: str) -> frozenset[str]:
    """The nodes of a partition that take jobs or are full of them, by `scontrol --oneliner show nodes`."""
    records = [dict(word.partition("=")[::2] for word in line.split()) for line in text.splitlines()]
    return frozenset(
        each["NodeName"]
        for each in records
        if "NodeName" in each
        and partition in each.get("Partitions", "").split(",")
        and _takes_jobs(each.get("State", ""))
    )


def _takes_jobs(state: str) -> bool:
    base, *flags = state.split("+")
    return base in ("IDLE", "MIXED", "ALLOCATED") and set(flags) <= _HARMLESS


def whole(looks: Iterable[Look], replicas: int, away: Sequence[Away]) -> list[Ask]:
    """Whether the pool was whole at each look, as an answer to that question.

    slurmctld doesn't know at once that a node is gone. We do, and such a node doesn't count, whatever Slurm says. A
    look that nobody answered tells about slurmctld, not about the pool.
    """
    asks = []
    for look in looks:
        gone = {name for each in away if each.overlaps(look.begun, look.ended) for name in each.nodes}
        if look.taking is not None:
            asks.append(Ask(look.begun, look.ended, len(look.taking - gone) >= replicas))
    return asks


def unanswered(asks: Iterable[Ask], fault: float) -> int:
    """How many questions went unanswered."""
    return sum(not ask.answered for ask in asks if ask.begun >= fault)


def job_seconds(asks: Iterable[Ask], acks: Iterable[Ack], runs: Iterable[Run], fault: float) -> float | None:
    """From the fault until a job runs that was submitted after it, once slurmctld is back; None if none has yet."""
    felt = outage(asks, fault)
    since = fault if felt.last is None else felt.last
    new = {ack.key for ack in acks if ack.begun >= fault}
    starts = [run.time for run in runs if run.what == "start" and run.key in new and run.time >= since]
    return min(starts) - fault if starts else None


def slowest_start(acks: Iterable[Ack], runs: Iterable[Run], since: float, until: float) -> float:
    """The longest that a job waited from its submission until it ran, or in vain, of those submitted since then."""
    begun = {ack.key: ack.begun for ack in acks if ack.begun >= since}
    starts: dict[str, float] = {}
    for run in runs:
        if run.what == "start" and run.key in begun:
            starts.setdefault(run.key, run.time)
    return max((starts.get(key, until) - time for key, time in begun.items()), default=0.0)


def summary(seconds: Sequence[float]) -> dict[str, float | None]:
    """Median and worst, to a hundredth of a second."""
    if not seconds:
        return {"median": None, "worst": None}
    return {"median": round(statistics.median(seconds), 2), "worst": round(max(seconds), 2)}
