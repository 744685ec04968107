"""The jobs that slurmctld doesn't know any more go back into its queue, or are kept for a person."""

from __future__ import annotations

from typing import Any

from seltzer.guard.recovery import journal, spool
from seltzer.guard.recovery.common import DYING, Controller, Recovered, Submitter
from seltzer.guard.recovery.found import Found
from seltzer.guard.recovery.journal import Entry, Journal
from seltzer.guard.recovery.slurm import DUPLICATE, SlurmError
from seltzer.guard.recovery.traces import Evidence, Trace
from seltzer.guard.recovery.verdicts import Unsaved, Verdict, of_unsaved


def put_back(
    known: set[int], evidence: Evidence, found: Found, slurm: Controller, keep_jobs: bool, recovered: Recovered
) -> None:
    """The jobs that slurmctld doesn't know, in the order of their IDs, since they may depend on each other."""
    submitted = {job for (job, task), trace in evidence.jobs.items() if trace.submitted and not task}
    missing = sorted((found.jobs | submitted) - known)
    if not missing:
        return
    files = {job: spool.read(found.epoch, job) for job in missing if job in found.jobs}
    read = journal.read(found.epoch, {each.key for each in files.values() if each.key})
    tasks = evidence.by_array()
    rest = slurm.rest()
    try:
        for job in missing:
            if job not in files and spool.is_kept(found.epoch, job):
                continue  # an earlier start has told it
            unsaved = _unsaved(job, evidence, tasks.get(job, {}), files.get(job), read)
            verdict = of_unsaved(unsaved, keep_jobs)
            if verdict.action in ("put-back", "put-back-held"):
                verdict = _put(unsaved, verdict, files[job], rest, slurm)
            if verdict.action == "keep":
                spool.keep(found.epoch, job, verdict.why, unsaved.entry.options if unsaved.entry else None)
            recovered.tell(str(job), unsaved.owner, verdict.outcome, verdict.why)
    finally:
        rest.close()


def _unsaved(
    job: int, evidence: Evidence, tasks: dict[str, Trace], files: spool.Files | None, read: Journal
) -> Unsaved:
    complete = files is not None and files.script is not None and files.environment is not None
    entry: Entry | None = read.entries.get(files.key) if files else None
    return Unsaved(job, evidence.of(job), tasks, complete, files is not None, entry, job in read.modified)


def _put(unsaved: Unsaved, verdict: Verdict, files: spool.Files, rest: Submitter, slurm: Controller) -> Verdict:
    """Put it back. One that depends on a job that is gone is held without that; what Slurm refuses is kept."""
    assert unsaved.entry and files.script is not None
    options = {**unsaved.entry.options, "job_id": unsaved.id}
    # The first of a name is what job_submit.lua sees, whatever the user or an earlier put-back has left.
    options["environment"] = [f"SELTZER_PUT_BACK={files.key}", *(files.environment or ())]
    if verdict.action == "put-back-held":
        options |= {"hold": True, "admin_comment": verdict.why}
    error = _submit(options, files.script, rest, slurm)
    if error and error.refused and "dependency" in options:
        why = f"its dependency {options.pop('dependency')} was refused: {error}"
        verdict = Verdict("held", "none", why)
        error = _submit({**options, "hold": True, "admin_comment": why}, files.script, rest, slurm)
    return Verdict("kept", "keep", f"it could not be put back: {error}") if error else verdict


def _submit(options: dict[str, Any], script: str, rest: Submitter, slurm: Controller) -> SlurmError | None:
    """What went wrong, if it isn't in the queue now."""
    for attempt in (1, 2):
        try:
            rest.submit(options, script)
        except SlurmError as error:
            if error.number == DUPLICATE:
                return None  # an earlier try did it
            if error.refused or attempt == 2:
                return error
            slurm.pause(DYING)
        else:
            return None
    return None
