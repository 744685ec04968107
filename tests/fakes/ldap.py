"""A directory that a test fills, breaks and asks what it was asked. It pages, and can hold values back as Active
Directory does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from seltzer.directory import ber
from seltzer.directory.messages import BASE, BIND_RESPONSE, DONE, ENTRY, EXTENDED_RESPONSE, REFERENCE, Entry

BIND, UNBIND, SEARCH, EXTENDED = 0x60, 0x42, 0x63, 0x77
PAGED = "1.2.840.113556.1.4.319"


@dataclass
class Request:
    """What a client wants."""

    number: int
    kind: int
    # What a bind is for, or where a search begins.
    dn: str = ""
    password: bytes = b""
    scope: int = 0
    filter: bytes = b""
    attributes: tuple[str, ...] = ()
    page: int = 0
    cookie: bytes = b""


Fault = Callable[["FakeDirectory", Request, asyncio.StreamWriter], Awaitable[bool]]
"""What happens instead of an answer; False: the answer follows after all."""


def result(
    number: int, tag: int, code: int = 0, text: str = "", *, cookie: bytes | None = None, more: bytes = b""
) -> bytes:
    """The message that ends an operation."""
    operation = ber.element(tag, ber.integer(code, ber.ENUMERATED), ber.text(""), ber.text(text), more)
    return message(number, operation, *([] if cookie is None else [paged(cookie)]))


def paged(cookie: bytes) -> bytes:
    value = ber.element(ber.SEQUENCE, ber.integer(0), ber.element(ber.OCTETS, cookie))
    return ber.element(0xA0, ber.element(ber.SEQUENCE, ber.text(PAGED), ber.element(ber.OCTETS, value)))


def message(number: int, *parts: bytes) -> bytes:
    return ber.element(ber.SEQUENCE, ber.integer(number), *parts)


def entry(number: int, dn: str, attributes: dict[str, list[bytes]]) -> bytes:
    """The message that holds an entry."""
    listed = [
        ber.element(
            ber.SEQUENCE, ber.text(name), ber.element(ber.SET, *(ber.element(ber.OCTETS, value) for value in values))
        )
        for name, values in attributes.items()
    ]
    return message(number, ber.element(ENTRY, ber.text(dn), ber.element(ber.SEQUENCE, *listed)))


def reference(number: int, *uris: str) -> bytes:
    return message(number, ber.element(REFERENCE, *map(ber.text, uris)))


@dataclass
class FakeDirectory:
    """Users and groups below ou=people and ou=groups. It answers searches by their base, whatever their filter."""

    trees: dict[str, list[Entry]] = field(default_factory=dict)
    password: bytes = b""
    # The fault for the nth request of a kind, counted from 0 and over all connections.
    faults: dict[tuple[int, int], Fault] = field(default_factory=dict)
    most_values: int = 1500
    can_page: bool = True
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    async def __aenter__(self) -> FakeDirectory:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._server.close()

    @property
    def uri(self) -> str:
        return f"{'ldaps' if self.tls else 'ldap'}://127.0.0.1:{self.port}"

    def add(self, base: str, dn: str, **attributes: str | bytes | Sequence[str | bytes]) -> None:
        values = {
            name: [one.encode() if isinstance(one, str) else one for one in ([v] if isinstance(v, str | bytes) else v)]
            for name, v in attributes.items()
        }
        self.trees.setdefault(base, []).append(Entry(f"{dn},{base}", values))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = ber.Frames(1 << 20)
        try:
            while chunk := await reader.read(65536):
                for frame in frames.feed(chunk):
                    request = parse(frame)
                    if request.kind == UNBIND:
                        return
                    count = sum(each.kind == request.kind for each in self.requests)
                    self.requests.append(request)
                    fault = self.faults.get((request.kind, count))
                    if not fault or not await fault(self, request, writer):
                        writer.write(self.answer(request))
                        await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def answer(self, request: Request) -> bytes:
        if request.kind == BIND:
            right = not request.dn or request.password == self.password
            return result(request.number, BIND_RESPONSE, 0 if right else 49, "" if right else "no such password")
        if request.kind == EXTENDED:
            return result(request.number, EXTENDED_RESPONSE, 2, "unsupported extended operation")
        if request.scope == BASE:
            found = [each for tree in self.trees.values() for each in tree if each.dn == request.dn]
            return b"".join(self._entry(request, each) for each in found) + result(request.number, DONE)
        if request.dn not in self.trees:
            return result(request.number, DONE, 32)
        tree = self.trees[request.dn]
        start = int(request.cookie or b"0")
        end = start + request.page if self.can_page and request.page else len(tree)
        cookie = str(end).encode() if end < len(tree) else b""
        done = result(request.number, DONE, cookie=cookie if self.can_page else None)
        return b"".join(self._entry(request, each) for each in tree[start:end]) + done

    def _entry(self, request: Request, found: Entry) -> bytes:
        """The attributes that are asked for, with as many values as may be returned at once."""
        attributes = {}
        for asked in request.attributes:
            name, _, range_ = asked.partition(";range=")
            values = next((each for key, each in found.attributes.items() if key.lower() == name.lower()), [])
            first = int(range_.partition("-")[0]) if range_ else 0
            last = first + self.most_values
            if range_ or len(values) > self.most_values:
                end = "*" if last >= len(values) else str(last - 1)
                attributes[f"{name};range={first}-{end}"] = values[first:last]
            elif values:
                attributes[name] = values
        return entry(request.number, found.dn, attributes)


def parse(frame: bytes) -> Request:
    """A client's message."""
    at, end = ber.expect(ber.SEQUENCE, frame, 0, len(frame))
    number, (kind, body) = _number(frame, at, end), _parts(frame, at, end)[1]
    request = Request(number, kind)
    parts = _parts(body, 0, len(body))
    if kind == BIND:
        request.dn, request.password = parts[1][1].decode(), parts[2][1]
    if kind == SEARCH:
        request.dn, request.scope = parts[0][1].decode(), parts[1][1][0]
        request.filter = parts[6][1]
        names = parts[7][1]
        request.attributes = tuple(name.decode() for _, name in _parts(names, 0, len(names)))
        for tag, content in _parts(frame, at, end)[2:]:
            assert tag == 0xA0
            for _, control in _parts(content, 0, len(content)):
                oid, *rest = _parts(control, 0, len(control))
                if oid[1].decode() == PAGED:
                    inner = rest[-1][1]
                    _, value = _parts(inner, 0, len(inner))[0]
                    (_, size), (_, request.cookie) = _parts(value, 0, len(value))
                    request.page = int.from_bytes(size, "big")
    return request


def _number(data: bytes, at: int, end: int) -> int:
    start, stop = ber.expect(ber.INTEGER, data, at, end)
    return ber.number(data, start, stop)


def _parts(data: bytes, at: int, end: int) -> list[tuple[int, bytes]]:
    found = []
    while at < end:
        tag, start, at = ber.header(data, at, end)
        found.append((tag, data[start:at]))
    return found
