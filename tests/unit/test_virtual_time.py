"""Time in async unit tests passes only while nothing else can happen."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from tests import virtual_time
from tests.virtual_time import VirtualLoop, quiet


async def test_an_hour_is_over_at_once_and_all_clocks_know() -> None:
    before = time.monotonic(), time.time(), asyncio.get_running_loop().time()
    await asyncio.sleep(3600)
    after = time.monotonic(), time.time(), asyncio.get_running_loop().time()
    assert [b - a for a, b in zip(before, after, strict=True)] == [3600.0] * 3


async def test_what_a_task_computes_takes_no_time() -> None:
    async with asyncio.timeout(0.001):
        for _ in range(1000):
            await asyncio.sleep(0)
    assert sum(range(1_000_000)) and time.thread_time() == 0.0


async def test_sleepers_wake_in_their_order() -> None:
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(seconds)

    await asyncio.gather(*(sleep(each) for each in (3600.0, 0.5, 86400.0, 0.25)))
    assert woken == [0.25, 0.5, 3600.0, 86400.0]


async def test_time_stands_still_while_a_thread_works() -> None:
    go_on = threading.Event()
    late = asyncio.create_task(asyncio.sleep(0.001))
    working = asyncio.create_task(asyncio.to_thread(go_on.wait))
    for _ in range(10):
        await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(go_on.set)
    await working
    assert not late.done()
    await late


async def test_time_stands_still_while_a_program_runs() -> None:
    script = "import time; time.sleep(0.2); print('done')"
    async with asyncio.timeout(0.1):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
    assert said == b"done\n"
    await asyncio.sleep(1)


async def serve(handler: Callable[[web.Request], Awaitable[web.Response]]) -> tuple[web.AppRunner, int]:
    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


async def test_an_answer_of_any_size_is_there_before_the_deadline_and_none_is_there_after_it() -> None:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(float(request.query["after"]))
        return web.Response(body=b"x" * 10_000_000)

    runner, port = await serve(answer)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with asyncio.timeout(0.011), session.get("/?after=0.01") as got:
            assert len(await got.read()) == 10_000_000
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), session.get("/?after=0.011") as got:
                await got.read()
    await runner.cleanup()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        with pytest.raises(aiohttp.ClientConnectorError, match="Connect call failed"):
            await session.get("/")


async def test_a_full_server_takes_nobody_and_refuses_nobody() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.open_connection("127.0.0.1", loop.full_port())


async def test_it_is_quiet_when_everything_has_happened() -> None:
    happened: list[int] = []

    async def steps() -> None:
        for number in range(100):
            await asyncio.sleep(0)
            happened.append(number)
        await asyncio.sleep(1)
        happened.append(-1)

    running = asyncio.create_task(steps())
    await quiet()
    assert happened == list(range(100))
    await running


@pytest.mark.real_time
async def test_a_test_that_asks_for_real_time_has_it() -> None:
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)
    began = time.monotonic()
    await asyncio.sleep(0.01)
    assert time.monotonic() - began >= 0.01


def test_outside_of_a_loop_time_is_real() -> None:
    began = time.monotonic()

    async def sleep() -> float:
        await asyncio.sleep(10**6)
        return time.monotonic()

    virtual_time.run(sleep())
    assert 0 <= time.monotonic() - began < 10**6
