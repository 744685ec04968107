"""What the client repeats, what it doesn't, and what it makes of answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from seltzer.kube import client as module
from seltzer.kube.client import Client
from seltzer.kube.config import Config
from seltzer.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    Unauthorized,
    Unavailable,
)
from seltzer.kube.lease import NotLeading
from seltzer.kube.resource import Resource


class Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class Thing(msgspec.Struct):
    metadata: Meta


THINGS = Resource("test.seltzer.dev", "v1", "things", "Thing", Thing)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Tokens:
    """Hands out one token after another; the server decides which it likes."""

    def __init__(self) -> None:
        self.number = 1

    async def token(self) -> str | None:
        return f"token-{self.number}"

    def refused(self) -> None:
        self.number += 1


@asynccontextmanager
async def server(handler: Handler, may_write: Callable[[], None] = lambda: None) -> AsyncIterator[Client]:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = Config(f"http://127.0.0.1:{runner.addresses[0][1]}", ssl.create_default_context(), Tokens())
    try:
        async with Client(config, may_write=may_write) as client:
            yield client
    finally:
        await runner.cleanup()


class Script:
    """Answers in turn; the last one stays. Remembers what it was asked."""

    def __init__(self, *answers: tuple[int, object]) -> None:
        self._answers = list(answers)
        self.asked: list[web.Request] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        status, body = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(body, bytes):
            return web.Response(status=status, body=body)
        return web.json_response(body, status=status)


THING = {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "7"}}


async def test_reads_are_repeated_through_a_storm() -> None:
    script = Script((503, b"<html>"), (500, {}), (200, THING))
    async with server(script) as client:
        assert (await client.get(THINGS, "a", "ns")).metadata.resource_version == "7"
    assert len(script.asked) == 3


async def test_a_create_whose_answer_is_lost_is_not_repeated() -> None:
    script = Script((503, {}), (201, THING))
    async with server(script) as client:
        with pytest.raises(ServerError):
            await client.create(THINGS, THING, "ns")
    assert len(script.asked) == 1


async def test_an_apply_is_repeated_and_a_delete_only_of_a_known_object() -> None:
    script = Script((503, {}), (200, THING))
    async with server(script) as client:
        await client.apply(THINGS, THING)
        assert [request.headers["Content-Type"] for request in script.asked] == ["application/apply-patch+yaml"] * 2
    for uid, times in (("u", 2), (None, 1)):
        script = Script((503, {}), (200, {}))
        async with server(script) as client:
            try:
                await client.delete(THINGS, "a", "ns", uid=uid)
            except ServerError:
                assert uid is None
        assert len(script.asked) == times


async def test_too_many_requests_mean_that_nothing_was_done_so_even_a_create_is_repeated() -> None:
    script = Script((429, {"details": {"retryAfterSeconds": 0.01}}), (201, THING))
    async with server(script) as client:
        await client.create(THINGS, THING, "ns")
    assert len(script.asked) == 2


async def test_an_expired_token_is_replaced_once() -> None:
    script = Script((401, {}), (201, THING))
    async with server(script) as client:
        await client.create(THINGS, THING, "ns")
    assert [request.headers["Authorization"] for request in script.asked] == ["Bearer token-1", "Bearer token-2"]
    script = Script((401, {}))
    async with server(script) as client:
        with pytest.raises(Unauthorized):
            await client.get(THINGS, "a", "ns")
    assert len(script.asked) == 2


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
    ],
)
async def test_a_no_has_a_name_and_the_servers_words(status: int, reason: str, kind: type[Exception]) -> None:
    said = {"kind": "Status", "code": status, "reason": reason, "message": "in its own words"}
    async with server(Script((status, said))) as client:
        with pytest.raises(kind, match="in its own words"):
            await client.get(THINGS, "a", "ns")


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b'{"metadata": {"na', b"[]", b"\xff"])
async def test_an_answer_that_makes_no_sense_is_no_answer(body: bytes) -> None:
    async with server(Script((200, body))) as client:
        with pytest.raises(Unavailable):
            await client.get(THINGS, "a", "ns", deadline=0.3)


async def test_a_server_that_hangs_is_left_at_the_deadline() -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    async with server(hang) as client:
        with pytest.raises(Unavailable, match="in time"):
            await client.get(THINGS, "a", "ns", deadline=0.05)


async def test_nobody_there() -> None:
    async with Client(Config("http://127.0.0.1:1", ssl.create_default_context())) as client:
        with pytest.raises(Unavailable, match="can't be reached"):
            await client.get(THINGS, "a", "ns", deadline=0.2)


async def test_a_huge_answer_does_not_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BODY", 1000)
    async with server(Script((200, b"x" * 5000))) as client:
        with pytest.raises(Unavailable, match="larger than"):
            await client.get(THINGS, "a", "ns", deadline=0.1)


async def test_who_may_not_write_can_still_read() -> None:
    def never() -> None:
        raise NotLeading("another leads")

    script = Script((200, THING))
    async with server(script, never) as client:
        await client.get(THINGS, "a", "ns")
        for write in (
            client.create(THINGS, THING, "ns"),
            client.apply(THINGS, THING),
            client.patch(THINGS, "a", "ns", patch={}),
            client.delete(THINGS, "a", "ns"),
        ):
            with pytest.raises(NotLeading):
                await write
    assert len(script.asked) == 1


async def test_long_lists_come_in_pages() -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [THING]}
    last = {"metadata": {"resourceVersion": "9"}, "items": [THING, THING]}
    script = Script((200, first), (200, last))
    async with server(script) as client:
        listing = await client.list_all(THINGS, "ns", params={"labelSelector": "a=b"})
    assert (len(listing.items), listing.resource_version) == (3, "9")
    assert [request.query.get("continue") for request in script.asked] == [None, "more"]
    assert {request.query["labelSelector"] for request in script.asked} == {"a=b"}


async def test_an_object_that_does_not_fit_does_not_hide_the_others() -> None:
    page = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": 7}}, THING]}
    async with server(Script((200, page))) as client:
        assert [item.metadata.name for item in (await client.list_all(THINGS, "ns")).items] == ["a"]


def test_names_can_not_leave_their_path() -> None:
    assert THINGS.path("../x", "a/b?c") == "/apis/test.seltzer.dev/v1/namespaces/..%2Fx/things/a%2Fb%3Fc"
    with pytest.raises(ValueError, match="needs a namespace"):
        THINGS.path(name="a")
