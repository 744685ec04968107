"""Whose slurmd answers is asked beside the passes, and an answer counts only for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from types import SimpleNamespace

import pytest
from tests.virtual_time import quiet

from seltzer.controllers import slurmd_probe
from seltzer.controllers.slurmd_probe import AT_ONCE, EVERY, FRESH, WANTED, SlurmdProbe

ONE, TWO = {"cpu-1": "10.0.0.1"}, {"cpu-2": "10.0.0.2"}


class Guard:
    """Takes questions, and answers when it is told to. Its clock is everybody's."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.open: list[tuple[list[str], asyncio.Future[Collection[str] | None]]] = []
        self.changes = 0
        self.probe = SlurmdProbe(self._ask, self._changed)

    async def _ask(self, addresses: Sequence[str]) -> Collection[str] | None:
        answer: asyncio.Future[Collection[str] | None] = asyncio.get_running_loop().create_future()
        self.open.append((list(addresses), answer))
        return await answer

    def _changed(self) -> None:
        self.changes += 1

    @property
    def asked(self) -> list[list[str]]:
        """The questions that have no answer yet."""
        return [addresses for addresses, _ in self.open]

    async def answer(self, there: Collection[str] | None) -> None:
        """The oldest question."""
        self.open.pop(0)[1].set_result(there)
        await self.turn()

    async def turn(self, seconds: float = 0.0) -> None:
        """So many seconds later, all has happened that can happen."""
        self.now += seconds
        self.probe._wake.set()
        await quiet()


@pytest.fixture
async def guard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Guard]:
    made = Guard()
    monkeypatch.setattr(slurmd_probe, "time", SimpleNamespace(monotonic=lambda: made.now))
    running = asyncio.create_task(made.probe.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("there", [True, False])
async def test_a_pass_doesnt_wait_and_the_next_one_is_woken_by_the_answer(guard: Guard, there: bool) -> None:
    assert guard.probe.answers(ONE) == {}
    await guard.turn()
    assert guard.asked == [["10.0.0.1"]]
    assert guard.probe.answers(ONE) == {}, "unknown, not silent"
    await guard.answer(["10.0.0.1"] if there else [])
    assert guard.changes == 1
    assert guard.probe.answers(ONE) == {"cpu-1": there}


async def test_an_answer_is_as_old_as_its_question_and_expires(guard: Guard) -> None:
    guard.probe.answers(ONE)
    await guard.turn()
    await guard.turn(FRESH - 0.5)
    await guard.answer([])
    assert guard.probe.answers(ONE) == {"cpu-1": False}
    await guard.turn(1.0)
    assert guard.probe.answers(ONE) == {}, "it may be back"


async def test_an_answer_that_comes_too_late_is_none(guard: Guard) -> None:
    guard.probe.answers(ONE)
    await guard.turn()
    await guard.turn(FRESH + 0.5)
    await guard.answer([])
    assert guard.probe.answers(ONE) == {}
    assert not guard.changes


async def test_who_doesnt_answer_is_asked_on_and_on_so_that_slow_passes_find_an_answer_too(guard: Guard) -> None:
    guard.probe.answers(ONE)
    await guard.turn()
    for _ in range(10):  # without a pass
        await guard.turn(2.2)
        await guard.answer([])
    assert guard.probe.answers(ONE) == {"cpu-1": False}
    assert guard.changes == 1, "nothing had changed"
    await guard.turn(2.2)
    await guard.answer(["10.0.0.1"])
    assert guard.changes == 2
    assert guard.probe.answers(ONE) == {"cpu-1": True}


async def test_a_guard_that_cant_tell_says_nothing_of_anybody(guard: Guard) -> None:
    guard.probe.answers(ONE)
    await guard.turn()
    await guard.answer(None)
    assert not guard.changes
    assert guard.probe.answers(ONE) == {}
    assert guard.asked == [], "nor is it asked at once"
    await guard.turn(EVERY)
    assert guard.asked == [["10.0.0.1"]]


async def test_a_new_suspect_waits_for_no_silent_one_and_leaves_known_answers_as_they_are(guard: Guard) -> None:
    guard.probe.answers(ONE)
    await guard.turn()
    await guard.turn(2.0)
    await guard.answer([])
    assert guard.asked == [["10.0.0.1"]]
    assert guard.probe.answers(ONE | TWO) == {"cpu-1": False}
    await guard.turn()
    assert guard.asked == [["10.0.0.1"], ["10.0.0.2"]]


async def test_thousands_are_asked_in_a_few_questions_and_all_have_their_turn(guard: Guard) -> None:
    many = {f"cpu-{number}": f"10.0.{number // 250}.{number % 250}" for number in range(3 * AT_ONCE)}
    guard.probe.answers(many)
    await guard.turn()
    assert [len(each) for each in guard.asked] == [AT_ONCE, AT_ONCE]
    await guard.turn(2.0)
    await guard.answer([])
    await guard.answer([])
    await guard.answer([])
    assert guard.probe.answers(many) == dict.fromkeys(many, False)


async def test_an_address_that_no_pass_has_suspected_for_a_while_isnt_asked(guard: Guard) -> None:
    guard.probe.answers(ONE)
    await guard.turn()
    await guard.turn(WANTED + 1)
    await guard.answer([])
    assert guard.asked == []
