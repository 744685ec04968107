"""The floor: a client that knows everything in advance, keeps 32 requests in flight, and updates Slurm in one call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self

import aiohttp

from seltzer.kube.config import Config

IN_FLIGHT = 32
_NAME = "a-name-to-be"


class Bare:
    """Requests to one API server, about the pods of one namespace."""

    def __init__(self, config: Config, namespace: str) -> None:
        self._config = config
        self._pods = f"{config.server}/api/v1/namespaces/{namespace}/pods"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._config.tls, limit=IN_FLIGHT)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session
        await self._session.close()

    async def create(self, names: Iterable[str], make: Callable[[str], dict[str, Any]]) -> None:
        """They differ only by name: one is built, the others are copies."""
        text = json.dumps(make(_NAME))
        await self._each(names, lambda name: self._send("POST", self._pods, text.replace(_NAME, name)))

    async def delete(self, names: Iterable[str]) -> None:
        await self._each(names, lambda name: self._send("DELETE", f"{self._pods}/{name}", "{}"))

    async def set_condition(self, names: Iterable[str], condition: dict[str, str]) -> None:
        text = json.dumps({"status": {"conditions": [condition]}})
        kind = "application/strategic-merge-patch+json"
        await self._each(names, lambda name: self._send("PATCH", f"{self._pods}/{name}/status", text, kind))

    async def _each(self, names: Iterable[str], one: Callable[[str], Awaitable[None]]) -> None:
        left = iter(names)

        async def worker() -> None:
            for name in left:
                await one(name)

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))

    async def _send(self, method: str, url: str, body: str, kind: str = "application/json") -> None:
        assert self._session
        async with self._session.request(method, url, data=body, headers={"Content-Type": kind}) as answer:
            assert answer.status < 300, (await answer.text())[:500]
            await answer.read()
