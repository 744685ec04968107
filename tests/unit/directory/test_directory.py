"""Reading a directory ends with all of it, or with one line that says what to do; never with a part, never late."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import ldap as fake
from tests.fakes.ldap import BIND, EXTENDED, SEARCH, FakeDirectory, Fault, Request
from tests.virtual_time import VirtualLoop

from seltzer.directory import ber, connection, directory, messages
from seltzer.directory.accounts import Refusal
from seltzer.directory.directory import Directory, Found, read
from seltzer.directory.errors import DirectoryError, Incomplete, Misconfigured, Refused, Unreachable
from seltzer.directory.messages import BIND_RESPONSE, DONE, EXTENDED_RESPONSE
from seltzer.directory.schema import ACTIVE_DIRECTORY, RFC2307, RFC2307BIS, Schema
from seltzer_sandbox.run.pki import Authority

PEOPLE, GROUPS = "ou=people,dc=x", "ou=groups,dc=x"


def add_user(fake: FakeDirectory, name: str, uid: int, **more: Any) -> None:
    fake.add(PEOPLE, f"uid={name}", **{"uid": name, "uidNumber": str(uid), "gidNumber": "3000", **more})


@pytest.fixture
async def server() -> AsyncIterator[FakeDirectory]:
    """25 users and a group; pages of ten."""
    async with FakeDirectory() as server:
        for n in range(25):
            add_user(server, f"u{n:02}", 2000 + n)
        server.add(GROUPS, "cn=hpc", cn="hpc", gidNumber="3000", memberUid=["u01", "u02"])
        yield server


def where(*servers: FakeDirectory, **changes: Any) -> Directory:
    found = Directory([each.uri for each in servers], PEOPLE, GROUPS, RFC2307, start_tls=False, page_size=10)
    return dataclasses.replace(found, **changes)


async def failure(*servers: FakeDirectory, **changes: Any) -> DirectoryError:
    with pytest.raises(DirectoryError) as error:
        await read(where(*servers, **changes))
    assert "\n" not in str(error.value)
    return error.value


def searches(server: FakeDirectory) -> list[Request]:
    return [each for each in server.requests if each.kind == SEARCH]


# --- all of it --------------------------------------------------------------------------------------------------------


async def test_all_pages_are_read(server: FakeDirectory) -> None:
    found = await read(where(server))
    assert [user.name for user in found.users] == [f"u{n:02}" for n in range(25)]
    assert [(group.name, group.gid, group.members) for group in found.groups] == [("hpc", 3000, ("u01", "u02"))]
    assert [(each.dn, each.page) for each in searches(server)] == [(GROUPS, 10), *[(PEOPLE, 10)] * 3]


async def test_a_directory_that_cannot_page_returns_everything_at_once(server: FakeDirectory) -> None:
    server.can_page = False
    assert len((await read(where(server))).users) == 25
    assert len(searches(server)) == 2


async def test_only_attributes_that_are_needed_are_asked_for(server: FakeDirectory) -> None:
    await read(where(server))
    assert searches(server)[-1].attributes == ("uid", "uidnumber", "gidnumber", "cn", "loginshell", "sshpublickey")


async def test_a_filter_narrows_what_the_schema_finds(server: FakeDirectory) -> None:
    await read(where(server, user_filter="(x=y)"))
    assert searches(server)[-1].filter == (
        ber.element(0xA3, ber.text("objectClass"), ber.text("posixAccount"))
        + ber.element(0xA3, ber.text("x"), ber.text("y"))
    )


async def test_values_that_active_directory_holds_back_are_fetched() -> None:
    async with FakeDirectory(most_values=4) as server:
        for n in range(11):
            add_user(server, f"u{n:02}", 2000 + n, sAMAccountName=f"u{n:02}", userAccountControl="512")
        members = [f"uid=u{n:02},{PEOPLE}" for n in range(11)]
        server.add(GROUPS, "cn=hpc", sAMAccountName="hpc", gidNumber="3000", member=members)
        found = await read(where(server, schema=ACTIVE_DIRECTORY))
    assert found.groups[0].members == tuple(f"u{n:02}" for n in range(11))


async def test_an_entry_that_cannot_be_used_affects_no_other(server: FakeDirectory) -> None:
    add_user(server, "root", 0)
    add_user(server, "u00", 2100)
    found = await read(where(server))
    assert [user.name for user in found.users] == [f"u{n:02}" for n in range(1, 25)]
    assert found.refusals == (
        Refusal("root", "its uidnumber 0 belongs to the system: use one from 1000 to 2147483647"),
        Refusal("u00", "2 entries have this name: rename all but one"),
    )


async def test_disabled_accounts_are_counted(server: FakeDirectory) -> None:
    for n, control in enumerate(("512", "514")):
        add_user(server, f"w{n}", 4000 + n, sAMAccountName=f"w{n}", userAccountControl=control)
    server.trees[PEOPLE] = server.trees[PEOPLE][-2:]
    found = await read(where(server, schema=ACTIVE_DIRECTORY))
    assert ([user.name for user in found.users], found.disabled) == (["w0"], 1)


async def test_while_much_is_read_others_get_their_turn(server: FakeDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3000):
        add_user(server, f"v{n:04}", 10_000 + n)
    in_a_row, longest, parse = 0, 0, messages.parse

    def counted(data: bytes) -> Any:
        nonlocal in_a_row, longest
        in_a_row += 1
        longest = max(longest, in_a_row)
        return parse(data)

    async def other() -> None:
        nonlocal in_a_row
        while True:
            in_a_row = 0
            await asyncio.sleep(0)

    monkeypatch.setattr(messages, "parse", counted)
    task = asyncio.create_task(other())
    await read(where(server, page_size=10_000))
    task.cancel()
    assert longest < 1000


# --- who asks ---------------------------------------------------------------------------------------------------------


async def test_the_account_binds_before_it_reads(server: FakeDirectory) -> None:
    server.password = b"secret"
    await read(where(server, bind_dn="cn=reader,dc=x", password=b"secret"))
    first = server.requests[0]
    assert (first.kind, first.dn, first.password) == (BIND, "cn=reader,dc=x", b"secret")


async def test_a_wrong_password_is_not_tried_on_another_server(server: FakeDirectory) -> None:
    server.password = b"secret"
    async with FakeDirectory(server.trees, b"secret") as other:
        error = await failure(server, other, bind_dn="cn=reader,dc=x", password=b"guess")
        assert other.requests == []
    assert isinstance(error, Refused)
    assert str(error) == (
        f"{server.uri} says: no such password (49): it doesn't accept the DN and password: correct the Secret that "
        "bindSecret names"
    )
    assert "guess" not in repr(where(server, password=b"guess"))


@pytest.mark.parametrize(("data", "why"), [("52e", "the password is wrong"), ("775", "the account is locked")])
async def test_active_directory_says_why_in_words(server: FakeDirectory, data: str, why: str) -> None:
    text = f"80090308: LdapErr: DSID-0C0903A9, comment: AcceptSecurityContext error, data {data}, v1db1"
    server.faults[BIND, 0] = ends(49, text)
    assert f"says: {why}: it doesn't accept the DN and password" in str(await failure(server))


# --- what goes wrong --------------------------------------------------------------------------------------------------


def ends(code: int, text: str = "", more: bytes = b"") -> Fault:
    """An operation that ends with this result."""

    async def fault(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
        tag = DONE if request.kind == SEARCH else 0x61
        writer.write(fake.result(request.number, tag, code, text, more=more))
        return True

    return fault


def writes(data: bytes) -> Fault:
    async def fault(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(data)
        return True

    return fault


async def silent(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
    return True


async def cut(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
    """Half of an answer, and then the connection is gone."""
    answer = server.answer(request)
    writer.write(answer[: len(answer) // 2])
    await writer.drain()
    writer.transport.abort()
    return True


async def referred(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
    """A whole answer, of which a part is on another server."""
    writer.write(fake.reference(request.number, "ldap://other.example.com/ou=more,dc=x"))
    return False


async def bound(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
    writer.write(fake.result(request.number, 0x61))
    return True


async def disconnected(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
    writer.write(fake.result(0, EXTENDED_RESPONSE, 52, "shutting down"))
    return True


FAULTS: dict[str, tuple[Fault, type[DirectoryError], str]] = {
    "time limit": (ends(3), Incomplete, "its time limit ended the search"),
    "size limit": (ends(4), Incomplete, "its size limit cut the answer: raise the limit for the account of bindSecret"),
    "administrative limit": (ends(11), Incomplete, "its administrative limit cut the answer"),
    "no such base": (ends(32), Misconfigured, f"there is no entry {PEOPLE}, or the account of bindSecret can't see it"),
    "bad DN": (ends(34, "invalid DN"), Misconfigured, f"invalid DN (34): it can't read the DN {PEOPLE}: correct it"),
    "no rights": (ends(50), Refused, f"the account of bindSecret may not read {PEOPLE}"),
    "wants TLS": (ends(13), Misconfigured, "it wants an encrypted connection: use an ldaps:// URI"),
    "wants a login": (
        ends(8, "authentication required"),
        Misconfigured,
        "it wants a login or encryption: set bindSecret",
    ),
    "unwilling": (ends(53), Refused, "it is unwilling to answer: look for the account of bindSecret in its log"),
    "busy": (ends(51), Unreachable, "it is busy: no action needed"),
    "another result": (ends(80, "oops"), Unreachable, "says: oops (80): this code has no known remedy"),
    "referral": (
        ends(10, more=ber.element(0xA3, ber.text("ldap://b"))),
        Incomplete,
        f"has only a part of {PEOPLE} and refers to another server (ldap://b): use the URI of a server that has all",
    ),
    "reference": (referred, Incomplete, "refers to another server (ldap://other.example.com/ou=more,dc=x)"),
    "cut": (cut, Unreachable, "closed the connection before its answer was complete"),
    "disconnected": (disconnected, Unreachable, "ends the connection: shutting down"),
    "silent": (silent, Unreachable, "can't be reached: no answer within 20 s"),
    "nonsense": (writes(b"HTTP/1.1 200 OK\r\n\r\n"), Unreachable, "doesn't speak LDAP correctly: this isn't LDAP"),
    "an answer to nothing": (writes(fake.result(99, DONE)), Unreachable, "a message answers nothing that was asked"),
    "a bind's answer to a search": (bound, Unreachable, "a search ended as something else"),
}


@pytest.mark.parametrize("page", [0, 1, 2])
@pytest.mark.parametrize(("fault", "kind", "says"), FAULTS.values(), ids=FAULTS.keys())
async def test_a_fault_on_any_page_is_an_error_and_no_result(
    server: FakeDirectory, page: int, fault: Fault, kind: type[DirectoryError], says: str
) -> None:
    server.faults[SEARCH, 1 + page] = fault
    error = await failure(server)
    assert type(error) is kind
    assert str(error).startswith(server.uri) and says in str(error)


async def test_a_server_that_cannot_be_reached_is_followed_by_the_next(server: FakeDirectory) -> None:
    async with FakeDirectory(server.trees) as other:
        server.faults[SEARCH, 2] = cut
        found = await read(where(server, other))
        assert len(found.users) == 25
        assert len(searches(other)) == 4, "the other one is read from its beginning"


async def test_if_no_server_can_be_reached_the_line_names_all(server: FakeDirectory) -> None:
    server._server.close()
    error = await failure(server, uris=(server.uri, "ldap://127.0.0.1:1"))
    assert isinstance(error, Unreachable)
    assert f"{server.uri} can't be reached: " in str(error) and "; ldap://127.0.0.1:1 can't be reached: " in str(error)


async def test_a_connection_that_is_not_accepted_takes_seconds(server: FakeDirectory) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    began = time.monotonic()
    error = await failure(server, uris=(f"ldap://127.0.0.1:{loop.full_port()}",))
    assert "no connection within 6 s: check the address, the network and the server" in str(error)
    assert time.monotonic() - began < 10


async def test_everything_together_has_a_deadline(server: FakeDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers slowly enough for no other deadline."""

    async def slow(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(connection.ANSWER_DEADLINE - 1)
        return False

    for n in range(400):
        add_user(server, f"v{n}", 5000 + n)
    server.faults = {(SEARCH, n): slow for n in range(100)}
    began = time.monotonic()
    error = await failure(server, uris=(server.uri, "ldap://127.0.0.1:1"))
    assert f"{server.uri} needs more than 180 s for all entries" in str(error)
    assert time.monotonic() - began < directory.DEADLINE + 1


@pytest.mark.parametrize("schema", [RFC2307, RFC2307BIS, ACTIVE_DIRECTORY])
async def test_no_users_are_an_error(server: FakeDirectory, schema: Schema) -> None:
    server.trees[PEOPLE] = []
    error = await failure(server, schema=schema)
    assert isinstance(error, Incomplete)
    assert f"returned no users below {PEOPLE}: check userBaseDN and userFilter" in str(error)


async def test_users_of_whom_none_can_be_used_are_an_error(server: FakeDirectory) -> None:
    server.trees[PEOPLE] = []
    add_user(server, "root", 0)
    assert "returned 1 users, but none can be used (root: its uidnumber 0 belongs" in str(await failure(server))


async def test_more_users_than_allowed_are_an_error(server: FakeDirectory) -> None:
    error = await failure(server, most_users=24)
    assert isinstance(error, Incomplete)
    assert "has more than 24 users (maxUsers): narrow userFilter" in str(error)
    assert len((await read(where(server, most_users=25))).users) == 25


async def test_an_answer_without_end_is_cut_off(server: FakeDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LARGEST_ANSWER", 2000)
    assert "returned more than 2000 bytes" in str(await failure(server))


async def test_a_server_that_goes_on_with_empty_pages_ends_by_the_deadline(server: FakeDirectory) -> None:
    async def again(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(1)
        writer.write(fake.result(request.number, DONE, cookie=b"0"))
        return True

    server.faults = {(SEARCH, n): again for n in range(1000)}
    assert "needs more than 180 s" in str(await failure(server))


async def shortened(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
    """Somebody has removed a member, and the server counts from where there still is one."""
    found = fake.entry(request.number, f"cn=hpc,{GROUPS}", {"member;range=1-*": [b"b"]})
    writer.write(found + fake.result(request.number, DONE))
    return True


@pytest.mark.parametrize("fault", [ends(0), shortened], ids=["gone", "shortened"])
async def test_values_that_change_while_they_are_fetched_are_an_error(fault: Fault) -> None:
    async with FakeDirectory(most_values=2) as server:
        server.add(GROUPS, "cn=hpc", sAMAccountName="hpc", member=["a", "b", "c"])
        server.faults[SEARCH, 1] = fault
        error = await failure(server, schema=ACTIVE_DIRECTORY)
    assert "returned only a part of member of cn=hpc,ou=groups,dc=x" in str(error)


async def test_a_password_is_not_sent_without_start_tls(server: FakeDirectory) -> None:
    error = await failure(server, start_tls=True, bind_dn="cn=reader,dc=x", password=b"secret")
    assert "doesn't do StartTLS (unsupported extended operation): use an ldaps:// URI" in str(error)
    assert [each.kind for each in server.requests] == [EXTENDED]


async def test_what_is_put_in_before_the_handshake_of_start_tls_is_never_read(
    server: FakeDirectory, tmp_path: Path
) -> None:
    """Somebody on the network answers the bind that comes next, in clear text."""
    authority = Authority(tmp_path, "ca")
    authority.create()
    authority.issue("server", "ldap", hosts=("127.0.0.1",))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")

    async def injects(server: FakeDirectory, request: Request, writer: asyncio.StreamWriter) -> bool:
        welcome = fake.result(request.number + 1, BIND_RESPONSE)
        writer.write(fake.result(request.number, EXTENDED_RESPONSE) + welcome)
        await writer.drain()
        await writer.start_tls(tls)
        return True

    server.faults[EXTENDED, 0] = injects
    server.password = b"secret"
    who = {"bind_dn": "cn=reader,dc=x", "password": b"guess", "authorities": authority.certificate.read_text()}
    assert isinstance(await failure(server, start_tls=True, **who), Refused)
    assert [each.kind for each in server.requests] == [EXTENDED, BIND]


@pytest.mark.parametrize(
    "uri",
    [
        *("ldap.example.com", "http://a", "ldap://", "ldap://a:x", "ldap://a/dc=x", "ldap://[::1", "ldap://a?x"),
        *("ldaps://ldap..example.com", "ldap://.example.com", f"ldap://{'a' * 64}.example.com"),
    ],
)
async def test_what_is_no_uri_gets_a_line(uri: str) -> None:
    with pytest.raises(Misconfigured, match="isn't the URI of a directory: write it as ldaps://ldap"):
        await read(Directory([uri], PEOPLE, GROUPS, RFC2307))


async def test_what_is_no_certificate_gets_a_line() -> None:
    with pytest.raises(Misconfigured, match="isn't a certificate"):
        await read(Directory(["ldaps://a"], PEOPLE, GROUPS, RFC2307, authorities="-----BEGIN CERTIFICATE-----\nx\n"))


async def test_two_readings_of_the_same_entries_are_equal(server: FakeDirectory) -> None:
    first = await read(where(server))
    server.trees[PEOPLE].reverse()
    assert await read(where(server)) == first
    assert isinstance(first, Found)
