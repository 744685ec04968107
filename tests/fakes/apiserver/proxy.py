"""A proxy before a real API server, that does to connections what networks and servers do to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
from aiohttp import web

from seltzer.kube.config import Config


class FaultyProxy:
    """Passes everything on. Faults are asked for by name and hit the watches that are open, or the next requests."""

    def __init__(self, upstream: Config) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None
        self._streams: set[_Stream] = set()
        self.answer_next: list[tuple[int, dict[str, str], bytes]] = []  # answers in place of the next requests
        self.refuse_initial_events = False
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.url = ""

    # --- faults ---------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """End every open watch in the middle of whatever it sends next."""
        for stream in self._streams:
            stream.cut = True
            stream.wake.set()

    def stall(self) -> None:
        """Let open watches hang: connected, and silent for ever."""
        for stream in self._streams:
            stream.stalled = True

    def repeat(self) -> None:
        """Send every line of open watches twice from now on."""
        for stream in self._streams:
            stream.repeats = True

    def gone(self) -> None:
        """Tell open watches that their version is too old, inside the stream, and end them."""
        for stream in self._streams:
            stream.gone = True
            stream.wake.set()

    # --- the proxy itself -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultyProxy]:
        connector = aiohttp.TCPConnector(ssl=self._upstream.tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            for stream in self._streams:
                stream.cut = True
                stream.wake.set()
            await self._session.close()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append((request.method, request.path, query))
        if self.answer_next:
            status, headers, body = self.answer_next.pop(0)
            return web.Response(status=status, headers=headers, body=body)
        if self.refuse_initial_events and "sendInitialEvents" in query:
            said = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "sendInitialEvents is forbidden"}
            return web.json_response(said, status=422)
        assert self._session
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name in ("Content-Type", "Accept")}
        url = self._upstream.server + request.path_qs
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            if query.get("watch") != "true" or answer.status != 200:
                content = await answer.read()
                kept = {k: v for k, v in answer.headers.items() if k in ("Content-Type", "Retry-After")}
                return web.Response(status=answer.status, headers=kept, body=content)
            return await self._pass_on(request, answer)

    async def _pass_on(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        stream = _Stream()
        self._streams.add(stream)
        with suppress(ConnectionError, aiohttp.ClientError, asyncio.CancelledError):
            await stream.pump(answer, response)
        self._streams.discard(stream)
        if request.transport and stream.cut:
            request.transport.abort()
        return response


class _Stream:
    """One watch on its way through."""

    def __init__(self) -> None:
        self.cut = self.stalled = self.repeats = self.gone = False
        self.wake = asyncio.Event()

    async def pump(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        lines = answer.content.__aiter__()
        reading = asyncio.ensure_future(lines.__anext__())
        waking = asyncio.ensure_future(self.wake.wait())
        try:
            while True:
                await asyncio.wait((reading, waking), return_when=asyncio.FIRST_COMPLETED)
                if self.gone:
                    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                    await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                    return
                if self.stalled:
                    await asyncio.Event().wait()
                line = reading.result() if reading.done() else b'{"type":"MODIFIED","object":{"metadata":{"na'
                if self.cut:
                    await response.write(line[: len(line) // 2])
                    return
                await response.write(line)
                if self.repeats:
                    await response.write(line)
                reading = asyncio.ensure_future(lines.__anext__())
        except StopAsyncIteration:
            return
        finally:
            reading.cancel()
            waking.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, aiohttp.ClientError):
                await reading
