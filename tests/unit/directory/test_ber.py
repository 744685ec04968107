"""BER as LDAP uses it: what is written is read back, however the stream is cut, and nonsense is Malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.directory import ber
from seltzer.directory.ber import Frames, Malformed

MESSAGES = st.lists(st.binary(max_size=300).map(lambda content: ber.element(ber.SEQUENCE, content)), max_size=6)


@given(st.integers(-(2**62), 2**62))
def test_a_number_is_read_back(number: int) -> None:
    data = ber.integer(number)
    start, stop = ber.expect(ber.INTEGER, data, 0, len(data))
    assert ber.number(data, start, stop) == number


@pytest.mark.parametrize("size", [0, 1, 127, 128, 255, 256, 65535, 65536])
def test_an_element_is_as_long_as_its_content(size: int) -> None:
    data = ber.element(ber.OCTETS, b"x" * size)
    assert ber.header(data, 0, len(data)) == (ber.OCTETS, len(data) - size, len(data))


def test_lengths_may_have_more_bytes_than_they_need() -> None:
    assert ber.header(b"\x04\x84\x00\x00\x00\x01x", 0, 7) == (ber.OCTETS, 6, 7)
    assert Frames(100).feed(b"\x30\x84\x00\x00\x00\x01x") == [b"\x30\x84\x00\x00\x00\x01x"]


@pytest.mark.parametrize("data", [b"", b"\x04", b"\x04\x02x", b"\x04\x80", b"\x04\x85\0\0\0\0\1x", b"\x04\x82\x01"])
def test_an_element_that_cannot_be_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        ber.header(data, 0, len(data))


@given(MESSAGES, st.data())
def test_messages_are_found_wherever_the_stream_is_cut(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    frames = Frames(1000)
    found = [
        each
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for each in frames.feed(stream[start:end])
    ]
    assert found == messages


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 400 Bad Request",
        b"\x15\x03\x01\x00\x02\x02\x50",
        b"\x30\x80",
        b"\x30\x85",
        b"\x30\x84\x7f\xff\xff\xff",
    ],
)
def test_a_stream_of_something_else_is_malformed(stream: bytes) -> None:
    with pytest.raises(Malformed):
        Frames(1000).feed(stream)


@given(st.binary(max_size=64))
def test_any_bytes_are_messages_or_malformed(stream: bytes) -> None:
    frames = Frames(1000)
    try:
        found = frames.feed(stream)
    except Malformed:
        return
    assert stream.startswith(b"".join(found))
