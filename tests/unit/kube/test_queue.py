"""The delay queue hands out each key once, when it is due, to one worker at a time."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from tests import virtual_time

from seltzer.kube.queue import DelayQueue


async def soon(queue: DelayQueue[str]) -> str | None:
    """What is due now; None where nothing is."""
    try:
        async with asyncio.timeout(0.02):
            return await queue.get()
    except TimeoutError:
        return None


async def test_a_key_that_is_added_often_comes_once() -> None:
    queue: DelayQueue[str] = DelayQueue()
    for _ in range(3):
        queue.add("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    assert len(queue) == 0
    queue.done("a")
    assert await soon(queue) is None


async def test_a_key_is_not_handed_out_twice_at_once() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    assert await queue.get() == "b", "another key isn't held up"
    assert await soon(queue) is None
    queue.done("a")
    assert await soon(queue) == "a", "what changed while it was worked on is looked at again"


async def test_the_earlier_time_counts() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.add("a", 1000)
    assert await soon(queue) is None
    queue.add("a")
    queue.add("a", 1000)
    assert await soon(queue) == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_sleeper_wakes_for_a_key_that_is_due_earlier() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.add("late", 1000)
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("now")
    assert await asyncio.wait_for(waiting, 1) == "now"


async def test_a_cancelled_wait_loses_nothing() -> None:
    queue: DelayQueue[str] = DelayQueue()
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    queue.add("a")
    assert await soon(queue) == "a"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10)), max_size=30))
def test_keys_come_in_the_order_in_which_they_are_due(adds: list[tuple[str, float]]) -> None:
    now = 0.0
    queue: DelayQueue[str] = DelayQueue(clock=lambda: now)

    async def drain() -> list[str]:
        nonlocal now
        for key, after in adds:
            queue.add(key, after)
        now = 100.0
        return [await queue.get() for _ in range(len(queue))]

    first = {key: min(after for name, after in adds if name == key) for key, _ in adds}
    got = virtual_time.run(drain())
    assert [first[key] for key in got] == sorted(first.values())
    assert sorted(got) == sorted(first)
