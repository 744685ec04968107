"""One HTTP exchange with one of Slurm's daemons: bounded in time, size and number, and never redirected.

It is our own because slurmrestd 26.05 violates HTTP in two ways that strict clients, aiohttp among them, reject: it
sends every error response twice, and with `Connection: close` it writes that header after the body. This client reads
the first response, exactly as long as it claims to be, and then closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from seltzer.slurm.errors import Unavailable

# slurmrestd tries for 10 s to reach slurmctld before it reports that it can't.
DEADLINE = 15.0
# A live server accepts a connection at once. A pod that has just died says nothing, and its successor is known soon.
# Long enough even if the DNS server died with it: the resolver asks another one after 5 s.
CONNECT_DEADLINE = 6.0
# 30,000 nodes are 76 MB.
LARGEST_ANSWER = 128 * 1024 * 1024
CONNECTIONS = 4

BUFFER = 1024 * 1024
HEADER_LIMIT = 64 * 1024
NO_BODY = frozenset({204, 304})


class Answer(NamedTuple):
    """A complete response."""

    status: int
    body: bytes

    @property
    def gist(self) -> str:
        """The first words of the body, for an error message."""
        text = " ".join(self.body[:400].decode(errors="replace").split())
        return f"{text[:119]}…" if len(text) > 120 else text or "nothing"


class Http:
    """Exchanges with one server. Each ends by its deadline, with an Answer or with Unavailable.

    Every exchange has its own connection: if the server has meanwhile closed a reused one, the outcome of a write is
    unknown. A Service also spreads new connections over all its pods.
    """

    def __init__(
        self,
        base: str,
        *,
        deadline: float = DEADLINE,
        largest: int = LARGEST_ANSWER,
        connections: int = CONNECTIONS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        where = urlsplit(base)
        if where.scheme not in ("http", "https") or not where.hostname:
            raise ValueError(f"{base!r} isn't the URL of a server")
        self.base = base.rstrip("/")
        self._host = where.hostname
        self._port = where.port or (443 if where.scheme == "https" else 80)
        self._prefix = where.path.rstrip("/")
        self._tls = (tls or ssl.create_default_context()) if where.scheme == "https" else None
        self._deadline = deadline
        self._largest = largest
        self._free = asyncio.Semaphore(connections)

    async def exchange(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Send `body` to `path`, which is already percent-encoded, and read the whole response."""
        request = self._request(method, path, headers or {}, body)
        try:
            # Waiting for a free connection is no failure: the deadline starts when the request is sent, so it passes.
            async with self._free, asyncio.timeout(self._deadline), self._connected() as (reader, writer):
                writer.write(request)
                await writer.drain()
                return await self._answer(reader)
        except TimeoutError:
            raise Unavailable(f"{self.base} gave no answer within {self._deadline:g} s") from None
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise Unavailable(f"{self.base} gave an answer that ends too early or isn't HTTP") from None
        except OSError as error:
            raise Unavailable(f"{self.base} can't be reached: {error}") from error

    def _request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._host}:{self._port}", "Accept: */*"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}"] if body or method != "GET" else []
        if not all(line.isprintable() and line.isascii() for line in lines):
            raise ValueError("a request's path and headers are printable ASCII")
        return "\r\n".join([*lines, "", ""]).encode() + body

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        try:
            async with asyncio.timeout(CONNECT_DEADLINE):
                reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=BUFFER)
        except TimeoutError:
            raise Unavailable(f"{self.base} can't be reached: no connection within {CONNECT_DEADLINE:g} s") from None
        try:
            yield reader, writer
        finally:
            # Nobody waits for anything else that the server may send.
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head[:HEADER_LIMIT].decode("latin-1").split("\r\n")
        words = line.split(" ", 2)
        if not words[0].startswith("HTTP/1.") or not words[1:] or not words[1].isdecimal() or len(head) > HEADER_LIMIT:
            raise Unavailable(f"{self.base} doesn't speak HTTP: {line[:80]!r}")
        status = int(words[1])
        headers = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        return Answer(status, b"" if status in NO_BODY else await self._body(reader, headers))

    async def _body(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunks(reader)
        if "content-length" in headers:
            return await reader.readexactly(self._bounded(headers["content-length"], 10))
        body = bytearray()
        while chunk := await reader.read(BUFFER):
            body += chunk
            self._bounded(str(len(body)), 10)
        return bytes(body)

    async def _chunks(self, reader: asyncio.StreamReader) -> bytes:
        body = bytearray()
        while True:
            line = await reader.readuntil(b"\r\n")
            size = self._bounded(line.split(b";")[0].decode("latin-1").strip(), 16)
            if size == 0:
                return bytes(body)
            self._bounded(str(len(body) + size), 10)
            body += (await reader.readexactly(size + 2))[:-2]

    def _bounded(self, size: str, base: int) -> int:
        """A size that the server claims, if it is a number and within our limit."""
        try:
            number = int(size[:20], base)
        except ValueError:
            number = -1
        if number < 0:
            raise Unavailable(f"{self.base} says that its answer is {size[:20]!r} long")
        if number > self._largest or len(size) > 20:
            raise Unavailable(f"{self.base} answered with more than {self._largest} bytes")
        return number
