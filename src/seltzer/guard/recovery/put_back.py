"""Puts jobs that slurmctld has forgotten back into its queue, or keeps them for a person."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from seltzer.guard import log
from seltzer.guard.recovery import directives, holding, journal, recoveries, requeues, spool
from seltzer.guard.recovery.common import DYING, Controller, RepairReport, Submitter
from seltzer.guard.recovery.findings import Findings
from seltzer.guard.recovery.holding import Todo
from seltzer.guard.recovery.journal import Entry, Journal
from seltzer.guard.recovery.keeper import JobKeeper
from seltzer.guard.recovery.slurm import DUPLICATE, RESTART_DELAY, Cancelled, SlurmError
from seltzer.guard.recovery.traces import Evidence, Trace
from seltzer.guard.recovery.verdicts import JobVerdict, Outcome, Unsaved, of_unsaved
from seltzer.wire import environment
from seltzer.wire.squeue import QueueEntry

_JOB_ID = re.compile(r"\d{1,10}")
_CHECK = "first check whether it is in the queue, which is unknown: it could not be put back"


def put_back(
    known: set[int],
    evidence: Evidence,
    found: Findings,
    slurm: Controller,
    keep_jobs: bool,
    recovered: RepairReport,
    keeper: JobKeeper,
) -> list[Todo]:
    """Handles the jobs that slurmctld doesn't know, in the order of their IDs, since they may depend on each other.

    Reports each of them but those that it returns: their crontabs have to be saved again. A failure with one job
    doesn't affect the others.
    """
    submitted = {job for (job, task), trace in evidence.jobs.items() if trace.submitted and not task}
    missing = sorted((found.jobs | submitted) - known)
    if not missing:
        return []
    files = {job: spool.read(found.epoch, job) for job in missing if job in found.jobs}
    read = journal.read(found.epoch, _keys(files, found))
    tasks = evidence.by_array()
    settled: list[_Settled] = []
    started: list[_Settled] = []
    held: list[str] = []
    by_default = slurm.requeues_by_default()
    rest = slurm.rest()
    try:
        for job in missing:
            unsaved = _unsaved(job, evidence, tasks.get(job, {}), files.get(job), read)
            unsaved = replace(unsaved, unlogged=found.unlogged, may_requeue=_may_requeue(unsaved.entry, by_default))
            each = _settle(unsaved, files.get(job), found, rest, slurm, keep_jobs)
            if each.is_back:  # reported at once: if the repair is cut short, nothing else ever names this job
                recovered.add(str(job), unsaved.owner, each.verdict.outcome, each.verdict.why)
            else:
                settled.append(each)
            if each.verdict.action == "put-back-requeued":
                started.append(each)
            if each.verdict.action == "put-back-held":
                held.append(str(job))
    finally:
        rest.close()
    _check_queue(settled, files, found, slurm)
    # Only now: a repair that is cancelled earlier must leave nothing in `lost` that was never reported.
    reported = {job.id for job in recovered.jobs} | recoveries.named(found.epoch)
    for each in settled:
        if each.is_from_crontab:
            continue
        unsaved, verdict = each.unsaved, each.verdict
        folder = None if unsaved.has_files else spool.kept(found.epoch, unsaved.id)
        if not folder:
            _report(unsaved, verdict, recovered, keeper)
        elif str(unsaved.id) not in reported:
            # An earlier start kept it, but may have been killed before it reported that.
            outcome: Outcome = "ran" if verdict.outcome == "ran" else "kept"
            recovered.add(str(unsaved.id), None, outcome, spool.why_kept(folder) or verdict.why)
    requeues.remember(found, held)
    # Those that are in the queue now.
    todo = [_as_todo(each) for each in started if each.verdict.outcome == "requeued"]
    holding.hold(requeues.requeue(todo, found, slurm, recovered, late=True), keeper, slurm, recovered)
    return [_as_todo(each) for each in settled if each.is_from_crontab]


def awaited_by_forgotten(known: set[int], found: Findings) -> set[int]:
    """The jobs on which jobs depend that slurmctld doesn't know yet.

    It may contain too many, never too few: it takes the minutes of a delay in a dependency for a job.
    """
    files = {job: spool.read(found.epoch, job) for job in found.jobs - known}
    if not files:
        return set()
    entries = journal.read(found.epoch, _keys(files, found)).entries.values()
    return {int(job) for each in entries for job in _JOB_ID.findall(str(each.options.get("dependency")))}


def _as_todo(settled: _Settled) -> Todo:
    job = settled.unsaved.id
    listed = QueueEntry(job, "", job, "PENDING", settled.unsaved.owner or 0, held=False)
    return str(job), listed, settled.verdict


def _may_requeue(entry: Entry | None, by_default: bool) -> bool:
    return entry is not None and entry.options.get("requeue", by_default) is True


def _report(unsaved: Unsaved, verdict: JobVerdict, recovered: RepairReport, keeper: JobKeeper) -> None:
    why = verdict.why
    if verdict.action == "keep":
        why = keeper.keep(unsaved.id, why, unsaved.entry.options if unsaved.entry else None)
    recovered.add(str(unsaved.id), unsaved.owner, verdict.outcome, why)


def _keys(files: Mapping[int, spool.Files], found: Findings) -> set[str]:
    """The journal's keys of these jobs. A key that two jobs share is dropped: one would get the other's options."""
    others = (spool.key(found.epoch, job) for job in found.jobs if job not in files)
    count = Counter(chain((each.key for each in files.values()), others))
    return {each.key for each in files.values() if each.key and count[each.key] == 1}


def _unsaved(
    job: int, evidence: Evidence, tasks: dict[str, Trace], files: spool.Files | None, read: Journal
) -> Unsaved:
    complete = files is not None and files.script is not None and files.environment is not None
    entry: Entry | None = read.entries.get(files.key) if files else None
    return Unsaved(job, evidence.of(job), tasks, complete, files is not None, entry, job in read.modified)


@dataclass
class _Settled:
    unsaved: Unsaved
    verdict: JobVerdict
    unsure: str = ""
    """The error, if the job was submitted and it is unknown whether it is in the queue."""

    @property
    def is_back(self) -> bool:
        """Whether slurmctld has accepted it."""
        return self.verdict.outcome in ("put-back", "requeued", "held") and not self.is_from_crontab and not self.unsure

    @property
    def is_from_crontab(self) -> bool:
        return self.verdict.action == "crontab"


def _settle(
    unsaved: Unsaved, files: spool.Files | None, found: Findings, rest: Submitter, slurm: Controller, keep_jobs: bool
) -> _Settled:
    """Decides what becomes of the job. If it is to be put back, that has been done on return."""
    verdict = of_unsaved(unsaved, keep_jobs)
    if files is None or verdict.action not in ("put-back", "put-back-held", "put-back-requeued"):
        return _Settled(unsaved, verdict)
    try:
        return _put(unsaved, verdict, files, found, rest, slurm)
    except Cancelled:
        raise
    except Exception as error:  # unexpected
        return _Settled(unsaved, verdict, repr(error))


def _check_queue(
    settled: Sequence[_Settled], files: Mapping[int, spool.Files], found: Findings, slurm: Controller
) -> None:
    """Check which of the jobs in doubt are in the queue: a person would run the kept ones again."""
    unsure = [each for each in settled if each.unsure]
    if not unsure:
        return
    try:
        queue = {each.job for each in slurm.queue()}
    except SlurmError as error:
        log.say(f"can't tell which of the jobs are in the queue: {error}")
        queue = None
    for each in unsure:
        if queue is None:
            each.verdict = JobVerdict("kept", "keep", f"{_CHECK}: {each.unsure}")
        elif (job := each.unsaved.id) not in queue or not spool.is_same(found.epoch, job, files[job]):
            each.verdict = _not_put(each.unsure)


def _not_put(why: object) -> JobVerdict:
    return JobVerdict("kept", "keep", f"it could not be put back: {why}")


def _put(
    unsaved: Unsaved, verdict: JobVerdict, files: spool.Files, found: Findings, rest: Submitter, slurm: Controller
) -> _Settled:
    """Put it back. With a dependency that Slurm refuses, it is put back held and without it; a refused job is kept."""
    assert unsaved.entry and files.script is not None
    without = directives.without(files.script)
    verdict = replace(verdict, why=f"{verdict.why}{without}")
    options = {**unsaved.entry.options, "job_id": unsaved.id}
    # job_submit.lua sees the first variable of a name, whatever the user or an earlier put-back has left.
    options["environment"] = [f"{environment.PUT_BACK}={files.key}", *(files.environment or ())]
    if verdict.action == "put-back-held":
        options |= {"hold": True, "admin_comment": verdict.why}
    if verdict.action == "put-back-requeued":
        # What it depended on was over when it started. Its first run has to be over before the next one.
        begin = {"set": True, "infinite": False, "number": int(time.time()) + RESTART_DELAY}
        options |= {"begin_time": begin, "admin_comment": verdict.why}
        options.pop("dependency", None)

    def submit(options: dict[str, Any]) -> tuple[SlurmError | None, bool]:
        error, asked = _submit(options, files.script or "", rest, slurm)
        if not error or error.number != DUPLICATE:
            return error, asked
        if spool.is_same(found.epoch, unsaved.id, files):
            return None, True  # an earlier try did it
        return SlurmError("another job was given its ID", DUPLICATE), asked

    error, asked = submit(options)
    if error and error.refused and "dependency" in options:
        why = f"its dependency {options.pop('dependency')} was refused: {error}{without}"
        verdict = JobVerdict("held", "none", why)
        error, asked = submit({**options, "hold": True, "admin_comment": why})
    if not error:
        return _Settled(unsaved, verdict)
    unsure = asked and not error.refused
    return _Settled(unsaved, verdict, str(error)) if unsure else _Settled(unsaved, _not_put(error))


def _submit(options: dict[str, Any], script: str, rest: Submitter, slurm: Controller) -> tuple[SlurmError | None, bool]:
    """Returns the error, unless the job is in the queue now, and whether slurmctld may have been asked all the same.

    DUPLICATE means that a job with this ID exists: from an earlier attempt, or another job that was given the ID.
    """
    asked = False
    for attempt in (1, 2):
        try:
            rest.submit(options, script)
        except SlurmError as error:
            asked = asked or not error.unasked
            if error.refused or attempt == 2:
                return error, asked
            slurm.pause(DYING)
        else:
            break
    return None, True
