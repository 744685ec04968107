"""Since when a reflector hears of every change. Everything else about it is shown on a real server, in contract."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.fakes.apiserver.server import FakeApiServer

from seltzer.api.core import Lease
from seltzer.kube.backoff import Backoff
from seltzer.kube.client import Client
from seltzer.kube.kinds import LEASES
from seltzer.kube.reflector import Reflector
from seltzer.kube.store import Store


async def until(happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happens():
            await asyncio.sleep(0.01)


async def test_a_break_ends_what_was_followed_and_a_quiet_stream_that_is_open_begins_it_anew() -> None:
    async with FakeApiServer() as server, Client(server.config()) as client:
        store: Store[Lease] = Store()
        reflector = Reflector(client, LEASES, store, backoff=Backoff(0.01, 0.05))
        assert reflector.following_for() == 0, "nothing has been heard yet"
        running = asyncio.ensure_future(reflector.run())
        try:
            await until(lambda: reflector.following_for() > 0.1)
            await server.stop()
            await until(lambda: reflector.error is not None)
            assert reflector.following_for() == 0, "nobody knows what was said meanwhile"
            began = time.monotonic()
            await server.start()
            await until(lambda: reflector.error is None and reflector.following_for() > 0)
            assert reflector.following_for() < time.monotonic() - began, "it counts from the new beginning"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
