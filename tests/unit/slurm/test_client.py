"""Faults between us and slurmrestd end in a typed error or in recovery, in time and in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.fakes.slurmrestd import KEY, FakeSlurmrestd, Fault, cut, disconnect, error, html, text, wait_for
from tests.virtual_time import VirtualLoop, quiet

from seltzer.slurm import http, rest
from seltzer.slurm.client import LONGEST_PATH, SlurmClient
from seltzer.slurm.errors import Refused, Rejected, SlurmError, Unavailable, Unsupported
from seltzer.slurm.http import Http
from seltzer.slurm.token import TokenSource

CLOUD = {"State": "CLOUD"}
NODES = "GET /slurm/v0.0.45/nodes/"
DRAIN = "POST /slurm/v0.0.45/nodes/"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "FIRST_PAUSE", 0.0)


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlurmrestd]:
    async with FakeSlurmrestd() as fake:
        fake.add("n[0-2]")
        yield fake


@pytest.fixture
async def client(fake: FakeSlurmrestd) -> SlurmClient:
    """One that has found out the version."""
    client = SlurmClient(Http(fake.url), TokenSource(lambda: KEY))
    await client.version()
    fake.requests.clear()
    return client


def impatient(fake: FakeSlurmrestd) -> SlurmClient:
    return SlurmClient(Http(fake.url), TokenSource(lambda: KEY), deadline=0.05)


NONSENSE = {
    "html": html(),
    "html in a 502": html(502),
    "a disconnect": disconnect,
    "a body shorter than announced": cut(b'{"nodes": [', announced=True),
    "JSON cut in the middle": cut(b'{"nodes": [{"name": "n1", "sta', announced=False),
    "JSON of something else": text("{}"),
    "a list": text("[]"),
    "nodes of another kind": text('{"nodes": [{"name": 7}], "errors": []}'),
    "slurmctld is away": error(1800, "Unable to contact slurm controller (connect failure)", 502),
    "an unasked 304": text("", 304),
    "a redirect": text("", 302),
}


@pytest.mark.parametrize("fault", NONSENSE.values(), ids=NONSENSE.keys())
async def test_a_read_without_a_good_answer_is_unavailable_never_empty(
    fake: FakeSlurmrestd, client: SlurmClient, fault: Fault
) -> None:
    fake.faults.extend([fault] * 20)
    with pytest.raises(Unavailable):
        await client.nodes()
    with pytest.raises(Unavailable):
        await client.partitions()


RETRIED = {name: fault for name, fault in NONSENSE.items() if name not in ("JSON of something else", "an unasked 304")}


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED.keys())
async def test_a_read_is_tried_again(fake: FakeSlurmrestd, client: SlurmClient, fault: Fault) -> None:
    fake.faults.append(fault)
    listed = await client.nodes()
    assert listed and len(listed.nodes) == 3


@pytest.mark.parametrize("fault", [disconnect, html(), html(502), cut(b"{", announced=True)])
async def test_a_write_is_sent_once(fake: FakeSlurmrestd, client: SlurmClient, fault: Fault) -> None:
    fake.faults.append(fault)
    with pytest.raises(Unavailable):
        await client.drain(["n0"], "why")
    assert fake.requests == [DRAIN]


@pytest.mark.parametrize("status", [200, 422, 500])
async def test_an_error_is_an_error_whatever_the_status_says(
    fake: FakeSlurmrestd, client: SlurmClient, status: int
) -> None:
    fake.faults.append(error(2009, "Reservation is beyond comprehension", status))
    with pytest.raises(Rejected, match=r"Failure to please: Reservation is beyond comprehension \(2009\)") as caught:
        await client.reservations()
    assert caught.value.numbers == {2009}
    assert len(fake.requests) == 1, "what Slurm said no to isn't asked again"


async def test_a_hanging_connection_ends_with_the_deadline(fake: FakeSlurmrestd) -> None:
    never = asyncio.Event()
    for call in (impatient(fake).nodes, impatient(fake).reconfigure, lambda: impatient(fake).drain(["n0"], "why")):
        fake.faults.append(wait_for(never))
        with pytest.raises(Unavailable, match=r"no answer within 0\.05 s"):
            await call()
    never.set()


async def test_a_slow_answer_is_waited_for(fake: FakeSlurmrestd, client: SlurmClient) -> None:
    event = asyncio.Event()
    fake.faults.append(wait_for(event))
    asked = asyncio.create_task(client.diag())
    await quiet()
    assert fake.requests
    event.set()
    assert (await asked).now


async def test_slurmrestd_may_be_gone_and_come_back(fake: FakeSlurmrestd, client: SlurmClient) -> None:
    await fake.stop()
    with pytest.raises(Unavailable, match="can't be reached"):
        await client.nodes()
    await fake.start()
    assert await client.nodes()


async def test_a_server_that_takes_no_connection_is_given_up_before_one_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CONNECT_DEADLINE", 0.2)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    asked = Http(f"http://127.0.0.1:{loop.full_port()}", deadline=60.0)
    with pytest.raises(Unavailable, match=r"can't be reached: no connection within 0\.2 s"):
        await asked.exchange("GET", "/")


async def test_an_expired_token_is_renewed_and_the_call_done(fake: FakeSlurmrestd) -> None:
    """Our clock was wrong when the token was signed, and is right now."""
    now = [1e9]
    client = SlurmClient(Http(fake.url), TokenSource(lambda: KEY, clock=lambda: now[0]))
    with pytest.raises(Refused, match="Protocol authentication error"):
        await client.diag()
    now[0] = fake.clock()
    assert await client.drain(["n0"], "why")
    assert fake.nodes["n0"]["reason"] == "why"


async def test_a_rotated_key_is_used_without_a_failed_call(fake: FakeSlurmrestd) -> None:
    keys = [KEY]
    client = SlurmClient(Http(fake.url), TokenSource(lambda: keys[0]))
    await client.diag()
    keys[0] = fake.key = b"another key of more than 16 bytes"
    assert (await client.drain(["n0"], "why")).done == {"n0"}


async def test_without_a_token_we_are_refused(fake: FakeSlurmrestd, client: SlurmClient) -> None:
    fake.faults.extend([text("Authentication failure", 401)] * 2)
    with pytest.raises(Refused, match="Authentication failure"):
        await client.nodes()


async def test_an_answer_beyond_the_bound_is_not_read(fake: FakeSlurmrestd) -> None:
    client = SlurmClient(Http(fake.url, largest=5000), TokenSource(lambda: KEY))
    with pytest.raises(Unavailable, match="more than 5000 bytes"):
        await client.nodes()


@pytest.mark.parametrize("announced", [True, False])
async def test_an_endless_answer_is_cut_off(announced: bool) -> None:
    """Neither a length that nobody has room for, nor none at all and more bytes for ever."""
    head = b"Content-Length: 99999999999999999999999\r\n" if announced else b""

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        while not announced and not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()

    server = await asyncio.start_server(pour, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="more than 1000000 bytes"):
            await Http(f"http://127.0.0.1:{port}", largest=1_000_000).exchange("GET", "/")


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 3_000_000,
        b"HTTP/1.1 200",
        b"",
    ],
    ids=lambda said: said[:60].decode(),
)
async def test_what_is_not_http_is_unavailable(said: bytes) -> None:
    with pytest.raises(Unavailable):
        await hear(said)


async def test_a_chunked_answer_is_put_together() -> None:
    said = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n"
    assert await hear(said) == b"hello, world"


async def hear(said: bytes) -> bytes:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return (await Http(f"http://127.0.0.1:{port}").exchange("GET", "/")).body


async def test_no_more_connections_than_allowed_are_open_at_once(fake: FakeSlurmrestd) -> None:
    http = Http(fake.url, connections=2)
    event = asyncio.Event()
    fake.faults.extend([wait_for(event)] * 2)
    asked = [asyncio.create_task(http.exchange("GET", "/metrics/jobs")) for _ in range(6)]
    await quiet()
    assert len(fake.requests) == 2
    event.set()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}


def test_a_path_or_header_cannot_break_out() -> None:
    with pytest.raises(ValueError, match="printable"):
        asyncio.run(Http("http://localhost").exchange("GET", "/x\r\nEvil: 1"))
    with pytest.raises(ValueError, match="printable"):
        asyncio.run(Http("http://localhost").exchange("GET", "/", headers={"X": "1\n"}))


class TestVersions:
    """The newest that both know, also after slurmrestd was replaced."""

    async def test_an_older_slurmrestd_is_spoken_to_in_its_version(self) -> None:
        async with FakeSlurmrestd(versions=["v0.0.41", "v0.0.42"]) as fake:
            client = SlurmClient(Http(fake.url), TokenSource(lambda: KEY))
            assert await client.version() == "v0.0.42"
            with pytest.raises(Unsupported, match="can't create nodes"):
                await client.create(["n1"], CLOUD)
            with pytest.raises(Unsupported, match="can't return its configuration"):
                await client.config()

    async def test_one_that_is_too_old_or_too_new_is_reported(self) -> None:
        async with FakeSlurmrestd(versions=["v0.0.39", "v0.0.99"]) as fake:
            with pytest.raises(Unsupported, match=r"knows none of v0\.0\.45"):
                await SlurmClient(Http(fake.url), TokenSource(lambda: KEY)).nodes()

    async def test_a_replaced_slurmrestd_is_asked_again(self, fake: FakeSlurmrestd, client: SlurmClient) -> None:
        fake.versions = ["v0.0.43"]
        assert (await client.drain(["n0"], "why")).done == {"n0"}
        assert await client.version() == "v0.0.43"

    async def test_the_version_is_asked_for_once(self, fake: FakeSlurmrestd, client: SlurmClient) -> None:
        await client.nodes()
        await client.nodes()
        assert fake.requests == [NODES, NODES]


class TestBulk:
    """Any number of nodes in one call, and never any others."""

    async def test_five_thousand_nodes_are_one_call(self, fake: FakeSlurmrestd, client: SlurmClient) -> None:
        fake.room = 10_000
        names = [f"big-{number}" for number in range(5000)]
        for write in (
            client.create(names, CLOUD),
            client.drain(names, "all of them"),
            client.resume(names),
            client.delete(names),
        ):
            fake.requests.clear()
            outcome = await write
            assert (outcome.done, len(fake.requests)) == (frozenset(names), 1)
        assert fake.nodes.keys() == {"n0", "n1", "n2"}

    async def test_names_that_do_not_fold_are_deleted_in_calls_that_slurmrestd_takes(
        self, fake: FakeSlurmrestd, client: SlurmClient
    ) -> None:
        names = [f"node-{number}-x" for number in range(3000)]
        for name in names:
            fake.nodes[name] = {"alloc_cpus": 0}
        assert (await client.delete(names)).done == frozenset(names)
        assert fake.nodes.keys() == {"n0", "n1", "n2"}
        assert max(map(len, fake.requests)) < LONGEST_PATH + 100

    async def test_no_names_is_no_call(self, fake: FakeSlurmrestd, client: SlurmClient) -> None:
        for write in (client.drain([], "why"), client.resume([]), client.create([], CLOUD), client.delete([])):
            outcome = await write
            assert not outcome.done and not outcome.failed
        assert not fake.requests

    @pytest.mark.parametrize("name", ["all", "ALL", "", "a,b", "n[0-2]", "a b", "-x", "a/b", "{a}", "é"])
    async def test_a_name_that_could_mean_more_than_one_node_is_not_sent(
        self, fake: FakeSlurmrestd, client: SlurmClient, name: str
    ) -> None:
        for write in (client.delete, client.resume, lambda names: client.drain(names, "why")):
            with pytest.raises(ValueError, match="can't be a node's name"):
                await write(["n0", name])
        assert not fake.requests

    @pytest.mark.parametrize("value", ["", "1 State=DOWN", "1\nNodeName=x", '"', "#", "\\", "é"])
    async def test_a_setting_cannot_break_out(self, fake: FakeSlurmrestd, client: SlurmClient, value: str) -> None:
        with pytest.raises(ValueError, match="can't be in a node's line"):
            await client.create(["x"], {"CPUs": value})
        with pytest.raises(ValueError, match="can't be in a node's line"):
            await client.create(["x"], {value: "1"})
        assert not fake.requests

    async def test_a_drain_has_a_reason(self, client: SlurmClient) -> None:
        with pytest.raises(ValueError, match="needs a reason"):
            await client.drain(["n0"], " ")

    async def test_which_nodes_failed_stays_unknown_if_slurm_cannot_be_asked(
        self, fake: FakeSlurmrestd, client: SlurmClient
    ) -> None:
        fake.faults.extend([error(2018, "Invalid node name specified", 422), html(), html(), html(), html(), html()])
        with pytest.raises(SlurmError):
            await client.drain(["n0", "nosuch"], "why")

    async def test_reconfigure_is_asked_for_once(self, fake: FakeSlurmrestd, client: SlurmClient) -> None:
        fake.faults.append(disconnect)
        with pytest.raises(Unavailable):
            await client.reconfigure()
        assert len(fake.requests) == 1
        await client.reconfigure()
