"""Guards, a Lease and an epoch, and anything happens between any two of their steps: there is no way to two writers.

SELTZER_MODEL=600 looks for ten minutes, SELTZER_MODEL_SEED=1 elsewhere. What breaks a promise is a tape; `play` plays
it again.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.fakes.guard_model.mutants import HARMLESS, MUTANTS
from tests.fakes.guard_model.slurmctld import Broken
from tests.fakes.guard_model.world import World

LONG = float(os.environ.get("SELTZER_MODEL", "0"))
SEED = int(os.environ.get("SELTZER_MODEL_SEED", "0"))
TAPES = 60
Tape = Sequence[tuple[str, int]]

OFTEN = ("go", "reach", "slurmctld_works", "stop_in_the_middle", "wake_for_a_moment", "take_over", "one_thread")
SOMETIMES = ("start", "run", "doze_off", "save", "submit", "freeze", "thaw", "elapse", "network", "arrive", "hang")
SELDOM = ("crash", "die", "terminate", "away", "person")
MOVES = (*OFTEN, *OFTEN, *OFTEN, *SOMETIMES, *SOMETIMES, *SELDOM)
NUMBERS = st.integers(0, 999)


class GuardMachine(RuleBasedStateMachine):
    """Each rule is a move; after each the state volume is as it was promised."""

    world: World | None = None

    @initialize(honest=st.booleans(), guards=st.integers(1, 3))
    def begin(self, honest: bool, guards: int) -> None:
        self.world = World(honest)
        for number in range(guards):
            self.world.start(number)

    @rule(move=st.sampled_from(MOVES), number=NUMBERS)
    def move(self, move: str, number: int) -> None:
        assert self.world
        getattr(self.world, move)(number)
        self.world.truth.check_state()

    def teardown(self) -> None:
        if self.world:
            try:
                self.world.calm()
                self.world.truth.check_state()
            finally:
                self.world.close()


TestGuards = pytest.mark.timeout(300 + 10 * LONG)(GuardMachine.TestCase)
TestGuards.settings = settings(max_examples=15 + int(4 * LONG), stateful_step_count=40)


def play(tape: Tape, honest: bool, calm: bool = True) -> None:
    """Two guards and these moves, then peace. Raises Broken."""
    world = World(honest)
    try:
        for move, number in (("start", 0), ("start", 1), *tape):
            getattr(world, move)(number)
            world.truth.check_state()
        if calm:
            world.calm()
            world.truth.check_state()
    finally:
        world.close()


def tapes(number: int, seconds: float) -> Iterator[tuple[Tape, bool]]:
    """So many, and more for so many seconds."""
    end = time.monotonic() + seconds
    for seed in itertools.count(SEED):
        if seed >= SEED + number and time.monotonic() >= end:
            return
        dice = random.Random(seed)  # noqa: S311
        yield [(dice.choice(MOVES), dice.randrange(1000)) for _ in range(dice.randrange(60))], bool(seed % 2)


@pytest.mark.timeout(300 + LONG)
def test_no_tape_leads_to_two_writers_and_each_ends_with_one() -> None:
    for tape, honest in tapes(TAPES, LONG):
        try:
            play(tape, honest)
        except Exception as error:
            raise AssertionError(f"play({shortened(tape, honest)}, {honest}): {error}") from error


def shortened(tape: Tape, honest: bool) -> Tape:
    """The same without the moves that don't matter."""
    for place in reversed(range(len(tape))):
        shorter = [*tape[:place], *tape[place + 1 :]]
        try:
            play(shorter, honest)
        except Exception:
            tape = shorter
    return tape


@pytest.mark.parametrize("mistake", HARMLESS)
def test_the_lease_only_elects(mistake: str) -> None:
    """Whatever it does, and whoever believes in it: there are no two writers."""
    with HARMLESS[mistake]():
        for tape, _ in tapes(TAPES // 6, LONG / 6):
            play(tape, honest=False, calm=False)


@pytest.mark.skipif(not LONG, reason="SELTZER_MODEL=600 has the time; test_model_stories.py shows the same")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mistake", MUTANTS)
def test_tapes_find_the_guard_that(mistake: str) -> None:
    with MUTANTS[mistake](), pytest.raises(Broken):
        for tape, honest in tapes(0, max(60.0, LONG / 6)):
            play(tape, honest)
