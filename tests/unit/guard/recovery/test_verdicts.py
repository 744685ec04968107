"""What becomes of which job: as a table, and as properties that hold whatever a log may say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.guard.recovery.journal import FROM_CRONTAB, Entry
from seltzer.guard.recovery.traces import Trace
from seltzer.guard.recovery.verdicts import UNKNOWN, JobVerdict, Unsaved, Waiting, of_known, of_unsaved

OWNER = 1000
ENTRY = Entry({"user_id": str(OWNER)})
WAITS = Trace(submitted=True)


def unsaved(trace: Trace = WAITS, entry: Entry | None = ENTRY, modified: bool = False) -> Unsaved:
    return Unsaved(7, trace, entry=entry, modified=modified)


def array(task: Trace, rest: Trace = WAITS) -> Unsaved:
    """`rest`: what the log says about the tasks that have no records of their own."""
    return Unsaved(7, rest, {"1": task}, entry=ENTRY)


CANCELLED = Trace(submitted=True, cancelled=True)


UNSAVED: dict[str, tuple[Unsaved, str, str]] = {
    "had not started": (unsaved(), "put-back", "put-back"),
    "had started": (unsaved(Trace(submitted=True, started="n1")), "held", "put-back-held"),
    "had been requeued": (unsaved(Trace(submitted=True, started="n1", requeued=True)), "held", "put-back-held"),
    "had ended": (unsaved(Trace(submitted=True, started="n1", ended=True, status=0)), "ran", "keep"),
    "had been cancelled": (unsaved(Trace(submitted=True, cancelled=True)), "cancelled", "none"),
    "its owner asked to end it": (unsaved(Trace(submitted=True, cancel_asked_by=OWNER)), "cancelled", "none"),
    "root asked to end it": (unsaved(Trace(submitted=True, cancel_asked_by=0)), "cancelled", "none"),
    "somebody asked to end it": (unsaved(Trace(submitted=True, cancel_asked_by=2000)), "held", "put-back-held"),
    "had been changed": (unsaved(Trace(submitted=True, modified=True)), "held", "put-back-held"),
    "the journal says it was changed": (unsaved(modified=True), "held", "put-back-held"),
    "had been released": (unsaved(Trace(submitted=True, held=False)), "held", "put-back-held"),
    "the log was too quiet": (unsaved(Trace(submitted=True, unseen=True)), "held", "put-back-held"),
    "a task had started": (array(Trace(started="n1")), "held", "put-back-held"),
    "a task had ended": (array(Trace(started="n1", ended=True)), "held", "put-back-held"),
    "a task had been cancelled": (array(Trace(cancelled=True)), "held", "put-back-held"),
    "cancelled but for a task that runs": (array(Trace(started="n1"), CANCELLED), "held", "put-back-held"),
    "to be cancelled, and a task runs": (
        array(Trace(started="n1"), Trace(submitted=True, cancel_asked_by=OWNER)),
        "held",
        "put-back-held",
    ),
    "cancelled but for a task that was requeued": (
        array(Trace(started="n1", ended=True, requeued=True, cancelled=True), CANCELLED),
        "held",
        "put-back-held",
    ),
    "cancelled after a task had ended": (array(Trace(started="n1", ended=True), CANCELLED), "cancelled", "none"),
    "cancelled, and a task ended later": (array(Trace(started="n1", finished=True), CANCELLED), "cancelled", "none"),
    "cancelled with a task that ran": (array(Trace(started="n1", cancelled=True), CANCELLED), "cancelled", "none"),
    "cancelled with a task that waited": (array(Trace(cancelled=True), CANCELLED), "cancelled", "none"),
    "no journal": (unsaved(entry=None), "kept", "keep"),
    "started, and no journal": (unsaved(Trace(submitted=True, started="n1"), entry=None), "kept", "keep"),
    "options that can't be kept": (unsaved(entry=Entry({}, "a het job")), "kept", "keep"),
    "from a crontab": (unsaved(Trace(), Entry({}, FROM_CRONTAB)), "requeued", "crontab"),
    "from a crontab, had ended": (
        unsaved(Trace(started="n1", ended=True), entry=Entry({}, FROM_CRONTAB)),
        "requeued",
        "crontab",
    ),
    "nobody was answered": (unsaved(Trace()), "kept", "keep"),
    "heterogeneous": (unsaved(Trace(submitted=True, heterogeneous=True)), "kept", "keep"),
    "script that isn't text": (Unsaved(7, WAITS, has_script=False, entry=ENTRY), "kept", "keep"),
    "no script": (Unsaved(7, WAITS, has_script=False, has_files=False), "lost", "none"),
    "an srun": (Unsaved(7, Trace(submitted=True, interactive=True), has_files=False), "lost", "none"),
}


REQUEUED = Trace(submitted=True, started="n1", ended=True, requeued=True, cancelled=True)
REQUEUEABLE: dict[str, tuple[Unsaved, str, str]] = {
    "had not started": (unsaved(), "put-back", "put-back"),
    "had started": (unsaved(Trace(submitted=True, started="n1")), "requeued", "put-back-requeued"),
    "had been requeued": (unsaved(REQUEUED), "requeued", "put-back-requeued"),
    "had ended": (unsaved(Trace(submitted=True, started="n1", ended=True, status=0)), "ran", "keep"),
    "its end was reported later": (unsaved(Trace(submitted=True, started="n1", finished=True)), "ran", "keep"),
    "had been released, and started": (
        unsaved(Trace(submitted=True, started="n1", held=False)),
        "requeued",
        "put-back-requeued",
    ),
    "its owner may have cancelled it": (
        unsaved(Trace(submitted=True, started="n1", cancel_asked_by=OWNER)),
        "held",
        "put-back-held",
    ),
    "had been changed": (unsaved(Trace(submitted=True, started="n1", modified=True)), "held", "put-back-held"),
    "the journal says it was changed": (
        unsaved(Trace(submitted=True, started="n1"), modified=True),
        "held",
        "put-back-held",
    ),
    "the log was too quiet": (unsaved(Trace(submitted=True, started="n1", unseen=True)), "held", "put-back-held"),
    "a task had started": (array(Trace(started="n1")), "held", "put-back-held"),
    "no journal": (unsaved(Trace(submitted=True, started="n1"), entry=None), "kept", "keep"),
}


@pytest.mark.parametrize("name", REQUEUEABLE)
def test_what_becomes_of_a_job_that_may_be_requeued(name: str) -> None:
    job, outcome, action = REQUEUEABLE[name]
    verdict = of_unsaved(replace(job, may_requeue=True), keep_jobs=True)
    assert (verdict.outcome, verdict.action) == (outcome, action)


@pytest.mark.parametrize("name", UNSAVED)
def test_what_becomes_of_a_job_that_slurmctld_forgot(name: str) -> None:
    job, outcome, action = UNSAVED[name]
    verdict = of_unsaved(job, keep_jobs=True)
    assert (verdict.outcome, verdict.action) == (outcome, action)
    assert verdict.why


@pytest.mark.parametrize(("rest", "why"), [
    (WAITS, "some of its tasks had started"),
    (CANCELLED, "some of its tasks had started, and the others been cancelled"),
])  # fmt: skip
def test_what_became_of_the_other_tasks_is_reported(rest: Trace, why: str) -> None:
    assert of_unsaved(array(Trace(started="n1"), rest), keep_jobs=True).why == why


def test_without_keep_jobs_the_script_is_kept_and_nothing_is_put_back() -> None:
    assert of_unsaved(unsaved(), keep_jobs=False) == JobVerdict("kept", "keep", "controller.keepJobs is off")


STARTED, ENDED = Trace(started="n1"), Trace(started="n1", ended=True, status=256)
KNOWN: dict[str, tuple[Trace, str, str | None]] = {
    "saved as waiting, had started": (STARTED, "PENDING", "hold"),
    "saved as waiting, had ended": (ENDED, "PENDING", "hold"),
    "saved as waiting, had been requeued": (Trace(started="n1", requeued=True), "PENDING", "hold"),
    "saved as waiting, had been cancelled": (Trace(cancelled=True), "PENDING", "cancel"),
    "saved as waiting, its owner asked to end it": (Trace(cancel_asked_by=OWNER), "PENDING", "cancel"),
    "saved as waiting, somebody asked to end it": (Trace(cancel_asked_by=2000), "PENDING", None),
    "saved as waiting, had been held": (Trace(held=True), "PENDING", "hold"),
    "saved as waiting, had been released": (Trace(held=False), "PENDING", None),
    "saved as waiting, waits": (WAITS, "PENDING", None),
    "saved as running, runs": (STARTED, "RUNNING", None),
    "saved as running, had ended": (ENDED, "RUNNING", "complete"),
    "saved as running, had ended and been requeued": (
        Trace(started="n1", ended=True, status=0, requeued=True, ended_itself=True),
        "RUNNING",
        "complete",
    ),
    "saved as running, had been requeued": (Trace(started="n1", requeued=True), "RUNNING", None),
    "saved as running, had been cancelled": (Trace(started="n1", cancelled=True), "RUNNING", "cancel"),
    "saved as running, cancelled, requeued": (Trace(started="n1", cancelled=True, requeued=True), "RUNNING", None),
    "saved as running, was sent a signal": (Trace(started="n1"), "RUNNING", None),
    "saved as ended": (ENDED, "COMPLETED", None),
    "saved as cancelled": (Trace(cancelled=True), "CANCELLED", None),
}


FREE = Waiting(may_requeue=True, awaited=False)
ONCE = Waiting(awaited=False)
CRON = replace(FREE, from_crontab=True)
FINISHED = Trace(started="n1", status=0, finished=True)
PENDING: dict[str, tuple[Trace, Waiting, str | None]] = {
    "had started": (STARTED, FREE, "requeue"),
    "had started, with --no-requeue": (STARTED, ONCE, "hold"),
    "had started, and Slurm can't be asked": (STARTED, UNKNOWN, "hold"),
    "had started, and others depend on it": (STARTED, replace(FREE, awaited=True), "requeue"),
    "had started, and somebody asked to end it": (Trace(started="n1", cancel_asked_by=OWNER), FREE, "hold"),
    "had started while the log was too quiet": (Trace(started="n1", unseen=True), FREE, "hold"),
    "had ended": (ENDED, FREE, "retire"),
    "had ended, with --no-requeue": (ENDED, ONCE, "retire"),
    "had ended, and others depend on it": (ENDED, replace(FREE, awaited=True), "hold"),
    "its end was reported later": (FINISHED, FREE, "retire"),
    "its end was reported after it had been requeued": (replace(REQUEUED, finished=True), FREE, "retire"),
    "had been requeued, which was not saved": (REQUEUED, FREE, "requeue"),
    "had been requeued, and Slurm can't be asked": (REQUEUED, UNKNOWN, "hold"),
    "had been requeued by the guard": (REQUEUED, replace(FREE, requeued=True), None),
    "waits": (WAITS, FREE, None),
    "from a crontab, waits": (WAITS, CRON, None),
    "from a crontab, had started": (STARTED, CRON, "crontab"),
    "from a crontab, had ended": (ENDED, CRON, "crontab"),
    "from a crontab, had ended and waits for its next time": (REQUEUED, CRON, "crontab"),
    "from a crontab, had been cancelled": (CANCELLED, CRON, "crontab"),
}


@pytest.mark.parametrize("name", PENDING)
def test_what_becomes_of_a_pending_job(name: str) -> None:
    trace, waiting, action = PENDING[name]
    verdict = of_known(trace, "PENDING", OWNER, waiting=waiting)
    assert (verdict.action if verdict else None) == action


def test_where_lines_are_missing_nothing_is_requeued() -> None:
    verdict = of_known(STARTED, "PENDING", OWNER, "lines are missing", FREE)
    assert verdict and verdict.action == "hold"


def test_where_lines_are_missing_a_job_of_a_crontab_waits_for_its_next_time() -> None:
    verdict = of_known(Trace(), "PENDING", OWNER, "lines are missing", CRON)
    assert verdict and verdict.action == "crontab"


@pytest.mark.parametrize("name", KNOWN)
def test_what_becomes_of_a_job_that_slurmctld_remembers_wrongly(name: str) -> None:
    trace, state, action = KNOWN[name]
    verdict = of_known(trace, state, OWNER)
    assert (verdict.action if verdict else None) == action


@pytest.mark.parametrize(("status", "words"), [(0, "exit code 0"), (768, "exit code 3"), (9, "signal 9")])
def test_how_a_job_ended_is_reported(status: int, words: str) -> None:
    verdict = of_known(Trace(started="n1", ended=True, status=status), "RUNNING", OWNER)
    assert verdict and words in verdict.why


traces = st.builds(
    Trace,
    submitted=st.booleans(),
    heterogeneous=st.booleans(),
    interactive=st.booleans(),
    started=st.sampled_from(["", "n1"]),
    ended=st.booleans(),
    status=st.none() | st.integers(0, 65535),
    requeued=st.booleans(),
    cancelled=st.booleans(),
    cancel_asked_by=st.none() | st.sampled_from([0, OWNER, 2000]),
    modified=st.booleans(),
    held=st.none() | st.booleans(),
    unseen=st.booleans(),
    finished=st.booleans(),
)
waitings = st.builds(Waiting, st.booleans(), st.booleans(), st.booleans(), st.booleans())
jobs = st.builds(
    Unsaved,
    st.just(7),
    traces,
    st.dictionaries(st.sampled_from(["1", "2", "[3-4]"]), traces, max_size=2),
    has_script=st.booleans(),
    has_files=st.booleans(),
    may_requeue=st.booleans(),
    entry=st.none() | st.just(ENTRY) | st.just(Entry({}, "why")),
    modified=st.booleans(),
)


@given(jobs, st.booleans())
def test_only_what_has_certainly_never_run_runs_by_itself(job: Unsaved, keep_jobs: bool) -> None:
    if of_unsaved(job, keep_jobs).action == "put-back":
        everyone = [job.trace, *job.tasks.values()]
        assert not any(
            each.started or each.ended or each.cancelled or each.requeued or each.unseen for each in everyone
        )
        assert job.trace.submitted and job.entry and not job.entry.cannot and keep_jobs and not job.modified


@given(traces, st.sampled_from(["PENDING", "RUNNING", "COMPLETED"]), waitings)
def test_what_is_known_to_have_run_is_never_left_to_run_again(trace: Trace, state: str, waiting: Waiting) -> None:
    verdict = of_known(trace, state, OWNER, waiting=waiting)
    if state == "PENDING" and (trace.ran or trace.finished):
        assert verdict and verdict.action in ("hold", "cancel", "retire", "requeue", "crontab")
    if state == "COMPLETED":
        assert verdict is None


@given(
    traces, st.sampled_from(["PENDING", "RUNNING", "COMPLETED"]), waitings, st.sampled_from(["", "lines are missing"])
)
def test_only_what_may_be_requeued_and_has_not_ended_is_requeued(
    trace: Trace, state: str, waiting: Waiting, unlogged: str
) -> None:
    verdict = of_known(trace, state, OWNER, unlogged, waiting)
    if verdict and verdict.action == "requeue":
        assert state == "PENDING" and waiting.may_requeue and not unlogged
        assert trace.started and not trace.finished and not (trace.ended and not trace.requeued)
    if verdict and verdict.action == "retire":
        assert state == "PENDING" and not waiting.awaited and (trace.ended or trace.finished)


@given(jobs, st.booleans())
def test_an_array_of_which_a_task_may_run_does_not_count_as_cancelled(job: Unsaved, keep_jobs: bool) -> None:
    if any(each.started and not (each.ended or each.finished or each.cancelled) for each in job.tasks.values()):
        assert of_unsaved(job, keep_jobs).outcome != "cancelled"


@given(jobs, st.booleans())
def test_only_what_may_be_requeued_is_put_back_to_start_over(job: Unsaved, keep_jobs: bool) -> None:
    if of_unsaved(job, keep_jobs).action == "put-back-requeued":
        assert job.may_requeue and keep_jobs and not job.tasks and not job.modified
        assert not job.trace.finished and not (job.trace.ended and not job.trace.requeued)


@given(jobs, st.booleans())
def test_everybody_is_told_why(job: Unsaved, keep_jobs: bool) -> None:
    verdict = of_unsaved(job, keep_jobs)
    assert verdict.why and "None" not in verdict.why
