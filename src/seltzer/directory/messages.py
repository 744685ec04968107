"""The LDAP messages (RFC 4511) for reading a directory: requests as bytes, and answers as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import ber

BIND_RESPONSE, ENTRY, DONE, REFERENCE, EXTENDED_RESPONSE = 0x61, 0x64, 0x65, 0x73, 0x78
_BIND, _UNBIND, _SEARCH, _EXTENDED = 0x60, 0x42, 0x63, 0x77
_SIMPLE, _REQUEST_NAME, _CONTROLS, _REFERRALS = 0x80, 0x80, 0xA0, 0xA3
_START_TLS = "1.3.6.1.4.1.1466.20037"
_PAGED = "1.2.840.113556.1.4.319"
_DOMAIN_SCOPE = "1.2.840.113556.1.4.1339"

BASE, SUBTREE = 0, 2
_NEVER_DEREFERENCE = 0


class Entry(NamedTuple):
    """One entry: its attributes by their names in lower case. An attribute's values have no order in LDAP."""

    dn: str
    attributes: dict[str, list[bytes]]


class Reference(NamedTuple):
    """A part of the tree is on these servers."""

    uris: tuple[str, ...]


class Result(NamedTuple):
    """How an operation ended. The cookie is for the next page; it is empty after the last one."""

    tag: int
    code: int
    text: str
    referrals: tuple[str, ...]
    cookie: bytes


def bind(message: int, dn: str, password: bytes) -> bytes:
    credentials = ber.element(_SIMPLE, password)
    return _message(message, ber.element(_BIND, ber.integer(3), ber.text(dn), credentials))


def unbind(message: int) -> bytes:
    return _message(message, ber.element(_UNBIND))


def start_tls(message: int) -> bytes:
    return _message(message, ber.element(_EXTENDED, ber.text(_START_TLS, _REQUEST_NAME)))


class Search(NamedTuple):
    """What to search. `filter` is encoded."""

    base: str
    filter: bytes
    attributes: Sequence[str]
    scope: int = SUBTREE
    # Active Directory refers to its other partitions unless it is asked not to.
    own_domain: bool = False

    def request(self, message: int, page: int, cookie: bytes) -> bytes:
        """The request for one page. A server that can't page ignores that, and returns everything at once."""
        operation = ber.element(
            _SEARCH,
            ber.text(self.base),
            ber.integer(self.scope, ber.ENUMERATED),
            ber.integer(_NEVER_DEREFERENCE, ber.ENUMERATED),
            ber.integer(0),
            ber.integer(0),
            ber.boolean(False),
            self.filter,
            ber.element(ber.SEQUENCE, *map(ber.text, self.attributes)),
        )
        paged = ber.element(ber.SEQUENCE, ber.integer(page), ber.element(ber.OCTETS, cookie))
        controls = [_control(_PAGED, paged)] if page else []
        controls += [_control(_DOMAIN_SCOPE)] if self.own_domain else []
        return _message(message, operation, *([ber.element(_CONTROLS, *controls)] if controls else []))


def _control(oid: str, value: bytes | None = None) -> bytes:
    return ber.element(ber.SEQUENCE, ber.text(oid), *([ber.element(ber.OCTETS, value)] if value else []))


def _message(message: int, *parts: bytes) -> bytes:
    return ber.element(ber.SEQUENCE, ber.integer(message), *parts)


def parse(data: bytes) -> tuple[int, Entry | Reference | Result | None]:
    """The number of the request that a message answers, and what it says; None if that doesn't matter to us.

    Malformed if it isn't a message from a server.
    """
    start, end = ber.expect(ber.SEQUENCE, data, 0, len(data))
    first, at = ber.expect(ber.INTEGER, data, start, end)
    message = ber.number(data, first, at)
    tag, start, stop = ber.header(data, at, end)
    if tag == ENTRY:
        return message, _entry(data, start, stop)
    if tag == REFERENCE:
        return message, Reference(tuple(_texts(data, start, stop)))
    if tag in (BIND_RESPONSE, DONE, EXTENDED_RESPONSE):
        return message, _result(tag, data, start, stop, end)
    return message, None


def _entry(data: bytes, start: int, stop: int) -> Entry:
    first, at = ber.expect(ber.OCTETS, data, start, stop)
    dn = data[first:at].decode(errors="backslashreplace")
    attributes: dict[str, list[bytes]] = {}
    at, stop = ber.expect(ber.SEQUENCE, data, at, stop)
    while at < stop:
        inner, end = ber.expect(ber.SEQUENCE, data, at, stop)
        first, inner = ber.expect(ber.OCTETS, data, inner, end)
        name = data[first:inner].decode(errors="backslashreplace").lower()
        first, last = ber.expect(ber.SET, data, inner, end)
        values = attributes.setdefault(name, [])
        while first < last:
            value, value_end = ber.expect(ber.OCTETS, data, first, last)
            values.append(data[value:value_end])
            first = value_end
        at = end
    return Entry(dn, attributes)


def _result(tag: int, data: bytes, start: int, stop: int, end: int) -> Result:
    first, at = ber.expect(ber.ENUMERATED, data, start, stop)
    code = ber.number(data, first, at)
    _, at = ber.expect(ber.OCTETS, data, at, stop)
    first, at = ber.expect(ber.OCTETS, data, at, stop)
    text = " ".join(data[first:at].decode(errors="replace").replace("\0", " ").split())
    referrals: tuple[str, ...] = ()
    if at < stop:
        inner, first, last = ber.header(data, at, stop)
        if inner == _REFERRALS:
            referrals = tuple(_texts(data, first, last))
    return Result(tag, code, text, referrals, _cookie(data, stop, end))


def _cookie(data: bytes, at: int, end: int) -> bytes:
    """What the control for paged results says, among the controls at `at`."""
    if at >= end:
        return b""
    at, end = ber.expect(_CONTROLS, data, at, end)
    while at < end:
        start, at = ber.expect(ber.SEQUENCE, data, at, end)
        first, last = ber.expect(ber.OCTETS, data, start, at)
        if data[first:last] != _PAGED.encode():
            continue
        tag, first, last = ber.header(data, last, at)
        if tag != ber.OCTETS:  # how critical it is
            first, last = ber.expect(ber.OCTETS, data, last, at)
        first, last = ber.expect(ber.SEQUENCE, data, first, last)
        _, first = ber.expect(ber.INTEGER, data, first, last)
        first, last = ber.expect(ber.OCTETS, data, first, last)
        return data[first:last]
    return b""


def _texts(data: bytes, at: int, end: int) -> Iterator[str]:
    while at < end:
        first, at = ber.expect(ber.OCTETS, data, at, end)
        yield data[first:at].decode(errors="backslashreplace")
