"""Our own runtime works against the fake API server unchanged, and its faults hit exactly what they are meant for.

That it does what a real one does is shown in tests/contract/test_apiserver.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.fakes.apiserver.server import FakeApiServer
from tests.fakes.apiserver.state import Id
from tests.fakes.apiserver.things import MAPS, Item, until
from tests.fakes.apiserver.writes import Write, Writes, changes

from seltzer.kube.backoff import Backoff
from seltzer.kube.client import Client
from seltzer.kube.errors import Gone, NotFound, Unavailable
from seltzer.kube.events import EVENTS, Recorder
from seltzer.kube.lease import LEASES, Election, Times
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import Key
from seltzer.kube.store import Store


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(server.config()) as client:
        yield client


async def put(client: Client, name: str, value: str) -> Item:
    return await client.apply(MAPS, {"metadata": {"name": name, "namespace": "ns"}, "data": {"value": value}})


@asynccontextmanager
async def reflected(client: Client) -> AsyncIterator[Store[Item]]:
    store: Store[Item] = Store()
    reflector = Reflector(client, MAPS, store, backoff=Backoff(0.001, 0.01))
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(10):
            await reflector.synced.wait()
        yield store
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def agrees(store: Store[Item], server: FakeApiServer) -> None:
    async def same() -> bool:
        truth = {id_.name: item["metadata"]["resourceVersion"] for id_, item in server.state.items("", "configmaps")}
        return {item.metadata.name: item.metadata.resource_version for item in store} == truth

    await until("the store is the truth", same)


async def test_a_reflector_follows_through_every_fault(server: FakeApiServer, client: Client) -> None:
    await put(client, "a", "1")
    async with reflected(client) as store:
        await agrees(store, server)
        for fault in (server.cut, server.compact):
            fault()
            await put(client, "a", fault.__name__)
            await put(client, "b", fault.__name__)
            await agrees(store, server)
            await client.delete(MAPS, "b", "ns")
            await agrees(store, server)
        await server.stop()
        server.state.delete(Id("", "configmaps", "ns", "a"))
        await server.start()
        await agrees(store, server)
        assert len(store) == 0


async def test_what_was_compacted_is_gone(server: FakeApiServer, client: Client) -> None:
    for name in "abc":
        await put(client, name, "1")
    page = await client.call("GET", MAPS.path("ns"), params={"limit": "1"})
    token = page.decode().partition('"continue":"')[2].partition('"')[0]
    server.compact()
    with pytest.raises(Gone):
        await client.call("GET", MAPS.path("ns"), params={"limit": "1", "continue": token})


async def test_two_candidates_and_one_lease(server: FakeApiServer, client: Client) -> None:
    times = Times(duration=0.5, renew=0.05, retry=0.01, margin=0.1)
    first, second = (Election(client, Key("ns", "lead"), name, times) for name in ("a", "b"))

    async def lead() -> None:
        await asyncio.Event().wait()

    one = asyncio.create_task(first.run(lead))
    await until("the first leads", lambda: _leads(first))
    two = asyncio.create_task(second.run(lead))
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    await until("the second leads", lambda: _leads(second))
    assert (await client.get(LEASES, "lead", "ns")).spec.holder_identity == "b"
    two.cancel()
    await asyncio.gather(two, return_exceptions=True)


async def _leads(election: Election) -> bool:
    return election.leading


async def test_an_event_is_reported_once_and_counted(server: FakeApiServer, client: Client) -> None:
    item = await put(client, "a", "1")
    recorder = Recorder(client, "test")
    for _ in range(3):
        await recorder.record(MAPS, item, "Normal", "Tested", "it was tested")
    (event,) = (await client.list_all(EVENTS, "ns")).items
    assert event.count == 3


class Operator:
    """Writes three ConfigMaps, one after the other, and does so again from the beginning when it is started again."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self.failed: list[str] = []

    async def run(self) -> None:
        self._task = asyncio.create_task(self._work())
        await asyncio.wait([self._task])

    def crash(self, _: Write) -> None:
        assert self._task
        self._task.cancel()

    async def _work(self) -> None:
        async with Client(self._server.config()) as client:
            for name in "abc":
                metadata = {"name": name, "namespace": "ns"}
                try:
                    await client.patch(MAPS, name, "ns", patch={"data": {"seen": "yes"}})
                except NotFound:
                    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
                    try:
                        await client.create(MAPS, manifest, "ns")
                    except Unavailable as error:
                        self.failed.append(str(error))


def names(server: FakeApiServer) -> str:
    return "".join(id_.name for id_, _ in server.state.items("", "configmaps"))


@pytest.mark.parametrize("lost_answer", [False, True], ids=["answered", "lost"])
async def test_a_crash_comes_right_after_the_write_and_nothing_after_it(
    server: FakeApiServer, lost_answer: bool
) -> None:
    operator = Operator(server)
    await operator.run()
    planned = [write for write in server.writes.all if changes(write)]
    assert [write.method for write in planned] == ["POST"] * 3
    assert {write.client for write in planned} == {"operator"}
    for number in range(1, len(planned) + 1):
        async with FakeApiServer() as other:
            operator = Operator(other)
            other.writes.crash_after(number, operator.crash, lost_answer=lost_answer)
            await operator.run()
            assert names(other) == "abc"[:number]
            assert other.writes.down and not other.writes.pending
            other.writes.restarted()
            await operator.run()
            assert names(other) == "abc"


async def test_a_lost_answer_leaves_the_writer_alive(server: FakeApiServer) -> None:
    operator = Operator(server)
    server.writes.lose_answer(2)
    await operator.run()
    assert len(operator.failed) == 1
    assert names(server) == "abc", "it was done all the same"


async def test_a_dead_operator_is_not_heard_and_a_bystander_is(server: FakeApiServer) -> None:
    async with Client(server.config()) as operator, Client(server.config("user")) as user:
        server.writes.crash_after(1, lambda _: None)
        await put(operator, "a", "1")
        with pytest.raises(Unavailable):
            await operator.create(MAPS, {"metadata": {"name": "b"}}, "ns")
        with pytest.raises(Unavailable):
            await operator.get(MAPS, "a", "ns", deadline=0.2)
        await put(user, "c", "1")
        assert names(server) == "ac"
        assert [write.path for write in server.writes.all] == ["/api/v1/namespaces/ns/configmaps/a"]


async def test_what_changes_nothing_and_what_beats_in_time_is_not_counted(server: FakeApiServer) -> None:
    async with Client(server.config()) as client:
        await put(client, "a", "1")
        await put(client, "a", "1")
        metadata = {"name": "a", "namespace": "ns"}
        await client.apply(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "me"}})
    assert [changes(write) for write in server.writes.all] == [True, False, False]
    assert [str(write) for write in server.writes.all][:2] == [
        "PATCH /api/v1/namespaces/ns/configmaps/a -> 201",
        "PATCH /api/v1/namespaces/ns/configmaps/a -> 200 (nothing changed)",
    ]


async def test_writes_of_two_servers_are_counted_together() -> None:
    writes = Writes()
    async with (
        FakeApiServer(writes=writes) as one,
        FakeApiServer(writes=writes) as two,
        Client(one.config()) as first,
        Client(two.config()) as second,
    ):
        crashed: list[Write] = []
        writes.crash_after(2, crashed.append)
        await put(first, "a", "1")
        await put(second, "b", "1")
        assert [write.path.rpartition("/")[2] for write in crashed] == ["b"]
        with pytest.raises(Unavailable):
            await first.create(MAPS, {"metadata": {"name": "c"}}, "ns")
