"""Reads all users and groups of a directory, at once and completely.

If anything is missing or doubtful the result is an error: users who are merely missing from an answer must never look
as if they were gone. An entry that can't be used is refused with a reason, and affects no other.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from . import accounts, filters
from .accounts import Account, Refusal
from .connection import Connection, Server, connected
from .errors import Incomplete, Misconfigured, Unreachable
from .groups import Group, Memberships
from .messages import Search
from .schema import PRIMARY_GROUP, Schema

# From the first connection to the last entry, over all servers.
DEADLINE = 180.0
MOST_GROUPS = 100_000
_TURN = 100


@dataclass(frozen=True)
class Directory:
    """A directory, what to read from it, and the account to use."""

    uris: Sequence[str]
    user_base: str
    group_base: str
    schema: Schema
    start_tls: bool = True
    # Certificates of authorities in PEM; None for the system's.
    authorities: str | None = None
    bind_dn: str = ""
    password: bytes = field(default=b"", repr=False)
    user_filter: str | None = None
    group_filter: str | None = None
    shell: str | None = None
    page_size: int = 1000
    most_users: int = 50_000

    def search_users(self) -> Search:
        found = _narrowed(self.schema.users, self.user_filter)
        return Search(self.user_base, found, self.schema.of_user, own_domain=self.schema.windows)

    def search_groups(self) -> Search:
        found = _narrowed(self.schema.groups, self.group_filter)
        return Search(self.group_base, found, self.schema.of_group, own_domain=self.schema.windows)

    def tls(self) -> ssl.SSLContext:
        """Verifies the server's certificate and its name."""
        try:
            context = ssl.create_default_context(cadata=self.authorities)
        except (ssl.SSLError, ValueError) as error:
            raise Misconfigured(
                f"the authority of the directory isn't a certificate ({error}): put one in PEM under the key ca.crt"
            ) from None
        # Many organisations' authorities don't follow RFC 5280 to the letter.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context


@dataclass(frozen=True)
class Found:
    """A whole directory: its users, its groups, and the entries that can't be used. All are sorted by name."""

    users: tuple[Account, ...]
    groups: tuple[Group, ...]
    refusals: tuple[Refusal, ...] = ()
    # Accounts that Active Directory has disabled.
    disabled: int = 0


async def read(directory: Directory) -> Found:
    """The directory as one of its servers has it, or a DirectoryError. Servers are tried in order.

    Only a server that gave no answer is followed by the next one: a wrong password would count on each of them.
    """
    searches = directory.search_users(), directory.search_groups()
    servers = [Server.of(uri) for uri in directory.uris]
    needed = directory.start_tls or any(server.tls_first for server in servers)
    # The system has many authorities: loading them takes a tenth of a second.
    tls = await asyncio.to_thread(directory.tls) if needed else None
    failures: list[str] = []
    try:
        async with asyncio.timeout(DEADLINE):
            for server in servers:
                try:
                    return await _read(
                        directory, server, tls if server.tls_first or directory.start_tls else None, *searches
                    )
                except Unreachable as error:
                    failures.append(str(error))
    except TimeoutError:
        raise Unreachable(
            f"{server.uri} needs more than {DEADLINE:g} s for all entries: narrow the filters or the bases, or "
            "give the directory indexes for them"
        ) from None
    raise Unreachable("; ".join(failures) or "the directory has no URI: add one")


async def _read(
    directory: Directory, server: Server, tls: ssl.SSLContext | None, users: Search, groups: Search
) -> Found:
    async with connected(server, tls) as connection:
        await connection.bind(directory.bind_dn, directory.password)
        reading = _Reading(directory, server.uri)
        # Groups come first: with Active Directory they have the IDs of users' primary groups.
        await reading.groups(connection, groups)
        await reading.users(connection, users)
    # Sorting 50,000 users into groups takes half a second: the loop goes on meanwhile.
    return await asyncio.to_thread(reading.found)


class _Reading:
    """What has been read so far. Entries of users aren't kept, so that one page of them is in memory at a time."""

    def __init__(self, directory: Directory, server: str) -> None:
        self._directory = directory
        self._server = server
        self._memberships = Memberships(directory.schema)
        self._users: list[Account] = []
        self._refusals: list[Refusal] = []
        self._disabled = 0
        self._entries = 0

    async def groups(self, connection: Connection, search: Search) -> None:
        count = 0
        async with aclosing(connection.pages(search, self._directory.page_size)) as pages:
            async for page in pages:
                count += len(page)
                if count > MOST_GROUPS:
                    raise Incomplete(
                        f"{self._server} has more than {MOST_GROUPS} groups: narrow groupFilter or groupBaseDN"
                    )
                for entry in page:
                    self._memberships.add_group(entry)

    async def users(self, connection: Connection, search: Search) -> None:
        directory, memberships = self._directory, self._memberships
        async with aclosing(connection.pages(search, directory.page_size)) as pages:
            async for page in pages:
                self._entries += len(page)
                if self._entries > directory.most_users:
                    raise Incomplete(
                        f"{self._server} has more than {directory.most_users} users (maxUsers): narrow userFilter or "
                        "userBaseDN, or raise maxUsers"
                    )
                for number, entry in enumerate(page):
                    user, refusals = accounts.account(entry, directory.schema, memberships.group_of, directory.shell)
                    self._refusals += refusals
                    if user:
                        self._users.append(user)
                        memberships.add_user(entry, user.name, accounts.number_of(entry, PRIMARY_GROUP))
                    elif not refusals:
                        self._disabled += 1
                    if number % _TURN == _TURN - 1:
                        await asyncio.sleep(0)

    def found(self) -> Found:
        """The result, if there are users in it."""
        if not self._entries:
            raise Incomplete(
                f"{self._server} returned no users below {self._directory.user_base or 'its root'}: check userBaseDN "
                "and userFilter, and that the account of bindSecret may read them"
            )
        count = Counter(user.name for user in self._users)
        for name in sorted(name for name, times in count.items() if times > 1):
            self._refusals.append(Refusal(name, f"{count[name]} entries have this name: rename all but one"))
        users = sorted((user for user in self._users if count[user.name] == 1), key=lambda user: user.name)
        if not users:
            raise Incomplete(
                f"{self._server} returned {self._entries} users, but none can be used"
                + (f" ({self._refusals[0].name}: {self._refusals[0].why})" if self._refusals else " (all are disabled)")
            )
        groups = self._memberships.resolve(user.name for user in users)
        refusals = sorted([*self._refusals, *self._memberships.refusals], key=lambda each: (each.name, each.why))
        return Found(tuple(users), tuple(groups), tuple(refusals), self._disabled)


def _narrowed(preset: str, filter: str | None) -> bytes:
    return filters.every(filters.encode(preset), *([filters.encode(filter)] if filter else []))
