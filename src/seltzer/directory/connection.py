"""One connection to an LDAP server: trusted before anything secret is sent, and bounded in time and size.

An answer is complete or an error. Referrals aren't followed, since the password would go wherever they point.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from . import answers, ber, filters, messages
from .errors import DirectoryError, Incomplete, Misconfigured, Unreachable
from .messages import Entry, Reference, Result, Search

# Long enough even if the DNS server died: the resolver asks another one after 5 s.
CONNECT_DEADLINE = 6.0
# A server that works on a page for longer has no index for the filter, or is in trouble.
ANSWER_DEADLINE = 20.0
# An entry with 100,000 members takes 10 MB, 50,000 users take 40.
LARGEST_MESSAGE = 64 * 1024 * 1024
LARGEST_ANSWER = 512 * 1024 * 1024

_CHUNK = 64 * 1024
_RANGE = re.compile(r"(?P<name>[^;]+);range=(?P<first>[0-9]+)-(?P<last>[0-9]+|\*)")


@dataclass(frozen=True)
class Server:
    """Where a directory is: ldaps://HOST or ldap://HOST, with a port if it isn't the usual one."""

    uri: str
    host: str
    port: int
    tls_first: bool

    @classmethod
    def of(cls, uri: str) -> Server:
        try:
            parts = urlsplit(uri)
            host, port = parts.hostname, parts.port
            # The resolver would raise an error that isn't an OSError for a label that is empty or too long.
            (host or "").encode("idna")
        except ValueError:
            host = port = None
        if not host or parts.scheme not in ("ldap", "ldaps") or parts.path.strip("/") or parts.query:
            raise Misconfigured(f"{uri!r} isn't the URI of a directory: write it as ldaps://ldap.example.com")
        return cls(
            f"{parts.scheme}://{parts.netloc}",
            host,
            port or (636 if parts.scheme == "ldaps" else 389),
            parts.scheme == "ldaps",
        )


