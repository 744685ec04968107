"""Short stories of the model: each goes well with the guard as it is, and breaks a promise with a mistake in it.

The first half shows what each line of the fence is there for. The second half is what the model has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.fakes.guard_model.guard import Guard
from tests.fakes.guard_model.mutants import MUTANTS
from tests.fakes.guard_model.slurmctld import Broken, Slurmctld
from tests.fakes.guard_model.world import World


class Story:
    """A world whose moves are chosen; clocks are honest."""

    def __init__(self, world: World) -> None:
        self.world = world

    def guard(self, skew: float = 0.0) -> Guard:
        self.world.guards.append(Guard(self.world, f"pod-{len(self.world.guards) + 1}", 1.0, skew))
        return self.world.guards[-1]

    def runs(self, guard: Guard, until: Callable[[], bool], steps: int = 4000) -> None:
        """Alone, while everybody else stands still."""
        self.world.run_alone(guard, steps, until)
        assert until(), self.world.tell()

    def leads(self, guard: Guard) -> Slurmctld:
        self.runs(guard, lambda: guard.leads)
        assert guard.daemon
        return guard.daemon

    def reaches(self, guard: Guard, point: str) -> None:
        """The supervisor's thread is about to call this."""
        self.runs(guard, lambda: guard.tasks[0].at.startswith(point))

    def is_about_to_look_for_the_epoch(self, guard: Guard) -> None:
        """Since Python 3.14 pathlib lists a folder with scandir."""
        main = guard.tasks[0]
        self.runs(guard, lambda: main.at.startswith(("listdir", "scandir")) and main.at.endswith("/state"))

    def is_about_to_make_an_epoch(self, guard: Guard) -> None:
        """The next step gives it its name."""
        main = guard.tasks[0]
        self.runs(guard, lambda: main.at.startswith(("mkdir", "rename")) and "/epoch-" in main.at)

    def main(self, guard: Guard, steps: int = 1) -> None:
        for _ in range(steps):
            if guard.tasks[0].ready_to_step:
                guard.tasks[0].step()

    def acknowledges(self, daemon: Slurmctld) -> bool:
        """Whether a job that is submitted now is."""
        before = len(self.world.truth.kept)
        daemon.submit()
        while daemon.step():
            pass
        return len(self.world.truth.kept) > before

    def saves(self, daemon: Slurmctld) -> None:
        daemon.save()
        while daemon.step():
            pass

    def ends_well(self) -> None:
        self.world.truth.check_state()
        self.world.calm()
        self.world.truth.check_state()


@contextmanager
def story() -> Iterator[Story]:
    world = World(honest=True)
    try:
        yield Story(world)
    finally:
        world.close()


def woken_in_the_middle_of_a_save(tell: Story) -> None:
    first, second = tell.guard(), tell.guard()
    frozen = tell.leads(first)
    frozen.save()
    frozen.step()
    frozen.step()
    successor = tell.leads(second)
    while frozen.step():
        pass
    assert not tell.acknowledges(frozen)
    assert tell.acknowledges(successor)


def woken_with_a_half_written_file_open(tell: Story) -> None:
    first, second = tell.guard(), tell.guard()
    frozen = tell.leads(first)
    frozen.save()
    for _ in range(3):
        frozen.step()
    successor = tell.leads(second)
    successor.save()
    for _ in range(4):
        successor.step()
    frozen.step()  # what it had still to write
    while successor.step():
        pass


def woken_in_the_middle_of_a_submission(tell: Story) -> None:
    """Its script's name is there, so the successor keeps the job: it may be acknowledged."""
    first, second = tell.guard(), tell.guard()
    frozen = tell.leads(first)
    frozen.submit()
    for _ in range(5):
        frozen.step()
    successor = tell.leads(second)
    while frozen.step():
        pass
    assert tell.acknowledges(successor)
    assert list(tell.world.truth.kept) == [1, 2]


def woken_before_it_looks_for_the_name(tell: Story) -> None:
    first, second = tell.guard(), tell.guard()
    tell.leads(first)
    first.die()
    tell.is_about_to_look_for_the_epoch(second)
    tell.leads(tell.guard())
    tell.main(second, 30)


def woken_before_the_rename(tell: Story) -> None:
    first, second = tell.guard(), tell.guard()
    tell.leads(first)
    first.die()
    tell.reaches(second, "rename")
    tell.leads(tell.guard())
    tell.main(second, 60)
    if second.daemon:
        tell.acknowledges(second.daemon)


