"""Finds what the last slurmctld may not have saved, before the next one starts and removes it."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.recovery import history, spool, traces
from seltzer.guard.recovery.history import MARGIN, History
from seltzer.guard.recovery.traces import Evidence
from seltzer.guard.recovery.verdicts import CUT, FULL, UNSEEN, may_have_started
from seltzer.guard.state import continuity, log_reserve

_CLEAN = "seltzer.clean"
_FLOOR = "seltzer.recovered"
_NOW = "seltzer.now"
_SINCE = "since"
_UNLOGGED = "unlogged"


@dataclass(frozen=True)
class Findings:
    """Where to look for unsaved jobs. Everything is empty after a slurmctld that exited cleanly."""

    epoch: Path
    since: float | None = None
    """The log time from which on changes may be unsaved; None means from the beginning."""
    jobs: frozenset[int] = frozenset()
    """Jobs whose directories are secured. Most of them have been saved."""
    floor: str = ""
    """The log line up to which everything has been repaired and saved; empty if there is none."""
    first_job_id: int = 0
    """No ID below this may be given to another job; 0 if all may."""
    needs_repair: bool = False
    """Whether nothing may be scheduled until the repair is done."""
    unlogged: str = ""
    """Why jobs may have started and ended without a line in slurmctld's log; empty if they can't have."""


def find(epoch: Path) -> Findings:
    """Raises OSError if what was found can't be secured."""
    unfinished = _since(epoch)
    saved = continuity.saved(epoch)
    if unfinished is None and saved and _text(epoch / _CLEAN) == str(saved):
        return Findings(epoch)
    if not saved and not any(epoch.glob("hash.?")):
        return Findings(epoch)  # a new cluster
    since, made = _window(epoch, saved)
    floor = _text(epoch / _FLOOR)
    if unfinished is not None:
        # An earlier repair was cut short: what it had to look at is looked at again.
        since = None if since is None or unfinished == -math.inf else min(since, unfinished)
    log_part = history.read(epoch, since, floor)
    evidence = traces.read(log_part.lines, log_part.older)
    submitted = {job for (job, task), trace in evidence.jobs.items() if trace.submitted and not task}
    new = spool.newer(epoch, made) | {job for job in submitted if spool.directory(epoch, job).is_dir()}
    missing = _unlogged_before(epoch) or may_have_started(unlogged(epoch, log_part, evidence, made))
    if not (new or evidence.jobs or missing or unfinished is not None):
        return Findings(epoch)
    spool.save(epoch, new)
    _remember(epoch, since)
    if missing:
        (epoch / spool.RECOVERY / _UNLOGGED).write_text(missing)
    jobs = frozenset(spool.saved(epoch))
    highest = max([evidence.highest, *(job for job in jobs if job < traces.HIGHEST)])
    return Findings(epoch, since, jobs, floor, highest + 1, needs_repair=True, unlogged=missing)


def mark_started(epoch: Path) -> None:
    """slurmctld is about to start: from now on the state isn't known to be up to date. Raises OSError."""
    (epoch / _CLEAN).unlink(missing_ok=True)


def mark_clean_exit(epoch: Path, before: int) -> None:
    """slurmctld exited with code 0 on request: everything is saved, if the state is newer than `before`."""
    saved = continuity.saved(epoch)
    if saved and saved != before:
        _write(epoch / _CLEAN, str(saved))


def mark_repaired(epoch: Path, until: str) -> None:
    """Everything that was found up to this log line has been repaired and saved."""
    if until:
        _write(epoch / _FLOOR, until)
    spool.forget(epoch)


def _window(epoch: Path, saved: int) -> tuple[float | None, float]:
    """From when on changes may be unsaved: in the log's time, and in the volume's."""
    if not saved:
        return None, -math.inf
    made = saved / 1e9 - MARGIN
    since = history.in_log_time(epoch, made)
    if since is not None and (saved > _now(epoch) or history.was_set_back(epoch)):
        # The clock was set back, so the state seems newer than what happened after it.
        last = history.last_time(epoch)
        since = min(since, (since if last is None else last) - MARGIN)
    return since, made


def unlogged(epoch: Path, part: History, evidence: Evidence, made: float) -> str:
    """Why lines may be missing in this part of the log; empty if none are. It begins at `made` in the volume's time."""
    if log_reserve.unlogged_since(epoch, made):
        return FULL
    return ("" if part.whole else CUT) or (UNSEEN if evidence.unseen else "")


def _unlogged_before(epoch: Path) -> str:
    """The reason that an unfinished repair recorded; empty if there is none."""
    before = epoch / spool.RECOVERY / _UNLOGGED
    return (_text(before) or may_have_started(FULL)) if before.exists() else ""


def _since(epoch: Path) -> float | None:
    """From when on an unfinished repair had to look; None if there is none."""
    if not (epoch / spool.RECOVERY).is_dir():
        return None
    try:
        found = json.loads((epoch / spool.RECOVERY / _SINCE).read_text())
        return -math.inf if found is None else float(found)
    except (OSError, ValueError, TypeError):
        return -math.inf


def _remember(epoch: Path, since: float | None) -> None:
    _write(epoch / spool.RECOVERY / _SINCE, json.dumps(since))


def _now(epoch: Path) -> int:
    """The volume's time in nanoseconds."""
    file = epoch / _NOW
    try:
        file.touch()
        return file.stat().st_mtime_ns
    except OSError:
        return time.time_ns()


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _write(file: Path, text: str) -> None:
    half = file.with_name(f"{file.name}.half")
    try:
        half.write_text(text)
        half.rename(file)
    except OSError as error:
        log.say(f"{file.name} can't be written: {error}")  # then the next start looks at more than it has to
