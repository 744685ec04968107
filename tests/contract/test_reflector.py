"""A reflector's store is the truth again after every fault; behind the proxy that breaks things is a real server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.apiserver.proxy import FaultyProxy
from tests.harness import Sandbox

from seltzer.kube.backoff import Backoff
from seltzer.kube.client import Client
from seltzer.kube.config import Config, from_kubeconfig
from seltzer.kube.credentials import Static
from seltzer.kube.errors import NotFound, TooManyRequests
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import Key, Resource
from seltzer.kube.store import Store

NAMESPACE = "default"
DEADLINE = 60.0


class Meta(msgspec.Struct, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class ConfigMap(msgspec.Struct, gc=False):
    metadata: Meta
    data: dict[str, str] | None = None


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", ConfigMap)


@pytest.fixture
def config(sandbox: Sandbox) -> Config:
    return from_kubeconfig([Path(sandbox.command("kubeconfig", "--path").strip())])


class World:
    """A real API server, a way to it that breaks on request, and a store behind that. A label keeps runs apart."""

    def __init__(self, direct: Client, proxy: FaultyProxy, behind: Client) -> None:
        self.direct = direct
        self.proxy = proxy
        self.behind = behind
        self.label = f"run-{uuid4().hex[:12]}"
        self.selector = {"labelSelector": f"test={self.label}"}
        self.store: Store[ConfigMap] = Store({"value": lambda item: [(item.data or {}).get("value", "")]})
        self.told: dict[Key, ConfigMap | None] = {}
        self.store.watch(lambda before, after: self.told.update({_key(after or before): after}))
        self.last = "0"

    def reflector(self, silence: float = 60.0) -> Reflector[ConfigMap]:
        quick = Backoff(0.01, 0.1)
        return Reflector(
            self.behind,
            CONFIG_MAPS,
            self.store,
            namespace=NAMESPACE,
            selector=self.selector,
            silence=silence,
            backoff=quick,
        )

    async def put(self, name: str, value: str) -> None:
        metadata = {"name": f"{self.label}-{name}", "namespace": NAMESPACE, "labels": {"test": self.label}}
        written = await self.direct.apply(CONFIG_MAPS, {"metadata": metadata, "data": {"value": value}})
        self.last = written.metadata.resource_version

    async def drop(self, name: str) -> None:
        try:
            await self.direct.delete(CONFIG_MAPS, f"{self.label}-{name}", NAMESPACE)
        except NotFound:
            return

    async def truth(self) -> dict[Key, str]:
        listing = await self.direct.list_all(CONFIG_MAPS, NAMESPACE, params=self.selector)
        return {_key(item): item.metadata.resource_version for item in listing.items}

    async def agrees(self) -> None:
        """The store, its index and what its watchers were told come to be the truth."""
        truth = await self.truth()
        until = asyncio.get_running_loop().time() + DEADLINE
        while {_key(item): item.metadata.resource_version for item in self.store} != truth:
            assert asyncio.get_running_loop().time() < until, (truth, list(self.store))
            await asyncio.sleep(0.02)
        told = {key: item.metadata.resource_version for key, item in self.told.items() if item is not None}
        assert told == truth
        values = {(item.data or {}).get("value", "") for item in self.store}
        assert sum(len(self.store.by("value", value)) for value in values) == len(truth)


def _key(item: ConfigMap | None) -> Key:
    assert item is not None
    return Key(item.metadata.namespace, item.metadata.name)


@asynccontextmanager
async def world(config: Config, way: str = "proxy") -> AsyncIterator[World]:
    async with FaultyProxy(config).running() as proxy, Client(config) as direct:
        through = Config(proxy.url, config.tls, Static()) if way == "proxy" else config
        async with Client(through) as behind:
            some = World(direct, proxy, behind)
            try:
                yield some
            finally:
                for key in await some.truth():
                    await direct.delete(CONFIG_MAPS, key.name, key.namespace)


@asynccontextmanager
async def running(reflector: Reflector[ConfigMap]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(reflector.run())
    try:
        async with asyncio.timeout(DEADLINE):
            await reflector.synced.wait()
        yield
        assert not task.done(), "a reflector goes on for ever"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


Fault = Callable[[World], Awaitable[None]]


async def cut(some: World) -> None:
    some.proxy.cut()


async def gone(some: World) -> None:
    some.proxy.gone()


async def repeat(some: World) -> None:
    some.proxy.repeat()


async def storm(some: World) -> None:
    some.proxy.answer_next += [(503, {}, b"<html>try later</html>")] * 3
    some.proxy.cut()


async def busy(some: World) -> None:
    some.proxy.answer_next += [(429, {"Retry-After": "0.01"}, b"{}")] * 2
    some.proxy.cut()


async def expired(some: World) -> None:
    """410 as the answer to the next watch, not inside the stream."""
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    some.proxy.answer_next.append((410, {}, json.dumps(status).encode()))
    some.proxy.cut()


FAULTS: list[Fault] = [cut, gone, repeat, storm, busy, expired]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "listed"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_after_a_fault_the_store_is_the_truth(config: Config, fault: Fault, streamed: bool) -> None:
    async with world(config) as some:
        some.proxy.refuse_initial_events = not streamed
        for name in ("kept", "changed", "deleted"):
            await some.put(name, "before")
        async with running(some.reflector()):
            await some.agrees()
            await fault(some)
            await some.drop("deleted")
            await some.put("changed", "after")
            await some.put("new", "after")
            await some.agrees()
            assert {item.metadata.name.rpartition("-")[2] for item in some.store.by("value", "after")} == {
                "changed",
                "new",
            }


EITHER_WAY = pytest.mark.parametrize("way", ["server", "proxy"])


@EITHER_WAY
async def test_a_store_follows_creates_updates_and_deletes(config: Config, way: str) -> None:
    async with world(config, way) as some, running(some.reflector()):
        for name, value in (("a", "1"), ("b", "1"), ("a", "2")):
            await some.put(name, value)
        await some.agrees()
        await some.drop("b")
        await some.put("c", "1")
        await some.drop("c")
        await some.put("c", "2")
        await some.agrees()
        assert len(some.store.by("value", "2")) == 2


@EITHER_WAY
async def test_a_deletion_while_nobody_watched_is_found(config: Config, way: str) -> None:
    async with world(config, way) as some:
        await some.put("ghost", "x")
        async with running(some.reflector()):
            await some.agrees()
        await some.drop("ghost")
        async with running(some.reflector()):
            await some.agrees()
        assert len(some.store) == 0
        assert list(some.told.values()) == [None], "its watchers were told"


async def test_a_watch_that_hangs_is_given_up(config: Config) -> None:
    async with world(config) as some:
        reflector = some.reflector(silence=0.5)
        async with running(reflector):
            some.proxy.stall()
            await some.put("late", "x")
            await some.agrees()
            assert reflector.stale_for() < DEADLINE


@EITHER_WAY
async def test_a_write_is_read_when_its_version_is_reached(config: Config, way: str) -> None:
    async with world(config, way) as some:
        assert not some.store.reached("0"), "unknown is not yes"
        async with running(some.reflector()):
            await some.put("mine", "x")
            async with asyncio.timeout(DEADLINE):
                while not some.store.reached(some.last):
                    await asyncio.sleep(0.01)
            assert some.store.get(Key(NAMESPACE, f"{some.label}-mine")) is not None


async def test_a_client_waits_as_long_as_it_is_told_and_no_longer_than_its_deadline(config: Config) -> None:
    async with world(config) as some:
        some.proxy.answer_next.append((429, {"Retry-After": "0.05"}, b"{}"))
        await some.behind.list_all(CONFIG_MAPS, NAMESPACE, params=some.selector)
        some.proxy.answer_next.append((429, {"Retry-After": "3600"}, b"{}"))
        with pytest.raises(TooManyRequests):
            await some.behind.list_all(CONFIG_MAPS, NAMESPACE, params=some.selector, deadline=10.0)


@EITHER_WAY
async def test_the_store_survives_a_restart_of_the_api_server(config: Config, sandbox: Sandbox, way: str) -> None:
    async with world(config, way) as some:
        await some.put("before", "x")
        async with running(some.reflector()):
            await some.agrees()
            folder = Path(sandbox.command("kubeconfig", "--path").strip()).parent
            record = json.loads((folder / "processes" / "kube-apiserver.json").read_text())
            os.kill(record["pid"], signal.SIGKILL)
            await asyncio.to_thread(sandbox.command, "up")
            assert len(some.store) == 1, "what was known stays known"
            await some.put("after", "x")
            await some.drop("before")
            await some.agrees()


Step = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abcd"), st.sampled_from(["1", "2"])),
    st.tuples(st.just("drop"), st.sampled_from("abcd"), st.just("")),
    st.tuples(st.just("fault"), st.sampled_from([fault.__name__ for fault in FAULTS]), st.just("")),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(Step, min_size=1, max_size=12))
def test_no_ghost_and_no_miss_whatever_happens(config: Config, steps: list[tuple[str, str, str]]) -> None:
    async def live() -> None:
        async with world(config) as some, running(some.reflector()):
            for what, name, value in steps:
                if what == "put":
                    await some.put(name, value)
                elif what == "drop":
                    await some.drop(name)
                else:
                    await next(fault for fault in FAULTS if fault.__name__ == name)(some)
                    await some.agrees()
            await some.agrees()

    asyncio.run(live())