def woken_before_it_makes_the_first_epoch(tell: Story) -> None:
    sleeper, first, second = tell.guard(), tell.guard(), tell.guard()
    tell.is_about_to_make_an_epoch(sleeper)
    tell.leads(first)
    tell.leads(second)
    tell.main(sleeper, 60)
    if sleeper.daemon:
        while sleeper.daemon.step():
            pass
        tell.acknowledges(sleeper.daemon)


def a_slurmctld_that_hangs_while_its_guard_wins_again(tell: Story) -> None:
    first, second = tell.guard(), tell.guard()
    hanging = tell.leads(first)
    hanging.hangs = True
    tell.leads(second)
    tell.runs(first, lambda: first.tasks[0].at == "wait" and tell.world.server.holder == second.name)
    second.die()
    tell.world.run_alone(first, 3000)
    assert first.daemons == [hanging]


def cut_off_and_fenced(tell: Story) -> None:
    first, second = tell.guard(), tell.guard()
    tell.leads(first)
    tell.world.run_alone(first, 300)  # it is ready
    first.line.mode = "away"
    tell.leads(second)
    since = first.machine.time
    tell.world.run_alone(first, 2000, lambda: not first.daemon)
    if first.daemon or first.machine.time - since > 1.0:
        raise Broken("it goes on although its state is another one's")


STORIES: dict[str, Callable[[Story], None]] = {
    "doesn't rename": woken_in_the_middle_of_a_save,
    "leaves half-written files": woken_with_a_half_written_file_open,
    "looks at the Lease before the names": woken_before_it_looks_for_the_name,
    "takes a state that somebody else renamed": woken_before_the_rename,
    "makes a state and doesn't look again": woken_before_it_makes_the_first_epoch,
    "doesn't wait for slurmctld's end": a_slurmctld_that_hangs_while_its_guard_wins_again,
    "doesn't see that it is fenced": cut_off_and_fenced,
}


@pytest.mark.parametrize("tale", [*dict.fromkeys(STORIES.values()), woken_in_the_middle_of_a_submission])
def test_it_ends_well(tale: Callable[[Story], None]) -> None:
    with story() as tell:
        tale(tell)
        tell.ends_well()


@pytest.mark.parametrize("mistake", MUTANTS)
def test_a_guard_that(mistake: str) -> None:
    with MUTANTS[mistake](), story() as tell, pytest.raises(Broken):
        STORIES[mistake](tell)
        tell.ends_well()


# --- what the model has found ---------------------------------------------------------------------------------------


def test_who_dies_with_a_needless_epoch_in_its_hands_stops_nobody() -> None:
    with story() as tell:
        sleeper, first, second = tell.guard(), tell.guard(), tell.guard()
        tell.is_about_to_make_an_epoch(sleeper)
        tell.leads(first)
        tell.leads(second)
        tell.main(sleeper)
        for guard in (sleeper, first, second):
            guard.die()
        tell.ends_well()


@pytest.mark.parametrize("steps", range(12))
def test_who_sleeps_does_not_take_another_sleepers_epoch_for_its_own(steps: int) -> None:
    with story() as tell:
        sleeper, first, second = tell.guard(), tell.guard(), tell.guard()
        tell.is_about_to_make_an_epoch(sleeper)
        tell.is_about_to_make_an_epoch(first)
        tell.main(first, 1 + steps)
        tell.leads(second)
        tell.main(sleeper)
        tell.main(first, 60)
        if first.daemon:
            while first.daemon.step():
                pass
            tell.acknowledges(first.daemon)
        tell.ends_well()


def test_clocks_that_differ_make_no_state_older() -> None:
    with story() as tell:
        ahead, right = tell.guard(skew=30.0), tell.guard()
        tell.saves(tell.leads(ahead))
        tell.world.run_alone(ahead, 300)  # it is told
        ahead.die()
        tell.saves(tell.leads(right))
        right.die()
        tell.ends_well()


def test_a_name_never_comes_back() -> None:
    with story() as tell:
        sleeper, first, second = tell.guard(), tell.guard(), tell.guard()
        tell.is_about_to_make_an_epoch(sleeper)
        fenced = tell.leads(first)
        tell.leads(second)
        tell.main(sleeper)
        assert not tell.acknowledges(fenced)
        tell.ends_well()
