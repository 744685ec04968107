"""Lines of a watch, however they are cut into pieces."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import virtual_time

from seltzer.kube import watch
from seltzer.kube.errors import Gone, ServerError, Unavailable
from seltzer.kube.watch import Bookmark, Changed, Decoder, Deleted, Skipped


class Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class Thing(msgspec.Struct):
    metadata: Meta


class Pieces:
    """A body that comes in pieces, and then ends, fails or hangs."""

    def __init__(self, pieces: list[bytes], end: Exception | None = None, hang: bool = False) -> None:
        self._pieces, self._end, self._hang = pieces, end, hang

    async def iter_any(self) -> Any:
        for piece in self._pieces:
            yield piece
        if self._end:
            raise self._end
        if self._hang:
            await asyncio.Event().wait()


async def read(pieces: Pieces, silence: float = 5.0) -> list[bytes]:
    return [line async for batch in watch.lines(pieces, silence) for line in batch]  # type: ignore[arg-type]


def line(kind: str, thing: object) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode()


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda text: b"\n" not in text), max_size=6), st.data())
def test_lines_are_whole_wherever_the_stream_is_cut(texts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(text + b"\n" for text in texts) + b"a line that is never finis"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert virtual_time.run(read(Pieces(pieces))) == texts


async def test_a_silent_watch_is_given_up() -> None:
    with pytest.raises(Unavailable, match="received nothing"):
        await read(Pieces([b"x\n"], hang=True), silence=0.01)


async def test_a_cut_watch_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="interrupted"):
        await read(Pieces([b"x\n"], aiohttp.ClientPayloadError("half")))


async def test_a_line_without_end_does_not_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_LINE", 1000)
    with pytest.raises(Unavailable, match="longer than"):
        await read(Pieces([b"x" * 600] * 10))


def test_events_are_told_apart_in_any_order_of_keys() -> None:
    decoder = Decoder(Thing)
    thing = {"metadata": {"name": "a", "resourceVersion": "7"}}
    assert isinstance(decoder.decode(line("ADDED", thing)), Changed)
    assert isinstance(decoder.decode(line("MODIFIED", thing)), Changed)
    assert isinstance(decoder.decode(line("DELETED", thing)), Deleted)
    turned = json.dumps({"object": {"metadata": {"resourceVersion": "9"}}, "type": "BOOKMARK"}).encode()
    assert decoder.decode(turned) == Bookmark("9", False)
    last = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    assert decoder.decode(line("BOOKMARK", last)) == Bookmark("9", True)


def test_an_object_that_does_not_fit_is_skipped_and_not_fatal() -> None:
    decoder = Decoder(Thing)
    assert isinstance(decoder.decode(line("ADDED", {"metadata": {"name": 7}})), Skipped)
    assert isinstance(decoder.decode(line("ADDED", {"metadata": {"name": "a"}})), Changed)


def test_errors_in_the_stream_are_raised() -> None:
    decoder = Decoder(Thing)
    with pytest.raises(Gone):
        decoder.decode(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))
    with pytest.raises(ServerError):
        decoder.decode(line("ERROR", {"kind": "Status", "message": "?"}))


@pytest.mark.parametrize(
    "text", [b"", b"<html>", b"{}", b"[]", b'{"type":"ADDED","object":{"meta', b'\xff\xfe"', b"null"]
)
def test_a_line_that_makes_no_sense_is_unavailable(text: bytes) -> None:
    with pytest.raises(Unavailable):
        Decoder(Thing).decode(text)


def test_an_unknown_event_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="RENAMED"):
        Decoder(Thing).decode(line("RENAMED", {}))
