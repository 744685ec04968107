"""A real slapd is read completely, or not at all with one line that says what to do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.slapd import ADMIN, BLIND, GROUPS, PASSWORD, PEOPLE, SMALL, SUFFIX, Attributes, Entry, Slapd, user

from seltzer.directory.accounts import Account
from seltzer.directory.directory import Directory, read
from seltzer.directory.errors import DirectoryError, Incomplete, Misconfigured, Refused, Unreachable
from seltzer.directory.groups import Group
from seltzer.directory.schema import ACTIVE_DIRECTORY, RFC2307, RFC2307BIS
from seltzer_sandbox.run.pki import Authority

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ada@laptop"
MANY = 2500


@pytest.fixture(scope="module")
def slapd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    """2,500 users, and groups that name them."""
    users = [user(f"u{n:04}", 10_000 + n) for n in range(MANY - 1)]
    ada = user("ada", 2001, loginShell="/bin/zsh", sshPublicKey=KEY)
    hpc: Attributes = {
        "objectClass": "posixGroup",
        "cn": "hpc",
        "gidNumber": 3000,
        "memberUid": ["ada", "u0007", "nobody-here"],
    }
    server = Slapd(tmp_path_factory.mktemp("slapd"), [*users, ada, (f"cn=hpc,{GROUPS}", hpc)])
    server.start()
    yield server
    server.stop()


def where(slapd: Slapd, **changes: Any) -> Directory:
    """The directory by ldaps."""
    found = Directory([slapd.secure_uri], PEOPLE, GROUPS, RFC2307, authorities=slapd.authority)
    return dataclasses.replace(found, **changes)


async def failure(slapd: Slapd, **changes: Any) -> DirectoryError:
    with pytest.raises(DirectoryError) as error:
        await read(where(slapd, **changes))
    assert "\n" not in str(error.value)
    return error.value


# --- what is read -----------------------------------------------------------------------------------------------------


async def test_all_entries_are_read_page_by_page(slapd: Slapd) -> None:
    found = await read(where(slapd))
    assert len(found.users) == MANY
    assert found.users[0] == Account("ada", 2001, 3000, "ada of example", "/bin/zsh", (KEY,))
    assert found.users[-1].name == f"u{MANY - 2:04}"
    assert found.groups == (Group("hpc", 3000, ("ada", "u0007")),)
    assert found.refusals == ()


async def test_start_tls_comes_before_the_password(slapd: Slapd) -> None:
    found = await read(where(slapd, uris=[slapd.uri], bind_dn=ADMIN, password=PASSWORD))
    assert len(found.users) == MANY


async def test_without_tls_it_works_if_that_is_meant(slapd: Slapd) -> None:
    assert len((await read(where(slapd, uris=[slapd.uri], start_tls=False))).users) == MANY


@pytest.mark.parametrize(
    ("filter", "names"),
    [
        ("(uid=ada)", ["ada"]),
        ("(&(uidNumber>=10003)(uidNumber<=10005)(!(uid=u0004)))", ["u0003", "u0005"]),
        ("(|(uid=a*a)(uid=*0017))", ["ada", "u0017"]),
        (r"(cn=\61da of*)", ["ada"]),
        ("(uid:caseIgnoreMatch:=ADA)", ["ada"]),
        ("(&(loginShell=*)(cn~=ada of example))", ["ada"]),
    ],
)
async def test_slapd_understands_our_filters(slapd: Slapd, filter: str, names: Sequence[str]) -> None:
    found = await read(where(slapd, user_filter=filter, page_size=10))
    assert [each.name for each in found.users] == list(names)


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def test_an_unknown_authority_is_not_trusted(slapd: Slapd, tmp_path: Path) -> None:
    other = Authority(tmp_path, "ca")
    other.create()
    for uris in ([slapd.secure_uri], [slapd.uri]):
        error = await failure(slapd, uris=uris, authorities=other.certificate.read_text())
        assert isinstance(error, Unreachable)
        assert f"{uris[0]} isn't trusted: its certificate isn't signed by an authority that we know" in str(error)


async def test_a_certificate_for_another_name_is_not_trusted(slapd: Slapd) -> None:
    error = await failure(slapd, uris=[f"ldaps://localhost:{slapd.ports[1]}"])
    assert "isn't trusted: its certificate is for another name than localhost" in str(error)


async def test_tls_at_the_port_without_it_says_so(slapd: Slapd) -> None:
    error = await failure(slapd, uris=[f"ldaps://127.0.0.1:{slapd.ports[0]}"])
    assert isinstance(error, Unreachable)
    assert f"it closed the connection: check that port {slapd.ports[0]} is for ldaps://" in str(error)


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        (
            {"bind_dn": ADMIN, "password": b"guess"},
            Refused,
            "it doesn't accept the DN and password: correct the Secret",
        ),
        ({"bind_dn": "nonsense", "password": b"x"}, Misconfigured, "it can't read the DN nonsense: correct it"),
        (
            {"user_base": f"ou=nowhere,{SUFFIX}"},
            Misconfigured,
            f"there is no entry ou=nowhere,{SUFFIX}, or the account",
        ),
        ({"group_base": "nonsense"}, Misconfigured, "it can't read the DN nonsense: correct it"),
        ({"user_base": "dc=elsewhere"}, Misconfigured, "there is no entry dc=elsewhere"),
        ({"bind_dn": SMALL, "password": PASSWORD}, Incomplete, "its size limit cut the answer: raise the limit"),
        ({"bind_dn": SMALL, "password": PASSWORD, "page_size": 10_000}, Incomplete, "its size limit cut the answer"),
        ({"bind_dn": BLIND, "password": PASSWORD}, Misconfigured, f"there is no entry {GROUPS}, or the account"),
        ({"user_filter": "(uid=nobody-here)"}, Incomplete, f"returned no users below {PEOPLE}: check userBaseDN"),
    ],
)
async def test_what_slapd_refuses_is_one_line(
    slapd: Slapd, changes: dict[str, Any], kind: type[DirectoryError], says: str
) -> None:
    error = await failure(slapd, **changes)
    assert type(error) is kind
    assert says in str(error)


@contextlib.asynccontextmanager
async def between(slapd: Slapd, then: Any, after: int) -> AsyncIterator[str]:
    """The URI of a relay that calls `then` as soon as slapd has sent so many bytes."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", slapd.ports[0])

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, limit: int | None) -> None:
            while data := await source.read(4096):
                target.write(data)
                await target.drain()
                if limit is not None and (limit := limit - len(data)) <= 0:
                    then()
                    limit = None
            target.close()

        with contextlib.suppress(OSError):
            await asyncio.gather(copy(reader, inner_writer, None), copy(inner_reader, writer, after))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        yield f"ldap://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_slapd_that_is_killed_in_the_middle_gives_no_result(tmp_path: Path) -> None:
    victim = Slapd(tmp_path, [user(f"u{n:04}", 10_000 + n) for n in range(1000)])
    victim.start()
    try:
        async with between(victim, lambda: victim.process.send_signal(signal.SIGKILL), 50_000) as uri:
            error = await failure(victim, uris=[uri], start_tls=False, page_size=100)
        assert isinstance(error, Unreachable)
        error = await failure(victim)
        assert f"{victim.secure_uri} can't be reached: nothing listens there: check the port" in str(error)
    finally:
        victim.stop()


