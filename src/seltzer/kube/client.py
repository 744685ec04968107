"""Calls to the API server. Every call has a deadline, and only calls that are safe to repeat are repeated.

Reads, server-side applies and deletes of one known object have the same result however often they are made. They are
retried until the deadline while the server can't be reached. Any other write whose answer was lost may have happened:
the caller gets `Unavailable` and has to check. 401 and 429 mean that nothing was done: every call is retried on those.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from seltzer.kube import sockets
from seltzer.kube.config import Config
from seltzer.kube.errors import ApiError, ServerError, TooManyRequests, Unauthorized, Unavailable, from_answer
from seltzer.kube.resource import HasMeta, Resource

T = TypeVar("T", bound=HasMeta)
logger = logging.getLogger(__name__)

DEADLINE = 15.0
MANAGER = "seltzer"
MOST_CONNECTIONS = 32
PAGE = 500
_MOST_BODY = 64 << 20
_FIRST_DELAY, _LAST_DELAY = 0.1, 3.0


class Listing(msgspec.Struct, Generic[T]):
    """All objects as of one resourceVersion."""

    items: list[T]
    resource_version: str


class _ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Kind(msgspec.Struct):
    kind: str = ""


class Client:
    """One API server. `async with` it; safe to share between tasks.

    `may_write` is called right before every write, and raises if this process may not write now: a leader that lost its
    Lease while it was suspended must not finish what it had begun.
    """

    def __init__(self, config: Config, *, may_write: Callable[[], None] = lambda: None) -> None:
        self._config = config
        self._may_write = may_write
        self._session: aiohttp.ClientSession | None = None
        self._watching: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        # Watches are many, long and mostly idle: they must not take connections from calls.
        self._session = self._new_session(MOST_CONNECTIONS)
        self._watching = self._new_session(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in (self._session, self._watching):
            if session:
                await session.close()

    def _new_session(self, limit: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=limit, ssl=self._config.tls, socket_factory=sockets.new)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": MANAGER}
        return aiohttp.ClientSession(
            connector=connector, headers=headers, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )

    # --- reads ----------------------------------------------------------------------------------------------------

    async def get(self, resource: Resource[T], name: str, namespace: str = "", *, deadline: float = DEADLINE) -> T:
        body = await self.call("GET", resource.path(namespace, name), deadline=deadline)
        return _decode(body, resource.type)

    async def list_all(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        params: Mapping[str, str] | None = None,
        deadline: float = 60.0,
    ) -> Listing[T]:
        """All objects, fetched in pages so that no single answer is huge."""
        decoder = msgspec.json.Decoder(resource.type)
        items: list[T] = []
        query = {"limit": str(PAGE), **(params or {})}
        until = time.monotonic() + deadline
        while True:
            left = until - time.monotonic()
            body = await self.call("GET", resource.path(namespace), params=query, deadline=left)
            page = _decode(body, _Page)
            for raw in page.items or ():
                try:
                    items.append(decoder.decode(raw))
                except msgspec.ValidationError as error:
                    # An object that our Struct can't hold must not hide all others.
                    logger.warning("a %s was skipped: %s", resource.kind, error)
            if not page.metadata.continue_:
                return Listing(items, page.metadata.resource_version)
            query["continue"] = page.metadata.continue_

    # --- writes ---------------------------------------------------------------------------------------------------

    async def create(
        self, resource: Resource[T], manifest: Mapping[str, Any], namespace: str = "", *, deadline: float = DEADLINE
    ) -> T:
        params = {"fieldManager": MANAGER}
        path = resource.path(namespace)
        body = await self.call("POST", path, params=params, content=manifest, deadline=deadline)
        return _decode(body, resource.type)

    async def apply(
        self,
        resource: Resource[T],
        manifest: Mapping[str, Any],
        *,
        subresource: str = "",
        manager: str = MANAGER,
        deadline: float = DEADLINE,
    ) -> T:
        """Server-side apply: set the fields that the manifest names, and create the object if necessary."""
        metadata = manifest["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        body = await self.call(
            "PATCH",
            path,
            params={"fieldManager": manager, "force": "true"},
            content={"apiVersion": resource.api_version, "kind": resource.kind, **manifest},
            kind="application/apply-patch+yaml",
            deadline=deadline,
            repeatable=True,
        )
        return _decode(body, resource.type)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        patch: Mapping[str, Any] | list[Mapping[str, Any]],
        subresource: str = "",
        strategic: bool = False,
        deadline: float = DEADLINE,
    ) -> T:
        """A list is sent as a JSON patch, anything else as a merge patch. A resourceVersion in it is a precondition.

        A strategic merge patch merges lists in Kubernetes' own objects, such as conditions by type.
        """
        merge = "strategic-merge" if strategic else "merge"
        kind = f"application/{'json' if isinstance(patch, list) else merge}-patch+json"
        path = resource.path(namespace, name, subresource)
        params = {"fieldManager": MANAGER}
        body = await self.call("PATCH", path, params=params, content=patch, kind=kind, deadline=deadline)
        return _decode(body, resource.type)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        deadline: float = DEADLINE,
    ) -> T | None:
        """Delete one object. With a uid or a resourceVersion, only that exact one (otherwise raises `Conflict`).

        Returns the object's remaining state while it terminates, if the server sends it.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "preconditions": {name: value for name, value in preconditions.items() if value} or None,
            "gracePeriodSeconds": grace_seconds,
            "propagationPolicy": propagation,
        }
        content = {name: value for name, value in options.items() if value is not None}
        path = resource.path(namespace, name)
        body = await self.call("DELETE", path, content=content, deadline=deadline, repeatable=uid is not None)
        return _decode(body, resource.type) if _decode(body, _Kind).kind == resource.kind else None

    # --- every request goes through here -----------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: object = None,
        kind: str = "application/json",
        deadline: float = DEADLINE,
        repeatable: bool = False,
    ) -> bytes:
        """The body of the answer. Raises ApiError if the server refuses, Unavailable if it doesn't answer."""
        repeatable = repeatable or method == "GET"
        body = None if content is None else msgspec.json.encode(content)
        until = time.monotonic() + deadline
        delay = _FIRST_DELAY
        renewed = False
        while True:
            try:
                return await self._once(method, path, params, body, kind, until - time.monotonic())
            except Unauthorized:
                if renewed:
                    raise
                renewed = True  # the next attempt uses a new token; a second refusal is final
                self._config.credentials.refused()
                continue
            except TooManyRequests as error:
                failed: ApiError | Unavailable = error
                wait = error.retry_after or delay
            except (ServerError, Unavailable) as error:
                if not repeatable:
                    raise
                failed, wait = error, delay
            # With jitter: every client that was refused at the same time comes back as well.
            wait *= random.uniform(1.0, 1.3)  # noqa: S311
            if time.monotonic() + wait >= until:
                raise failed
            await asyncio.sleep(wait)
            delay = min(2 * delay, _LAST_DELAY)

    async def _once(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None, kind: str, left: float
    ) -> bytes:
        session, url = _open(self._session), self._config.server + path
        headers = await self._headers(kind)
        if method != "GET":
            self._may_write()
        try:
            async with (
                asyncio.timeout(max(left, 0.0)),
                session.request(method, url, params=params, data=body, headers=headers) as answer,
            ):
                said = await _bounded(answer)
        except TimeoutError:
            raise Unavailable(f"the API server did not answer {method} {path} in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the API server can't be reached: {error}") from None
        if answer.status >= 400:
            raise from_answer(answer.status, said, _retry_after(answer))
        return said

    async def _headers(self, kind: str) -> dict[str, str]:
        token = await self._config.credentials.token()
        headers = {"Content-Type": kind}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, connect: float = DEADLINE
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """An open watch. Raises errors of the answer like `call`; errors while reading are raised to the reader."""
        session = _open(self._watching)
        headers = await self._headers("application/json")
        try:
            async with asyncio.timeout(connect):
                answer = await session.get(self._config.server + path, params=params, headers=headers)
        except TimeoutError:
            raise Unavailable(f"the API server did not answer GET {path} in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the API server can't be reached: {error}") from None
        try:
            if answer.status >= 400:
                async with asyncio.timeout(connect):
                    raise from_answer(answer.status, await _bounded(answer), _retry_after(answer))
            yield answer.content
        except Unauthorized:
            self._config.credentials.refused()
            raise
        finally:
            answer.close()


def _open(session: aiohttp.ClientSession | None) -> aiohttp.ClientSession:
    if session is None:
        raise RuntimeError("use the client inside 'async with'")
    return session


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    """The body, up to a limit that protects our memory."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > _MOST_BODY:
            raise Unavailable(f"the API server's answer is larger than {_MOST_BODY >> 20} MiB")
    return bytes(body)


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    try:
        return float(answer.headers["Retry-After"])
    except (KeyError, ValueError):
        return None


V = TypeVar("V")


def _decode(body: bytes, kind: type[V]) -> V:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unavailable(f"the API server's answer is malformed: {error}") from None
