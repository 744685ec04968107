"""What slurmctld's log says about jobs, with lines of a real one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.guard.recovery import traces
from seltzer.guard.recovery.traces import Trace

SUBMIT = "_slurm_rpc_submit_batch_job: JobId=7 SLUID=s651M7H5H36Y00 InitPrio=1 usec=256"
START = "sched: Allocate JobId=7 NodeList=n1 #CPUs=1 Partition=cpu"
END = "_job_complete: JobId=7 done"
ASK = "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=7 uid 1000"

UNKNOWN_END = "job_complete: invalid JobId=7 SLUID=s651M7H5H36Y00"
UNREACHED = "agent/is_node_resp: node:n1 RPC:REQUEST_BATCH_JOB_LAUNCH : Communication connection failure"
# Behind it if it was a command that reported the end.
COMMAND = "_slurm_rpc_complete_job_allocation: JobId=7 error Invalid job id specified"
# What the guard's message to slurmctld leaves in its log.
REQUEUE = [
    START,
    "error: slurmd error running JobId=7 on node(s)=(null): Unspecified error",
    "_job_complete: JobId=7 cancelled by interactive user",
    "_job_complete: requeue JobId=7 per user/system request",
    END,
]

CASES: dict[str, tuple[list[str], Trace]] = {
    "submitted": ([SUBMIT], Trace(submitted=True)),
    "started by the main scheduler": ([SUBMIT, START], Trace(submitted=True, started="n1")),
    "started by backfill": (
        ["sched/backfill: _start_job: HETJOB: Started JobId=7 in cpu on n[1-2]"],
        Trace(started="n[1-2]"),
    ),
    "found running by the next slurmctld": (
        [SUBMIT, "error: Registered PENDING JobId=7 StepId=7.batch on node n1"],
        Trace(submitted=True, started="n1"),
    ),
    "found running while it is put back": (
        [START, "Requeuing JobId=7", "error: Registered PENDING JobId=7 StepId=7.batch on node n1"],
        Trace(started="n1", requeued=True),
    ),
    "its node was configured": (
        ["prolog_running_decr: Configuration for JobId=7 is complete"],
        Trace(started="a node"),
    ),
    "ended well": ([START, "_job_complete: JobId=7 WEXITSTATUS 0", END], Trace(started="n1", ended=True, status=0)),
    "failed": ([START, "_job_complete: JobId=7 WEXITSTATUS 3", END], Trace(started="n1", ended=True, status=768)),
    "killed": ([START, "_job_complete: JobId=7 WTERMSIG 15", END], Trace(started="n1", ended=True, status=15)),
    "requeued": (
        [START, "_job_complete: requeue JobId=7 per user/system request", END, "Requeuing JobId=7"],
        Trace(started="n1", ended=True, requeued=True),
    ),
    "requeued, since a node could not run it": (
        [START, "_job_complete: JobId=7 WEXITSTATUS 1", "_job_complete: requeue JobId=7 per user/system request", END],
        Trace(started="n1", ended=True, status=256, requeued=True),
    ),
    "a run of a crontab, which waits for its next time": (
        [START, "_job_complete: JobId=7 WEXITSTATUS 0", END, "Requeuing JobId=7"],
        Trace(started="n1", ended=True, status=0, requeued=True, ended_itself=True),
    ),
    "its node failed before it was there, and slurmctld reports the end of that start to itself": (
        [START, UNREACHED, "requeue job JobId=7 due to failure of node n1", "Requeuing JobId=7", UNKNOWN_END],
        Trace(started="n1", requeued=True),
    ),
    "then a node reports the end of an earlier run": (
        [START, UNREACHED, "Requeuing JobId=7", UNKNOWN_END, UNKNOWN_END],
        Trace(started="n1", requeued=True, finished=True),
    ),
    "another node failed": (
        [START, UNREACHED.replace("n1", "n2"), "Requeuing JobId=7", UNKNOWN_END],
        Trace(started="n1", requeued=True, finished=True),
    ),
    "the first of its nodes failed before it was there": (
        [START.replace("n1", "n[1-3]"), UNREACHED, "Requeuing JobId=7", UNKNOWN_END],
        Trace(started="n[1-3]", requeued=True),
    ),
    "requeued, and started again": ([START, "Requeuing JobId=7", START], Trace(started="n1")),
    "a requeue that was refused": (
        [START, "_slurm_rpc_requeue: Requeue of JobId=7 returned an error: Job is pending execution"],
        Trace(started="n1"),
    ),
    "cancelled while it waited": ([ASK, "job_signal: 9 of pending JobId=7 successful"], Trace(cancelled=True)),
    "cancelled while it ran": (
        [START, ASK, "job_signal: 9 of running JobId=7 successful 0x8004"],
        Trace(started="n1", cancelled=True),
    ),
    "asked to end, and no answer": ([ASK], Trace(cancel_asked_by=1000)),
    "asked to end by somebody who may not": (
        [
            ASK,
            "error: Security violation, REQUEST_KILL_JOB RPC for JobId=7 from uid 1000",
            "_slurm_rpc_kill_job: job_str_signal() uid=1000 JobId=7 sig=9 returned: Access/permission denied",
        ],
        Trace(),
    ),
    "sent another signal": (
        [START, ASK, "job_signal: 18 of running JobId=7 successful 0x400001"],
        Trace(started="n1"),
    ),
    "its end was reported while it was pending": (
        [START, "_job_complete: JobId=7 WEXITSTATUS 3", "_job_complete: JobId=7 cancelled by interactive user"],
        Trace(started="n1", status=768, finished=True),
    ),
    "its end was reported after it had been requeued": (
        [*REQUEUE, "_job_complete: JobId=7 WTERMSIG 9", "_job_complete: JobId=7 cancelled by interactive user"],
        Trace(started="n1", ended=True, requeued=True, cancelled=True, status=9, finished=True),
    ),
    "its end was reported right before it was requeued": (
        [
            "_job_complete: JobId=7 WEXITSTATUS 0",
            "_job_complete: JobId=7 cancelled by interactive user",
            *REQUEUE[1:],
        ],
        Trace(ended=True, requeued=True, cancelled=True, status=0, finished=True),
    ),
    "its end was reported while it was unknown": (
        [START, UNKNOWN_END],
        Trace(started="n1", finished=True),
    ),
    "somebody reported its end before it was there": ([UNKNOWN_END, SUBMIT], Trace(submitted=True)),
    "somebody reported its end while it was unknown": ([START, UNKNOWN_END, COMMAND], Trace(started="n1")),
    "two reported its end at once while it was unknown": (
        [START, UNKNOWN_END, UNKNOWN_END, COMMAND, COMMAND],
        Trace(started="n1"),
    ),
    "somebody and its node reported its end": (
        [START, UNKNOWN_END, UNKNOWN_END, COMMAND],
        Trace(started="n1", finished=True),
    ),
    "its node and somebody reported its end, while it was pending": (
        [
            START,
            "_job_complete: JobId=7 WEXITSTATUS 3",
            "_job_complete: JobId=7 cancelled by interactive user",
            UNKNOWN_END,
            COMMAND,
        ],
        Trace(started="n1", status=768, finished=True),
    ),
    "the kernel killed it while it was pending": (
        [START, "_job_complete: JobId=7 OOM failure", "_job_complete: JobId=7 cancelled by interactive user"],
        Trace(started="n1", status=253, finished=True),
    ),
    "requeued by the guard": (REQUEUE, Trace(started="n1", ended=True, requeued=True, cancelled=True)),
    "requeued by the guard, and started": ([*REQUEUE, START], Trace(started="n1")),
    "requeued by the guard, and cancelled": (
        [*REQUEUE, "job_signal: 9 of pending JobId=7 successful"],
        Trace(started="n1", ended=True, cancelled=True),
    ),
    "an salloc that was given up": (
        [
            "sched: _slurm_rpc_allocate_resources JobId=7 NodeList=n1 usec=1",
            "_job_complete: JobId=7 WTERMSIG 126",
            "_job_complete: JobId=7 cancelled by interactive user",
            END,
        ],
        Trace(submitted=True, interactive=True, started="n1", ended=True, cancelled=True, status=126),
    ),
    "cancelled for its dependency": (
        ["_kill_dependent: Job dependency can't be satisfied, cancelling JobId=7"],
        Trace(cancelled=True),
    ),
    "cancelled for its deadline": (
        ["_job_deadline: JobId=7 with time_limit 60 exceeded deadline 2026-11-16T03:13:36 and cancelled"],
        Trace(cancelled=True),
    ),
    "preempted": ([START, "preempted JobId=7 has been requeued"], Trace(started="n1", requeued=True)),
    "failed to start": ([START, "Attempting to requeue failed job JobId=7"], Trace(started="n1", requeued=True)),
    "requeued at once": (
        [START, "job_complete: JobId=7 starting expedited requeue"],
        Trace(started="n1", requeued=True),
    ),
    "started as part of another one": (["JobId=7 allocated resources: NodeList=n1"], Trace(started="n1")),
    "changed": (["_slurm_rpc_update_job: complete JobId=7 uid=1000 usec=130"], Trace(modified=True)),
    "held": (["sched: _hold_job_rec: hold on JobId=7 by uid 1000"], Trace(held=True)),
    "released, so it may start again": (
        [START, END, "sched: _release_job_rec: release hold on JobId=7 by uid 1000"],
        Trace(held=False),
    ),
    "its end was reported, and its owner released it": (
        [START, UNKNOWN_END, "sched: _release_job_rec: release hold on JobId=7 by uid 1000"],
        Trace(held=False),
    ),
    "requeued by the guard, which released it, and its end was reported": (
        [
            *REQUEUE,
            "sched: _release_job_rec: release hold on JobId=7 by uid 401",
            "_job_complete: JobId=7 WEXITSTATUS 0",
            "_job_complete: JobId=7 cancelled by interactive user",
        ],
        Trace(started="n1", ended=True, requeued=True, cancelled=True, status=0, finished=True, held=False),
    ),
    "an srun that waits": (
        ["sched: _slurm_rpc_allocate_resources JobId=7 NodeList=(null) usec=400"],
        Trace(submitted=True, interactive=True),
    ),
    "an srun that runs": (
        ["sched: _slurm_rpc_allocate_resources JobId=7 NodeList=n1 usec=1276"],
        Trace(submitted=True, interactive=True, started="n1"),
    ),
    "a heterogeneous job": (
        ["_slurm_rpc_submit_batch_het_job: JobId=7 SLUID=s651M7H5HASF00 usec=347"],
        Trace(submitted=True, heterogeneous=True),
    ),
    "submitted while the log was too quiet to tell of its start": (
        ["Set debug level to 'info'", SUBMIT],
        Trace(submitted=True, unseen=True),
    ),
    "waiting when the log was set too quiet": (
        [SUBMIT, "Set debug level to 'info'"],
        Trace(submitted=True, unseen=True),
    ),
    "waiting when the log was set back, which is told, from `error`, which isn't": (
        [SUBMIT, "Set debug level to 'verbose'"],
        Trace(submitted=True, unseen=True),
    ),
    "waiting when backfill ceased to tell": (
        [SUBMIT, "Set DebugFlags to Backfill"],
        Trace(submitted=True, unseen=True),
    ),
    "waiting when another flag was set": ([SUBMIT, "Set DebugFlags to Backfill,Hetjob"], Trace(submitted=True)),
    "submitted while no flag was set": (["Set DebugFlags to none", SUBMIT], Trace(submitted=True, unseen=True)),
    "submitted after both were set back": (
        [
            *("Set debug level to 'info'", "Set DebugFlags to none"),
            *("Set debug level to 'debug'", "Set DebugFlags to Hetjob", SUBMIT),
        ],
        Trace(submitted=True),
    ),
    "submitted after one of both was set back": (
        ["Set debug level to 'info'", "Set DebugFlags to none", "Set debug level to 'verbose'", SUBMIT],
        Trace(submitted=True, unseen=True),
    ),
    "submitted after a reconfigure, which sets all back": (
        ["Set debug level to 'info'", "slurmctld version 26.05.5 started on cluster x(885)", SUBMIT],
        Trace(submitted=True),
    ),
    "waiting through a reconfigure that set all back": (
        ["Set debug level to 'info'", SUBMIT, "slurmctld version 26.05.5 started on cluster x(885)"],
        Trace(submitted=True, unseen=True),
    ),
    "a job whose name looks like a setting": (
        [SUBMIT, "_slurm_rpc_submit_batch_job: JobId=8 name=Set debug level to 'info'"],
        Trace(submitted=True),
    ),
    "a line for programmers": (["debug2: sched: Allocate JobId=7 NodeList=n1 #CPUs=1 Partition=cpu"], Trace()),
}


WRITTEN = [
    "_get_job_parts: invalid partition specified: {}",
    'error: _find_node_record: lookup failure for node "{}"',
    "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={} uid 1000",
    "_slurm_rpc_kill_job: REQUEST_KILL_JOB {} uid 1000",
    "job_submit/lua: {}",
    "lua: {}",
]
"""What a user writes is logged in such lines."""


def stamped(lines: list[str]) -> list[str]:
    return [f"[2026-11-16T03:13:36.{index:03d}] {line}" for index, line in enumerate(lines)]


@pytest.mark.parametrize("name", CASES)
def test_the_log_tells_what_happened_to_a_job(name: str) -> None:
    lines, expected = CASES[name]
    assert traces.read(stamped(lines)).of(7) == expected


@pytest.mark.parametrize(("lines", "older", "unseen"), [
    ([SUBMIT], 0, False),
    (["Set debug level to 'info'", SUBMIT], 1, True),
    (["Set debug level to 'info'"], 1, True),
    (["Set debug level to 'info'", "slurmctld version 26.05.5 started on cluster x(885)"], 1, True),
    (["Set debug level to 'info'", "slurmctld version 26.05.5 started on cluster x(885)", SUBMIT], 2, False),
    (["Set debug level to 'info'", "Set debug level to 'verbose'", SUBMIT], 2, False),
    (["Set DebugFlags to none", SUBMIT], 1, True),
    ([SUBMIT, "Set debug level to 'verbose'"], 0, True),
])  # fmt: skip
def test_a_log_that_was_too_quiet_in_its_end_proves_nothing_of_any_job(
    lines: list[str], older: int, unseen: bool
) -> None:
    assert traces.read(stamped(lines), older).unseen is unseen


def test_tasks_of_an_array_are_told_apart_and_its_own_record_is_the_array() -> None:
    found = traces.read(
        stamped(
            [
                "_slurm_rpc_submit_batch_job: JobId=8 SLUID=s651M7H5H36Y00 InitPrio=1 usec=256",
                "sched: Allocate JobId=8_1(11) NodeList=n1 #CPUs=1 Partition=cpu",
                "sched: Allocate JobId=8_4(8) NodeList=n1 #CPUs=1 Partition=cpu",
                "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=8_[2-3] uid 1000",
                "sched: _release_job_rec: release hold on JobId=8_* by uid 1000",
            ]
        )
    )
    assert found.of(8) == Trace(submitted=True, held=False)
    assert found.by_array() == {
        8: {"1": Trace(started="n1"), "4": Trace(started="n1"), "[2-3]": Trace(cancel_asked_by=1000)}
    }
    assert found.highest == 11, "a task has an ID of its own"


def test_the_end_of_a_task_is_reported_and_withdrawn_by_its_own_id() -> None:
    lines = ["sched: Allocate JobId=8_1(11) NodeList=n1 #CPUs=1 Partition=cpu", UNKNOWN_END.replace("7", "11", 1)]
    assert traces.read(stamped(lines)).jobs == {(8, "1"): Trace(started="n1", finished=True)}
    lines.append(COMMAND.replace("7", "11", 1))
    assert traces.read(stamped(lines)).jobs == {(8, "1"): Trace(started="n1")}


def test_jobs_that_a_slurmctld_recovered_are_known() -> None:
    lines = ["Recovered JobId=7 Assoc=0", "Recovered JobId=8_* Assoc=0", "Recovered JobId=9 StepId=batch"]
    assert traces.read(stamped(lines)).recovered == {7, 8}


NAMED = [
    *WRITTEN,
    "_slurm_rpc_kill_job: job_str_signal() uid=1 {} sig=9 returned: Invalid",
    "job_complete: invalid {}",
    "_slurm_rpc_complete_job_allocation: {} error Invalid job id specified",
]


@pytest.mark.parametrize("line", NAMED)
def test_an_id_that_a_user_writes_is_none_that_slurmctld_gave(line: str) -> None:
    for id_ in ("JobId=67043327", "67043327"):
        assert traces.read(stamped([SUBMIT, line.format(id_)])).highest == 7


def test_ids_of_a_federation_do_not_count_as_the_highest() -> None:
    assert traces.read(stamped(["Recovered JobId=134217729 Assoc=0", "Recovered JobId=12 Assoc=0"])).highest == 12


@pytest.mark.parametrize("line", WRITTEN)
@pytest.mark.parametrize("name", CASES)
def test_what_users_write_into_the_log_is_no_evidence(line: str, name: str) -> None:
    assert not traces.read(stamped([line.format(each) for each in CASES[name][0]])).jobs


def test_nobody_asks_to_end_a_job_in_the_name_of_another() -> None:
    asked = "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=7 uid 0 uid 1000"
    assert traces.read(stamped([asked])).of(7).cancel_asked_by is None


def test_a_line_without_a_time_is_none_of_slurmctlds() -> None:
    assert not traces.read([START, f"[x] {START}"]).jobs


LONG = "1" * 4400


@pytest.mark.parametrize("line", [
    f'error: _single_node_name2bitmap: invalid node specified: "JobId={LONG}x"',
    f"_get_job_parts: invalid partition specified: JobId=7_1({LONG})",
    f"_slurm_rpc_submit_batch_job: JobId={LONG}",
    f"Recovered JobId={LONG} Assoc=0",
    f"_job_complete: JobId=7 WEXITSTATUS {LONG}",
    f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=7 uid {LONG}",
])  # fmt: skip
def test_numbers_that_are_none_of_slurms_tell_nothing_and_break_nothing(line: str) -> None:
    found = traces.read(stamped([line, SUBMIT]))
    assert (found.jobs, found.recovered, found.highest) == ({(7, ""): Trace(submitted=True)}, set(), 7)


words = st.sampled_from([line for lines, _ in CASES.values() for line in lines])


@given(st.lists(words, max_size=8), st.integers(min_value=0, max_value=600))
def test_a_log_that_is_cut_off_never_makes_a_start_out_of_none(lines: list[str], length: int) -> None:
    text = "\n".join(stamped(lines))[:length]
    cut = traces.read(text.split("\n")[:-1]).of(7)
    if cut.started:
        words = ("Allocate", "allocated", "_allocate_resources", "Started", "Configuration", "running", "Registered")
        assert any(word in text for word in words)


@given(st.lists(st.text(max_size=80) | words.map(lambda line: line.replace("7", "JobId=")), max_size=20))
def test_garbage_in_the_log_tells_nothing_and_breaks_nothing(lines: list[str]) -> None:
    traces.read(lines)


@pytest.mark.parametrize(("lines", "launched"), [
    ([START], True),
    ([START, END], False),
    ([SUBMIT], False),
    (["sched: _slurm_rpc_allocate_resources JobId=7 NodeList=n1 usec=1276"], False),
    ([], False),
])  # fmt: skip
def test_whether_a_job_may_still_be_on_its_way_to_its_node(lines: list[str], launched: bool) -> None:
    assert traces.has_launched([f"[2026-11-16T03:13:01.000] {line}" for line in lines]) is launched
