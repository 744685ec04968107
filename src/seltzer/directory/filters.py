"""Search filters as people write them (RFC 4515), and as LDAP sends them."""

from __future__ import annotations

import re

from . import ber
from .errors import Misconfigured

_AND, _OR, _NOT, _EQUAL, _SUBSTRINGS, _AT_LEAST, _AT_MOST = 0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0xA5, 0xA6
_PRESENT, _SIMILAR, _EXTENSIBLE = 0x87, 0xA8, 0xA9
_INITIAL, _ANY, _FINAL = 0x80, 0x81, 0x82
_RULE, _TYPE, _VALUE, _OF_DN = 0x81, 0x82, 0x83, 0x84

_SETS = {"&": _AND, "|": _OR}
_COMPARISONS = {"=": _EQUAL, ">=": _AT_LEAST, "<=": _AT_MOST, "~=": _SIMILAR}
_ITEM = re.compile(
    r"(?P<type>[A-Za-z0-9][-A-Za-z0-9.;]*)?(?P<dn>:dn(?=:))?(?::(?P<rule>[A-Za-z0-9][-A-Za-z0-9.]*))?"
    r"(?P<operator>:=|[<>~]?=)(?P<value>[^()\0]*)\)"
)
_ESCAPED = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|)")
_DEEPEST = 32


def encode(filter: str) -> bytes:
    """The filter in BER, or Misconfigured with the place where it goes wrong."""
    encoded, end = _filter(filter, 0, 0)
    if end != len(filter):
        raise _wrong(filter, end, "the filter ends before this")
    return encoded


def every(*encoded: bytes) -> bytes:
    """What matches all of these filters."""
    return encoded[0] if len(encoded) == 1 else ber.element(_AND, *encoded)


def _filter(filter: str, at: int, depth: int) -> tuple[bytes, int]:
    """The filter that begins at `at`, and where it ends."""
    if filter[at : at + 1] != "(":
        raise _wrong(filter, at, 'a filter begins with "("')
    if depth > _DEEPEST:
        raise _wrong(filter, at, f"filters are nested more than {_DEEPEST} deep")
    sign = filter[at + 1 : at + 2]
    if sign not in ("&", "|", "!"):
        return _item(filter, at + 1)
    inner, end = [], at + 2
    while filter[end : end + 1] == "(":
        each, end = _filter(filter, end, depth + 1)
        inner.append(each)
    if filter[end : end + 1] != ")":
        raise _wrong(filter, end, '")" is missing')
    if not inner or (sign == "!" and len(inner) > 1):
        raise _wrong(filter, at, f"{sign} needs {'one filter' if sign == '!' else 'filters'} after it")
    return ber.element(_SETS.get(sign, _NOT), *inner), end + 1


def _item(filter: str, at: int) -> tuple[bytes, int]:
    found = _ITEM.match(filter, at)
    if not found:
        raise _wrong(filter, at, "expected attribute=value)")
    name, rule, operator, value = found["type"], found["rule"], found["operator"], found["value"]
    if operator == ":=":
        if not name and not rule:
            raise _wrong(filter, at, "an attribute or a matching rule is missing")
        parts = [ber.text(rule, _RULE)] if rule else []
        parts += [ber.text(name, _TYPE)] if name else []
        parts += [ber.element(_VALUE, _octets(filter, at, value))]
        parts += [ber.boolean(True, _OF_DN)] if found["dn"] else []
        return ber.element(_EXTENSIBLE, *parts), found.end()
    if not name or rule or found["dn"]:
        raise _wrong(filter, at, "expected attribute=value)")
    if operator == "=" and value == "*":
        return ber.text(name, _PRESENT), found.end()
    if operator == "=" and "*" in value:
        return _substrings(filter, at, name, value), found.end()
    compared = ber.element(ber.OCTETS, _octets(filter, at, value))
    return ber.element(_COMPARISONS[operator], ber.text(name), compared), found.end()


def _substrings(filter: str, at: int, name: str, value: str) -> bytes:
    pieces = [_octets(filter, at, piece) for piece in value.split("*")]
    if not all(pieces[1:-1]) or not any(pieces):
        raise _wrong(filter, at, "there is nothing between two *")
    tags = [_INITIAL, *[_ANY] * (len(pieces) - 2), _FINAL]
    parts = [ber.element(tag, piece) for tag, piece in zip(tags, pieces, strict=True) if piece]
    return ber.element(_SUBSTRINGS, ber.text(name), ber.element(ber.SEQUENCE, *parts))


def _octets(filter: str, at: int, value: str) -> bytes:
    """A value without its escapes."""

    def byte(found: re.Match[bytes]) -> bytes:
        if not found[1]:
            raise _wrong(filter, at, "a backslash needs two hexadecimal digits after it")
        return bytes.fromhex(found[1].decode())

    return _ESCAPED.sub(byte, value.encode())


def _wrong(filter: str, at: int, why: str) -> Misconfigured:
    return Misconfigured(f"the filter {filter[:200]!r} is wrong at character {at + 1}: {why}; correct it")