async def test_a_slapd_that_is_frozen_in_the_middle_gives_no_result_and_is_not_waited_for(
    slapd: Slapd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seltzer.directory.connection.ANSWER_DEADLINE", 0.5)
    try:
        async with between(slapd, lambda: slapd.process.send_signal(signal.SIGSTOP), 50_000) as uri:
            error = await failure(slapd, uris=[uri], start_tls=False, page_size=100)
        assert "no answer within 0.5 s" in str(error)
    finally:
        slapd.process.send_signal(signal.SIGCONT)


# --- other schemas ----------------------------------------------------------------------------------------------------


def group(name: str, gid: int | None, *members: str) -> Entry:
    classes = ["groupOfNames", *(["posixGroup"] if gid else [])]
    attributes: dict[str, Any] = {"objectClass": classes, "cn": name, "member": members}
    return f"cn={name},{GROUPS}", {**attributes, **({"gidNumber": gid} if gid else {})}


async def test_groups_of_rfc2307bis_refer_to_entries_and_to_each_other(tmp_path: Path) -> None:
    ada, bob = user("ada", 2001), user("bob", 2002)
    comma = (rf"cn=Lovelace\, Ida,{PEOPLE}", {**user("ida", 2003)[1], "cn": "Lovelace, Ida"})
    groups = [
        group("hpc", 3000, ada[0], f"CN=Labs, {GROUPS}", "cn=gone,dc=example,dc=com"),
        group("labs", 3001, bob[0].upper(), rf"cn=lovelace\2c ida,{PEOPLE}", f"cn=hpc,{GROUPS}"),
    ]
    server = Slapd(tmp_path, [ada, bob, comma, *groups], bis=True)
    server.start()
    try:
        found = await read(where(server, schema=RFC2307BIS))
    finally:
        server.stop()
    everybody = ("ada", "bob", "ida")
    assert found.groups == (Group("hpc", 3000, everybody), Group("labs", 3001, everybody))


def windows(name: str, *classes: str, **more: str | int) -> Entry:
    """An entry as Active Directory has it, with what Microsoft's schema requires."""
    required: Attributes = {"instanceType": 4, "objectCategory": SUFFIX, "nTSecurityDescriptor": "x"}
    base = GROUPS if "group" in classes else PEOPLE
    both: Attributes = {"objectClass": [*classes, "extensibleObject"], "cn": name, "sAMAccountName": name}
    return f"cn={name},{base}", {**both, **required, **more}


async def test_active_directory_has_disabled_accounts_and_primary_groups(tmp_path: Path) -> None:
    """With Microsoft's schema, as OpenLDAP has it. There, objectCategory is a DN, and no word stands for one."""
    sid = base64.b64encode(bytes.fromhex("010500000000000515000000aaaaaaaabbbbbbbbcccccccc01020000")).decode()
    entries = [
        windows("Ada", "user", sn="Ada", uidNumber=2001, userAccountControl=512, primaryGroupID=513),
        windows("Eve", "user", sn="Eve", uidNumber=2002, userAccountControl=514, primaryGroupID=513),
        windows("Everybody", "group", groupType=2, gidNumber=3513, **{"objectSid:": sid}),
        windows("HPC", "group", groupType=2, gidNumber=3000, member=f"cn=Everybody,{GROUPS}"),
    ]
    server = Slapd(tmp_path, entries, extra_schemas=["msuser"])
    server.start()
    try:
        schema = dataclasses.replace(ACTIVE_DIRECTORY, users="(&(objectClass=user)(uidNumber=*))")
        found = await read(where(server, schema=schema))
    finally:
        server.stop()
    assert [(each.name, each.uid, each.gid) for each in found.users] == [("ada", 2001, 3513)]
    assert found.disabled == 1
    assert found.groups == (Group("everybody", 3513, ("ada",)), Group("hpc", 3000, ("ada",)))
