"""The part of BER (X.690) that LDAP uses: tags of one byte, and lengths that are known in advance.

Elements are read by their position in one `bytes` object, so that no part of an answer is copied twice. Lengths may be
longer than necessary: Active Directory writes four bytes for each.
"""

from __future__ import annotations

INTEGER, OCTETS, ENUMERATED, SEQUENCE, SET = 0x02, 0x04, 0x0A, 0x30, 0x31
_BOOLEAN = 0x01
_LENGTH_BYTES = 4


class Malformed(ValueError):
    """These bytes aren't what they should be."""


def element(tag: int, *content: bytes) -> bytes:
    """An element with this content."""
    body = b"".join(content)
    size = len(body)
    if size < 128:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def integer(value: int, tag: int = INTEGER) -> bytes:
    return element(tag, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def boolean(value: bool, tag: int = _BOOLEAN) -> bytes:
    return element(tag, b"\xff" if value else b"\x00")


def text(value: str, tag: int = OCTETS) -> bytes:
    return element(tag, value.encode())


def header(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """The tag of the element at `at`, and where its content begins and ends. It ends before `end`, or is Malformed."""
    if at + 2 > end:
        raise Malformed("an element is cut off")
    length, start = data[at + 1], at + 2
    if length > 127:
        count = length & 127
        start += count
        if not 1 <= count <= _LENGTH_BYTES or start > end:
            raise Malformed("an element has an impossible length")
        length = int.from_bytes(data[at + 2 : start], "big")
    stop = start + length
    if stop > end:
        raise Malformed("an element is longer than the one around it")
    return data[at], start, stop


def expect(tag: int, data: bytes, at: int, end: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends, if it has this tag."""
    found, start, stop = header(data, at, end)
    if found != tag:
        raise Malformed(f"an element has tag {found:#x} instead of {tag:#x}")
    return start, stop


def number(data: bytes, start: int, stop: int) -> int:
    """The content of an INTEGER or ENUMERATED."""
    if not 1 <= stop - start <= 8:
        raise Malformed("a number has an impossible length")
    return int.from_bytes(data[start:stop], "big", signed=True)


class Frames:
    """Cuts a stream into messages, wherever the stream itself was cut."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._data = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The messages that are complete now. Malformed if it isn't a sequence of messages of at most `largest`."""
        self._data += chunk
        at, messages = 0, []
        while (size := self._size(at)) is not None and at + size <= len(self._data):
            messages.append(bytes(self._data[at : at + size]))
            at += size
        del self._data[:at]
        return messages

    def _size(self, at: int) -> int | None:
        """The size of the message at `at` with its header; None if that isn't here yet."""
        first = self._data[at : at + 2 + _LENGTH_BYTES]
        if first and first[0] != SEQUENCE:
            raise Malformed("this isn't LDAP")
        if len(first) < 2:
            return None
        if first[1] < 128:
            return 2 + first[1]
        count = first[1] & 127
        if not 1 <= count <= _LENGTH_BYTES:
            raise Malformed("a message has an impossible length")
        if len(first) < 2 + count:
            return None
        size = 2 + count + int.from_bytes(first[2 : 2 + count], "big")
        if size > self._largest:
            raise Malformed(f"a message has {size} bytes, more than {self._largest}")
        return size
