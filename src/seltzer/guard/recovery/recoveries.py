"""Which jobs were recovered and what became of them: everything on the volume, and what fits in the Lease.

Jobs with the same outcome are grouped. The file is in the epoch: a fenced guard can't write it, and the next guard
continues it. What a repair has reported therefore stays, even if the repair was cut short or nobody read the Lease.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.kube.report import now
from seltzer.guard.recovery.verdicts import Outcome
from seltzer.guard.state.epoch import sync
from seltzer.wire import job_ids
from seltzer.wire.lease_json import OutcomeGroup, Recovered, Recovery

FILE = "seltzer.recoveries"
LIMIT = 15 << 10  # of the annotation
KEPT = 20
_MOST = 4 << 20  # of the file; the newest recovery is always complete, however long it is
_IN_LEASE = 4  # recoveries in the annotation
_STUB = 150  # bytes of a recovery of which only the count fits
# Outcomes that need a person come first, and are dropped last.
_ORDER: tuple[Outcome, ...] = ("held", "kept", "lost", "cancelled", "ran", "requeued", "put-back")
# Details that differ from job to job and can be dropped.
_DETAIL = re.compile(r"(?<=had started) on \S+?(?=[,;:]?(?: |$))|(?<=its dependency) \S+(?= was refused)")


@dataclass(frozen=True)
class JobOutcome:
    """What became of one job."""

    id: str
    user: str
    outcome: Outcome
    why: str


def add(epoch: Path, jobs: Iterable[JobOutcome]) -> Recovery:
    """Store what a repair has reported, after the reports of earlier ones."""
    number = epoch.name.partition("-")[2]
    new = Recovery(now(), int(number) if number.isdecimal() else 0, _grouped(jobs))
    _write(epoch, [*read(epoch), new])
    return new


def read(epoch: Path) -> list[Recovery]:
    """The last recoveries, the newest last. A malformed file counts as empty."""
    try:
        return [_parsed(each) for each in json.loads((epoch / FILE).read_text())]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def named(epoch: Path) -> set[str]:
    """The IDs of all jobs in these recoveries."""
    return {job for recovery in read(epoch) for group in recovery.groups for job in job_ids.expand(group.jobs)}


def without_details(why: str) -> str:
    """A reason without what differs from job to job."""
    return _DETAIL.sub("", why)


def for_lease(recoveries: Sequence[Recovery]) -> str:
    """The newest recovery and some earlier ones, short enough for the annotation; empty if there are none.

    Earlier ones share the space that the newest leaves; each gets at least enough to say how many jobs it had.
    """
    if not recoveries:
        return ""
    *before, newest = recoveries[-_IN_LEASE:]
    fitting = _fitting(newest, LIMIT - _STUB * len(before))
    shown = Recovered(fitting.time, fitting.epoch, fitting.groups, fitting.more)
    for place, each in enumerate(reversed(before), 1):
        room = LIMIT - _size(asdict(shown)) - _STUB * (len(before) - place)
        shown = replace(shown, earlier=(_fitting(each, room), *shown.earlier))
    return _compact(asdict(shown))


def _grouped(jobs: Iterable[JobOutcome]) -> tuple[OutcomeGroup, ...]:
    found: dict[tuple[int, str, str], list[JobOutcome]] = {}
    for job in {job.id: job for job in jobs}.values():
        found.setdefault((_ORDER.index(job.outcome), job.outcome, job.why), []).append(job)
    return tuple(
        OutcomeGroup(
            outcome,
            why,
            job_ids.fold(job.id for job in its),
            len(its),
            job_ids.fold(job.user for job in its if job.user),
        )
        for (_, outcome, why), its in sorted(found.items(), key=lambda each: each[0][0])
    )


def _fitting(recovery: Recovery, room: int) -> Recovery:
    """All of it if that fits, else without details, else without the last of its jobs."""
    if _size(asdict(recovery)) <= room:
        return recovery
    brief = _brief(recovery)
    if _size(asdict(brief)) <= room:
        return brief
    kept: list[OutcomeGroup] = []
    left = room - _STUB
    for group in brief.groups:
        part = _beginning(group, left - 1)
        if part:
            kept.append(part)
            left -= _size(asdict(part)) + 1
    listed = sum(group.count for group in kept)
    return replace(brief, groups=tuple(kept), more=brief.more + sum(group.count for group in brief.groups) - listed)


def _brief(recovery: Recovery) -> Recovery:
    found: dict[tuple[str, str], list[str]] = {}
    for group in recovery.groups:
        found.setdefault((group.outcome, without_details(group.why)), []).extend(job_ids.expand(group.jobs))
    groups = (OutcomeGroup(outcome, why, job_ids.fold(its), len(its)) for (outcome, why), its in found.items())
    return replace(recovery, groups=tuple(groups))


def _beginning(group: OutcomeGroup, room: int) -> OutcomeGroup | None:
    """As many of its jobs as fit."""
    left = room - _size(asdict(replace(group, jobs="")))
    some: list[str] = []
    for piece in job_ids.pieces(group.jobs):
        left -= len(piece.encode()) + 1
        if left < 0:
            break
        some.append(piece)
    jobs = ",".join(some)
    return replace(group, jobs=jobs, count=len(job_ids.expand(jobs))) if some else None


def _parsed(found: dict[str, object]) -> Recovery:
    groups = found["groups"]
    if not isinstance(groups, list):
        raise TypeError("no groups")
    return Recovery(
        str(found["time"]),
        int(str(found["epoch"])),
        tuple(
            OutcomeGroup(
                str(each["outcome"]), str(each["why"]), str(each["jobs"]), int(each["count"]), str(each["users"])
            )
            for each in groups
        ),
    )


def _write(epoch: Path, recoveries: list[Recovery]) -> None:
    file, half = epoch / FILE, epoch / f"{FILE}.half"
    texts = [json.dumps(asdict(each), indent=1) for each in recoveries[-KEPT:]]
    while len(texts) > 1 and sum(map(len, texts)) > _MOST:
        del texts[0]
    try:
        with half.open("w") as opened:
            opened.write("[" + ",\n".join(texts) + "]\n")
            opened.flush()
            os.fsync(opened.fileno())
        half.rename(file)
        sync(epoch)
    except OSError as error:
        log.say(f"{FILE} can't be written: {error}")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _size(value: object) -> int:
    return len(_compact(value))  # ASCII
