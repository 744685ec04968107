"""Stories of jobs and crashes: each goes well with the repair as it is, and breaks a promise with a mistake in it.

Hypothesis looks for more of them. SELTZER_MODEL=600 lets it look for longer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.fakes.job_model import Broken, World

from seltzer.guard.recovery import put_back, requeues, settle, verdicts
from seltzer.guard.recovery.holding import Todo
from seltzer.guard.recovery.traces import Trace
from seltzer.guard.recovery.verdicts import JobVerdict

LONG = float(os.environ.get("SELTZER_MODEL", "0"))
CALLS = 14
"""A repair makes fewer calls than that in these stories."""


class JobMachine(RuleBasedStateMachine):
    """Each rule is a move of users, nodes, or what kills slurmctld."""

    world: World

    @initialize()
    def begin(self) -> None:
        self.world = World()

    def pick(self, number: int) -> int:
        return 1 + number % max(1, len(self.world.acknowledged))

    @rule(requeue=st.booleans(), dependent=st.booleans())
    def submit(self, requeue: bool, dependent: bool) -> None:
        if self.world.up:
            self.world.submit(requeue, awaits=len(self.world.acknowledged) if dependent else 0)

    @rule()
    def schedule(self) -> None:
        if self.world.up:
            self.world.schedule()

    @rule(number=st.integers(0, 9))
    def end(self, number: int) -> None:
        self.world.end(self.pick(number))

    @rule(number=st.integers(0, 9))
    def cancel(self, number: int) -> None:
        self.world.cancel(self.pick(number))

    @rule()
    def save(self) -> None:
        if self.world.up:
            self.world.save()

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule()
    def crash_before_a_launch(self) -> None:
        if self.world.up:
            self.world.schedule(launched=False)
            self.world.crash()

    @rule(cut=st.integers(0, 30), number=st.integers(0, 9))
    def recover(self, cut: int, number: int) -> None:
        if not self.world.up:
            self.world.recover(cut, lambda: self.world.end(self.pick(number)))

    @rule()
    def register(self) -> None:
        if self.world.up:
            self.world.register()

    @rule()
    def cut_off(self) -> None:
        self.world.cut_off = True

    @rule()
    def heal(self) -> None:
        if self.world.up and self.world.cut_off:
            self.world.heal()

    @rule()
    def settle(self) -> None:
        if self.world.up:
            self.world.register()
            self.world.settle()

    def teardown(self) -> None:
        try:
            self.world.calm()
        finally:
            self.world.close()


TestJobs = pytest.mark.timeout(300 + 10 * LONG)(JobMachine.TestCase)
TestJobs.settings = settings(max_examples=60 + int(10 * LONG), stateful_step_count=25)


@contextmanager
def story() -> Iterator[World]:
    world = World()
    try:
        yield world
    finally:
        world.close()


def started(world: World, requeue: bool = True, saved: bool = True) -> int:
    """A job that starts after the last save; whether it was saved as pending before."""
    job = world.submit(requeue)
    if saved:
        world.save()
    world.schedule()
    return job


def crashes_while_a_job_runs(world: World, saved: bool = True) -> None:
    started(world, saved=saved)
    world.crash()
    world.recover()
    world.schedule()


def forgets_a_job_that_runs(world: World) -> None:
    crashes_while_a_job_runs(world, saved=False)


def crashes_while_a_job_with_no_requeue_runs(world: World) -> None:
    started(world, requeue=False)
    started(world, requeue=False, saved=False)
    world.crash()
    world.recover()


def leaves_a_job_alone_that_was_saved_as_running(world: World) -> None:
    world.submit(requeue=True)
    world.schedule()
    world.save()
    world.log("_slurm_rpc_update_job: complete JobId=1 uid=1000 usec=1")
    world.crash()
    world.recover()
    assert [process.alive for process in world.processes] == [True]
    assert world.known[1].state == "RUNNING"


def hears_of_an_end_after_the_crash(world: World) -> None:
    for saved in (True, False):
        started(world, saved=saved)
    world.crash()
    world.recover()
    for job in world.acknowledged:
        world.end(job)


def hears_of_an_end_from_a_node_that_was_cut_off(world: World) -> None:
    job = started(world)
    world.crash()
    world.recover()
    world.cut_off = True
    world.end(job)
    world.settle()
    world.heal()


def hears_of_an_end_while_it_repairs(world: World) -> None:
    job = started(world)
    world.crash()
    world.recover(meanwhile=lambda: world.end(job))


def forgets_an_end(world: World) -> None:
    for saved in (True, False):
        job = started(world, saved=saved)
        world.end(job)
    world.crash()
    world.recover()


def forgets_an_end_and_a_job_that_waits_for_it(world: World) -> None:
    job = started(world)
    world.end(job)
    world.submit(requeue=True, awaits=job)
    world.crash()
    world.recover()


def loses_a_launch(world: World) -> None:
    for saved in (True, False):
        world.submit(requeue=True)
        if saved:
            world.save()
    world.schedule(launched=False)
    world.crash()
    world.recover()


def is_killed_in_the_middle_of_a_repair(world: World) -> None:
    for cut in range(CALLS):
        started(world, saved=bool(cut % 2))
        world.crash()
        world.recover(cut)
        world.register()


def is_killed_in_the_middle_of_a_second_requeue(world: World) -> None:
    for cut in range(CALLS):
        crashes_while_a_job_runs(world)
        world.register()
        world.settle()
        world.schedule()
        world.crash()
        world.recover(cut)
        world.register()


STORIES = (
    crashes_while_a_job_runs,
    forgets_a_job_that_runs,
    crashes_while_a_job_with_no_requeue_runs,
    leaves_a_job_alone_that_was_saved_as_running,
    hears_of_an_end_after_the_crash,
    hears_of_an_end_from_a_node_that_was_cut_off,
    hears_of_an_end_while_it_repairs,
    forgets_an_end,
    forgets_an_end_and_a_job_that_waits_for_it,
    loses_a_launch,
    is_killed_in_the_middle_of_a_repair,
    is_killed_in_the_middle_of_a_second_requeue,
)


@pytest.mark.parametrize("tale", STORIES)
def test_it_ends_well(tale: Callable[[World], None]) -> None:
    with story() as world:
        tale(world)
        world.calm()


# --- guards with one mistake each -------------------------------------------------------------------------------------


def _known(change: Callable[[Trace, str, JobVerdict | None], JobVerdict | None]) -> AbstractContextManager[object]:
    def of_known(trace: Trace, state: str, *more: object, **others: object) -> JobVerdict | None:
        return change(trace, state, verdicts.of_known(trace, state, *more, **others))  # type: ignore[arg-type]

    return mock.patch.object(sys.modules["seltzer.guard.recovery.repair"], "of_known", of_known)


def _any_requeue(todo: Sequence[Todo], _: object, slurm: World, *, late: bool) -> set[str]:
    names = [name for name, *_ in todo]
    if not late:
        slurm.delay(names)
    return set(names)


@contextmanager
def _believes_itself() -> Iterator[None]:
    unchecked = mock.patch.object(settle, "_not_requeued", lambda *_: "")
    with unchecked, mock.patch.object(requeues, "_requeue", _any_requeue):
        yield


def _requeue_at_once(todo: Sequence[Todo], _: object, slurm: World, **__: object) -> set[str]:
    slurm.requeue([int(name) for name, *_ in todo])
    return {name for name, *_ in todo}


@contextmanager
def requeues_whatever_runs() -> Iterator[None]:
    verdict = JobVerdict("requeued", "requeue", "")
    wrong = _known(lambda trace, state, right: verdict if state == "RUNNING" else right)
    with wrong, mock.patch.object(requeues, "_requeue", _requeue_at_once):
        yield


@contextmanager
def requeues_what_may_not_be() -> Iterator[None]:
    def of_waiting(slurm: World, *_: object) -> dict[int, verdicts.Waiting]:
        return {each.id: verdicts.Waiting(may_requeue=True, awaited=False) for each in slurm.pending().values()}

    free = mock.patch.object(requeues, "waiting", of_waiting)
    anyone = mock.patch.object(put_back, "_may_requeue", lambda *_: True)
    with free, anyone, _believes_itself():
        yield


@contextmanager
def does_not_delay() -> Iterator[None]:
    with mock.patch.object(World, "delay", lambda *_: None):
        yield


@contextmanager
def does_not_count() -> Iterator[None]:
    with mock.patch.object(World, "requeue", lambda *_: None), _believes_itself():
        yield


@contextmanager
def does_not_settle() -> Iterator[None]:
    with mock.patch.object(settle, "_trace", lambda *_: Trace()):
        yield


@contextmanager
def believes_that_all_nodes_respond() -> Iterator[None]:
    with mock.patch.object(settle, "_silent", lambda *_: set()):
        yield


@contextmanager
def forgets_whose_nodes_were_silent() -> Iterator[None]:
    right = requeues.write
    with mock.patch.object(requeues, "write", lambda epoch, jobs: right(epoch, replace(jobs, silent=frozenset()))):
        yield


@contextmanager
def forgets_who_is_unsettled() -> Iterator[None]:
    with mock.patch.object(requeues, "remember", lambda *_: None):
        yield


@contextmanager
def takes_any_count_for_a_new_one() -> Iterator[None]:
    right = requeues._remember_counts
    with mock.patch.object(requeues, "_remember_counts", lambda epoch, jobs: right(epoch, dict.fromkeys(jobs, 0))):
        yield


@contextmanager
def asks_slurmctld_alone_who_depends_on_whom() -> Iterator[None]:
    with mock.patch.object(sys.modules["seltzer.guard.recovery.repair"], "awaited_by_forgotten", lambda *_: set()):
        yield


@contextmanager
def ends_what_runs() -> Iterator[None]:
    verdict = JobVerdict("ran", "complete", "")
    with _known(lambda trace, state, right: verdict if state == "RUNNING" else right):
        yield


@contextmanager
def cancels_what_only_started() -> Iterator[None]:
    verdict = JobVerdict("ran", "retire", "")
    with _known(lambda trace, state, right: verdict if state == "PENDING" and trace.started else right):
        yield


@contextmanager
def holds_everything() -> Iterator[None]:
    with mock.patch.object(requeues, "waiting", lambda *_: {}):
        yield


MUTANTS: dict[Callable[[], AbstractContextManager[None]], Callable[[World], None]] = {
    requeues_what_may_not_be: crashes_while_a_job_with_no_requeue_runs,
    requeues_whatever_runs: leaves_a_job_alone_that_was_saved_as_running,
    ends_what_runs: leaves_a_job_alone_that_was_saved_as_running,
    cancels_what_only_started: crashes_while_a_job_runs,
    does_not_delay: crashes_while_a_job_runs,
    does_not_count: crashes_while_a_job_runs,
    does_not_settle: hears_of_an_end_after_the_crash,
    believes_that_all_nodes_respond: hears_of_an_end_from_a_node_that_was_cut_off,
    forgets_whose_nodes_were_silent: hears_of_an_end_from_a_node_that_was_cut_off,
    forgets_who_is_unsettled: hears_of_an_end_after_the_crash,
    takes_any_count_for_a_new_one: is_killed_in_the_middle_of_a_second_requeue,
    asks_slurmctld_alone_who_depends_on_whom: forgets_an_end_and_a_job_that_waits_for_it,
    holds_everything: crashes_while_a_job_runs,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_guard_that(mutant: Callable[[], AbstractContextManager[None]]) -> None:
    with mutant(), story() as world, pytest.raises(Broken):
        MUTANTS[mutant](world)
        world.calm()
