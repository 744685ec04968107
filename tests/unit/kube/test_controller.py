"""What comes after a pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from seltzer.kube.controller import After, Controller, Done, Outcome
from seltzer.kube.resource import Key

A, B = Key("ns", "a"), Key("ns", "b")


@asynccontextmanager
async def running(work: Callable[[Key], Awaitable[Outcome]], **options: float) -> AsyncIterator[Controller]:
    controller = Controller("test", work, **{"settle": 0.0, "first_delay": 0.01, "last_delay": 0.02, **options})  # type: ignore[arg-type]
    task = asyncio.ensure_future(controller.run())
    try:
        yield controller
        assert not task.done(), "nothing that a pass does ends the controller"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.001)


async def test_done_means_no_further_pass_until_something_changes() -> None:
    passes: list[Key] = []

    async def work(key: Key) -> Outcome:
        passes.append(key)
        return Done()

    async with running(work) as controller:
        controller.changed(A)
        await until(lambda: passes == [A])
        await asyncio.sleep(0.03)
        assert passes == [A]
        controller.changed(A)
        await until(lambda: passes == [A, A])


async def test_after_means_another_pass() -> None:
    passes: list[Key] = []

    async def work(key: Key) -> Outcome:
        passes.append(key)
        return After(0.005) if len(passes) < 3 else Done()

    async with running(work) as controller:
        controller.changed(A)
        await until(lambda: len(passes) == 3)


async def test_a_failing_key_is_tried_again_and_others_go_on() -> None:
    passes: list[Key] = []

    async def work(key: Key) -> Outcome:
        passes.append(key)
        if key == A and passes.count(A) < 4:
            raise RuntimeError("not yet")
        return Done()

    async with running(work) as controller:
        controller.changed(A)
        controller.changed(B)
        await until(lambda: passes.count(A) == 4 and passes.count(B) == 1)


async def test_a_key_never_runs_twice_at_once_and_a_slow_one_holds_up_nobody() -> None:
    active: list[Key] = []
    twice: list[Key] = []
    passes: list[Key] = []
    go_on = asyncio.Event()

    async def work(key: Key) -> Outcome:
        if key in active:
            twice.append(key)
        active.append(key)
        if key == A:
            await go_on.wait()
        active.remove(key)
        passes.append(key)
        return Done()

    async with running(work, workers=4) as controller:
        controller.changed(A)
        await until(lambda: A in active)
        controller.changed(A)
        controller.changed(B)
        await until(lambda: passes == [B])
        go_on.set()
        await until(lambda: passes == [B, A, A])
    assert not twice


async def test_a_pass_that_hangs_is_ended_and_tried_again() -> None:
    passes: list[Key] = []

    async def work(key: Key) -> Outcome:
        passes.append(key)
        if len(passes) == 1:
            await asyncio.Event().wait()
        return Done()

    async with running(work, deadline=0.01) as controller:
        controller.changed(A)
        await until(lambda: len(passes) == 2)


async def test_changes_settle_into_one_pass() -> None:
    passes: list[Key] = []

    async def work(key: Key) -> Outcome:
        passes.append(key)
        return Done()

    async with running(work, settle=0.02) as controller:
        for _ in range(100):
            controller.changed(A)
        await until(lambda: bool(passes))
        await asyncio.sleep(0.05)
    assert passes == [A]


async def test_after_a_costly_pass_only_what_hurries_comes_at_once() -> None:
    passes: list[Key] = []

    async def work(key: Key) -> Outcome:
        passes.append(key)
        return Done(cost=1000.0)

    async with running(work) as controller:
        controller.changed(A)
        await until(lambda: passes == [A])
        controller.changed(A)
        controller.changed(B)
        await until(lambda: passes == [A, B])
        controller.hurry(A)
        await until(lambda: passes == [A, B, A])
