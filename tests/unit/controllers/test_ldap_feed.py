"""A directory is followed: what changes in it shows after the interval, and whatever fails changes nothing."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest
from tests.fakes.apiserver.server import FakeApiServer
from tests.fakes.apiserver.things import SECRETS
from tests.fakes.ldap import BIND, SEARCH, FakeDirectory

from seltzer.api.ldap import Ldap
from seltzer.controllers import ldap_feed
from seltzer.controllers.ldap_feed import LdapFeed
from seltzer.kube.client import Client
from seltzer.plan.users.accounts import LDAP, Account, Group, Refusal, Source
from seltzer.plan.users.reading import FIRST, REFUSED

ADA = Account("ada", 2001, 3000)


@pytest.fixture
async def directory() -> AsyncIterator[FakeDirectory]:
    """Ada, and her group."""
    async with FakeDirectory() as directory:
        add(directory, "ada", 2001)
        directory.add("ou=groups", "cn=hpc", cn="hpc", gidNumber="3000", memberUid="ada")
        yield directory


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with FakeApiServer() as server, Client(server.config()) as client:
        yield client


def add(directory: FakeDirectory, name: str, uid: int) -> None:
    directory.add("ou=people", f"uid={name}", uid=name, uidNumber=str(uid), gidNumber="3000")


class Following:
    """A feed, and how often it has said that something changed."""

    def __init__(self, client: Client, directory: FakeDirectory, *, had_groups: bool = False, **spec: Any) -> None:
        given = {"uri": [directory.uri], "baseDN": "dc=x", "userBaseDN": "ou=people", "groupBaseDN": "ou=groups"}
        ldap = msgspec.convert({**given, "startTLS": False, **spec}, Ldap)
        self.changes = 0
        self.feed = LdapFeed(client, "lab", ldap, self._changed, had_groups=had_groups)

    def _changed(self) -> None:
        self.changes += 1

    @property
    def source(self) -> Source:
        return self.feed.source

    async def until(self, what: Callable[[Source], object]) -> float:
        """How long it takes until the source is like this."""
        began = time.monotonic()
        while not what(self.source):
            await asyncio.sleep(0.1)
            assert time.monotonic() - began < 4000
        return time.monotonic() - began


@asynccontextmanager
async def following(client: Client, directory: FakeDirectory, **spec: Any) -> AsyncIterator[Following]:
    found = Following(client, directory, **spec)
    task = asyncio.create_task(found.feed.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_before_the_first_answer_the_source_is_pending(client: Client, directory: FakeDirectory) -> None:
    found = Following(client, directory)
    assert found.source == Source(LDAP, error="it hasn't been read yet", pending=True)


async def test_a_directory_becomes_a_source(client: Client, directory: FakeDirectory) -> None:
    add(directory, "root", 0)
    async with following(client, directory) as found:
        assert await found.until(lambda source: not source.error) < 1
        why = "its uidnumber 0 belongs to the system: use one from 1000 to 2147483647"
        refusals = (Refusal("root", LDAP, why),)
        assert found.source == Source(LDAP, (ADA,), (Group("hpc", 3000, ("ada",)),), unreadable=refusals)


async def test_a_change_shows_after_the_interval_and_no_change_says_nothing(
    client: Client, directory: FakeDirectory
) -> None:
    async with following(client, directory, interval="30s") as found:
        await found.until(lambda source: source.accounts)
        await asyncio.sleep(100)
        assert (found.changes, len(directory.requests)) == (1, 4 * 3)
        add(directory, "bob", 2002)
        assert await found.until(lambda source: len(source.accounts) == 2) <= 30
        assert found.changes == 2


async def test_a_directory_that_fails_says_why_and_since_when(client: Client, directory: FakeDirectory) -> None:
    async with following(client, directory) as found:
        await found.until(lambda source: source.accounts)
        directory.trees["ou=people"] = []
        await found.until(lambda source: source.error)
        assert "returned no users below ou=people" in found.source.error
        since = found.source.since
        del directory.trees["ou=people"]
        await found.until(lambda source: "there is no entry ou=people" in source.error)
        assert found.source.since == since, "it is still the same trouble"
        add(directory, "ada", 2001)
        await found.until(lambda source: not source.error)
        assert found.source.accounts == (ADA,)


async def test_groups_that_an_operator_before_has_seen_are_missed(client: Client, directory: FakeDirectory) -> None:
    directory.trees["ou=groups"] = []
    async with following(client, directory, had_groups=True) as found:
        await found.until(lambda source: not source.pending)
        assert "returned no groups, and had some before" in found.source.error


async def test_groups_that_are_all_gone_are_a_fault(client: Client, directory: FakeDirectory) -> None:
    async with following(client, directory) as found:
        await found.until(lambda source: source.groups)
        directory.trees["ou=groups"] = []
        await found.until(lambda source: source.error)
        assert "returned no groups, and had some before" in found.source.error


async def test_a_directory_without_groups_is_none(client: Client, directory: FakeDirectory) -> None:
    directory.trees["ou=groups"] = []
    async with following(client, directory) as found:
        await found.until(lambda source: not source.error)
        assert found.source.groups == ()


async def test_a_new_cluster_does_not_wait_for_the_interval(client: Client, directory: FakeDirectory) -> None:
    people = directory.trees.pop("ou=people")
    async with following(client, directory, interval="1h") as found:
        await found.until(lambda source: source.error and not source.pending)
        directory.trees["ou=people"] = people
        assert await found.until(lambda source: source.accounts) <= FIRST + 1


async def test_a_refused_account_is_not_tried_often_but_at_once_with_another_password(
    client: Client, directory: FakeDirectory
) -> None:
    directory.password = b"secret"
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "reader", "namespace": "lab"}}
    async with following(client, directory, interval="10s", bindSecret={"name": "reader"}) as found:
        await found.until(lambda source: "the Secret reader (bindSecret) doesn't exist" in source.error)
        guess = {"dn": encoded("cn=reader"), "password": encoded("guess")}
        await client.create(SECRETS, {**secret, "data": guess}, "lab")
        assert await found.until(lambda source: "doesn't accept the DN and password" in source.error) < 1
        binds = [each for each in directory.requests if each.kind == BIND]
        await asyncio.sleep(REFUSED - 10)
        assert len([each for each in directory.requests if each.kind == BIND]) == len(binds) == 1
        patch = {"data": {"password": encoded("secret")}}
        await client.patch(SECRETS, "reader", "lab", patch=patch)
        assert await found.until(lambda source: source.accounts) < 1


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    async def read(directory: object) -> None:
        raise ZeroDivisionError("oops")

    with monkeypatch.context() as context:
        context.setattr(ldap_feed, "read", read)
        yield


async def test_a_mistake_of_ours_does_not_end_the_feed(
    client: Client, directory: FakeDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following(client, directory) as found:
        with broken(monkeypatch):
            await found.until(lambda source: "please report this" in source.error)
        await found.until(lambda source: source.accounts)


async def test_a_cut_in_the_middle_is_no_answer(client: Client, directory: FakeDirectory) -> None:
    for n in range(50):
        add(directory, f"u{n:02}", 5000 + n)

    async def cut(server: FakeDirectory, request: Any, writer: asyncio.StreamWriter) -> bool:
        writer.write(server.answer(request)[:100])
        await writer.drain()
        writer.transport.abort()
        return True

    async with following(client, directory, pageSize=10) as found:
        await found.until(lambda source: len(source.accounts) == 51)
        count = len([each for each in directory.requests if each.kind == SEARCH])
        directory.faults[SEARCH, count + 3] = cut
        await found.until(lambda source: source.error)
        assert "closed the connection before its answer was complete" in found.source.error
        await found.until(lambda source: len(source.accounts) == 51)
