"""The endpoints for the kubelet and Prometheus: liveness, readiness and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


@asynccontextmanager
async def serving(port: int, ready: Callable[[], str], host: str | None = None) -> AsyncIterator[int]:
    """Serve /healthz, /readyz and /metrics, on all addresses if no host is given. Yields the port.

    `ready` returns what is wrong, or an empty string.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # an answer shows that the event loop isn't stuck

    async def readyz(_: web.Request) -> web.Response:
        amiss = ready()
        return web.Response(text=f"{amiss or 'ok'}\n", status=503 if amiss else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