class Connection:
    """An open connection, with one request at a time."""

    def __init__(self, server: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._frames = ber.Frames(LARGEST_MESSAGE)
        self._waiting: list[bytes] = []
        self._message = 0
        self._received = 0

    async def bind(self, dn: str, password: bytes) -> None:
        """Log in; anonymously without a DN."""
        number = self._next()
        await self._send(messages.bind(number, dn, password))
        result = await self._result(number)
        if result.code != answers.SUCCESS:
            raise answers.refusal(self._server, result, dn)

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Encrypt the connection."""
        number = self._next()
        await self._send(messages.start_tls(number))
        result = await self._result(number)
        if result.code != answers.SUCCESS:
            raise Misconfigured(
                f"{self._server} doesn't do StartTLS ({result.text or result.code}): use an ldaps:// URI"
            )
        loop = asyncio.get_running_loop()
        # A new reader discards data injected before the TLS handshake.
        self._reader = asyncio.StreamReader(limit=_CHUNK, loop=loop)
        self._frames, self._waiting = ber.Frames(LARGEST_MESSAGE), []
        protocol = asyncio.StreamReaderProtocol(self._reader, loop=loop)
        transport = await loop.start_tls(
            self._writer.transport, protocol, context, server_hostname=host, ssl_handshake_timeout=CONNECT_DEADLINE
        )
        if transport is None:
            raise ConnectionResetError("the connection was closed during the handshake")
        protocol.connection_made(transport)
        # A StreamWriter that is garbage-collected closes its transport, which the new one still uses.
        self._below = self._writer
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)

    async def pages(self, search: Search, size: int) -> AsyncGenerator[list[Entry]]:
        """All entries of a search, page by page. If it ends without an error they are complete."""
        cookie = b""
        while True:
            entries, cookie = await self._page(search, size, cookie)
            yield [await self._with_all_values(entry) for entry in entries]
            if not cookie:
                return

    async def unbind(self) -> None:
        """Tell the server that the connection ends. It doesn't answer."""
        with contextlib.suppress(OSError, DirectoryError):
            await self._send(messages.unbind(self._next()))

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _page(self, search: Search, size: int, cookie: bytes) -> tuple[list[Entry], bytes]:
        number = self._next()
        await self._send(search.request(number, size, cookie))
        entries: list[Entry] = []
        while True:
            match await self._receive(number):
                case Entry() as entry:
                    entries.append(entry)
                case Reference(uris):
                    raise answers.referral(self._server, search.base, uris)
                case Result(messages.DONE) as result:
                    if result.code != answers.SUCCESS:
                        raise answers.refusal(self._server, result, search.base)
                    return entries, result.cookie
                case Result():
                    raise ber.Malformed("a search ended as something else")

    async def _with_all_values(self, entry: Entry) -> Entry:
        """The entry with all values: Active Directory returns at most 1,500 of an attribute at once."""
        found = [match for name in entry.attributes if (match := _RANGE.fullmatch(name))]
        for part in found:
            values, name = entry.attributes.pop(part[0]), part["name"]
            while part["last"] != "*":
                wanted = f"{name};range={int(part['last']) + 1}-*"
                search = Search(entry.dn, filters.encode("(objectClass=*)"), (wanted,), messages.BASE)
                more, _ = await self._page(search, 0, b"")
                matches = [match for each in more for key in each.attributes if (match := _RANGE.fullmatch(key))]
                if len(matches) != 1 or int(matches[0]["first"]) != int(part["last"]) + 1:
                    raise Incomplete(
                        f"{self._server} returned only a part of {name} of {entry.dn}, which may have been changed "
                        "meanwhile: no action needed, Seltzer tries again"
                    )
                part = matches[0]
                values += more[0].attributes[part[0]]
            entry.attributes[name] = [*entry.attributes.get(name, ()), *values]
        return entry

    def _next(self) -> int:
        self._message += 1
        return self._message

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(ANSWER_DEADLINE):
            await self._writer.drain()

    async def _result(self, number: int) -> Result:
        while True:
            if isinstance(found := await self._receive(number), Result):
                return found

    async def _receive(self, number: int) -> Entry | Reference | Result | None:
        """The next message to this request."""
        while not self._waiting:
            async with asyncio.timeout(ANSWER_DEADLINE):
                chunk = await self._reader.read(_CHUNK)
            if not chunk:
                raise Unreachable(f"{self._server} closed the connection before its answer was complete")
            self._received += len(chunk)
            if self._received > LARGEST_ANSWER:
                raise Incomplete(f"{self._server} returned more than {LARGEST_ANSWER} bytes: narrow the filters")
            self._waiting = self._frames.feed(chunk)[::-1]
            # Reading never waits while there is data, so other tasks get their turn here.
            await asyncio.sleep(0)
        said, found = messages.parse(self._waiting.pop())
        if said == 0 and isinstance(found, Result):
            raise Unreachable(f"{self._server} ends the connection: {found.text or f'LDAP result {found.code}'}")
        if said != number:
            raise ber.Malformed("a message answers nothing that was asked")
        return found


@contextlib.asynccontextmanager
async def connected(server: Server, tls: ssl.SSLContext | None) -> AsyncIterator[Connection]:
    """A connection, encrypted unless there is no context. Whatever goes wrong on it becomes a DirectoryError."""
    connection = None
    try:
        async with asyncio.timeout(CONNECT_DEADLINE):
            reader, writer = await asyncio.open_connection(
                server.host, server.port, limit=_CHUNK, ssl=tls if server.tls_first else None
            )
        connection = Connection(server.uri, reader, writer)
        if tls and not server.tls_first:
            await connection.start_tls(tls, server.host)
        yield connection
        await connection.unbind()
    except ssl.SSLError as error:
        raise answers.untrusted(server.uri, server.host, error) from error
    except TimeoutError:
        what = (
            f"no answer within {ANSWER_DEADLINE:g} s" if connection else f"no connection within {CONNECT_DEADLINE:g} s"
        )
        raise Unreachable(
            f"{server.uri} can't be reached: {what}: check the address, the network and the server"
        ) from None
    except socket.gaierror as error:
        raise Unreachable(f"{server.uri} can't be reached: {error.strerror}: check the host name") from error
    except OSError as error:
        raise Unreachable(f"{server.uri} can't be reached: {_why(error, server, tls)}") from error
    except ber.Malformed as error:
        raise Unreachable(f"{server.uri} doesn't speak LDAP correctly: {error}: check the port") from error
    finally:
        if connection:
            connection.abort()


def _why(error: OSError, server: Server, tls: ssl.SSLContext | None) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: check the port, and whether the server runs"
    if tls and isinstance(error, ConnectionError):
        # A server that isn't prepared for TLS closes the connection, and so does a firewall.
        return f"it closed the connection: check that port {server.port} is for {server.uri.split(':')[0]}://"
    return f"{error.strerror or error or type(error).__name__}: check the address and the network"
