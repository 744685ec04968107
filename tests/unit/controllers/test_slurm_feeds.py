"""Feeds: fetched beside the passes while a plan wants them, and read without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping

import pytest
from tests.virtual_time import quiet

from seltzer.controllers.slurm_feeds import DEADLINES_EVERY, EVERY, FRESH, WANTED, AnswerFeed, Deadlines
from seltzer.slurm.errors import Unavailable


class Slurm:
    """Answers when it is told to. Its clock is everybody's."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.open: list[tuple[str, asyncio.Future[int | None]]] = []
        self.changes = 0
        self.feed: AnswerFeed[str, int] = AnswerFeed(self._ask, self._changed, lambda: self.now)

    async def _ask(self, key: str) -> int | None:
        answer: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.open.append((key, answer))
        return await answer

    def _changed(self) -> None:
        self.changes += 1

    @property
    def asked(self) -> list[str]:
        return [key for key, _ in self.open]

    async def answer(self, number: int | None) -> None:
        self.open.pop(0)[1].set_result(number)
        await quiet()

    async def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.feed._wake.set()
        await quiet()


@pytest.fixture
async def slurm() -> AsyncIterator[Slurm]:
    made = Slurm()
    running = asyncio.create_task(made.feed.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_nothing_is_asked_that_no_plan_wants(slurm: Slurm) -> None:
    assert slurm.feed.latest("cpu") is None
    await slurm.turn(60.0)
    assert slurm.asked == []


async def test_a_pass_reads_unknown_until_the_answer_wakes_the_next_one(slurm: Slurm) -> None:
    slurm.feed.want("cpu")
    await slurm.turn()
    assert (slurm.asked, slurm.feed.latest("cpu")) == (["cpu"], None)
    await slurm.answer(3)
    assert (slurm.changes, slurm.feed.latest("cpu")) == (1, 3)
    assert slurm.feed.latest("gpu") is None


async def test_an_answer_is_kept_up_to_date_while_it_is_wanted(slurm: Slurm) -> None:
    slurm.feed.want("cpu")
    await slurm.turn()
    await slurm.answer(3)
    await slurm.turn(EVERY / 2)
    assert slurm.asked == []
    await slurm.turn(EVERY / 2)
    await slurm.answer(3)
    assert slurm.changes == 1, "nothing has changed"
    await slurm.turn(EVERY)
    await slurm.answer(0)
    assert (slurm.changes, slurm.feed.latest("cpu")) == (2, 0)
    await slurm.turn(WANTED + 1)
    assert slurm.asked == [], "no plan has wanted it for a while"
    assert slurm.feed.latest("cpu") is None, "and what nobody wants is forgotten"


async def test_an_answer_expires_if_no_other_comes(slurm: Slurm) -> None:
    slurm.feed.want("cpu")
    await slurm.turn()
    await slurm.answer(3)
    await slurm.turn(EVERY)
    await slurm.answer(None)
    assert (slurm.changes, slurm.feed.latest("cpu")) == (1, 3)
    slurm.now += FRESH
    assert slurm.feed.latest("cpu") is None


async def test_a_check_before_a_write_asks_now_and_tells_the_plans(slurm: Slurm) -> None:
    slurm.feed.want("cpu")
    await slurm.turn()
    await slurm.answer(0)
    check = asyncio.create_task(slurm.feed.now("cpu"))
    await quiet()
    await slurm.answer(2)
    assert await check == 2
    assert (slurm.changes, slurm.feed.latest("cpu")) == (2, 2)
    check = asyncio.create_task(slurm.feed.now("cpu"))
    await quiet()
    await slurm.answer(None)
    assert await check is None, "what was known before doesn't count here"


class Jobs:
    """Nodes that are busy until some time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.until: Mapping[str, float | None] | None = {"cpu-0": 60.0}
        self.asked = 0
        self.changes: list[frozenset[str]] = []
        self.deadlines = Deadlines(self._ask, lambda: ("cpu-0", "cpu-1"), self.changes.append, lambda: self.now)

    async def _ask(self, nodes: Collection[str]) -> Mapping[str, float | None]:
        assert sorted(nodes) == ["cpu-0", "cpu-1"]
        self.asked += 1
        if self.until is None:
            raise Unavailable("the guard is away")
        return self.until


@pytest.fixture
async def jobs() -> AsyncIterator[Jobs]:
    made = Jobs()
    running = asyncio.create_task(made.deadlines.run())
    await quiet()
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_deadlines_are_fetched_when_jobs_change_and_then_rest(jobs: Jobs) -> None:
    assert jobs.deadlines.age == float("inf")
    jobs.deadlines.jobs_changed()
    await quiet()
    assert (jobs.deadlines.free_at, jobs.changes) == ({"cpu-0": 60.0}, [frozenset({"cpu-0"})])
    jobs.now += DEADLINES_EVERY / 2
    jobs.deadlines.jobs_changed()
    await quiet()
    assert (jobs.asked, jobs.deadlines.age) == (1, DEADLINES_EVERY / 2)


@pytest.mark.parametrize("until", [{"cpu-0": 60.0}, {"cpu-0": None}, None])
async def test_a_plan_that_waits_for_deadlines_is_woken_whatever_the_answer(
    jobs: Jobs, until: Mapping[str, float | None] | None
) -> None:
    jobs.deadlines.jobs_changed()
    await quiet()
    jobs.now, jobs.until = jobs.now + 60.0, until
    jobs.deadlines.want()
    await quiet()
    assert (jobs.asked, len(jobs.changes), jobs.deadlines.age) == (2, 2, 0.0)
    assert jobs.deadlines.free_at == (until or {"cpu-0": 60.0})
    await quiet()
    assert jobs.asked == 2, "and then it rests again"
