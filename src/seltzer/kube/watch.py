"""Decodes the lines of a watch into events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

import aiohttp
import msgspec

from seltzer.kube.errors import Unavailable, from_answer
from seltzer.kube.resource import HasMeta

T = TypeVar("T", bound=HasMeta)

MOST_LINE = 16 << 20
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Everything up to this resourceVersion has been sent; `initial` marks the end of a new watch's initial state."""

    resource_version: str
    initial: bool


class Changed(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object's current state."""

    item: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """An object's last state."""

    item: T


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """An object that our Struct can't hold. It must not hide all others."""

    reason: str


class _Line(msgspec.Struct, gc=False):
    """The envelope. The object stays raw until its type is known, which may come after it in the line."""

    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str
    annotations: dict[str, str] | None = None


class _BookmarkObject(msgspec.Struct, gc=False):
    metadata: _BookmarkMeta


class Decoder(Generic[T]):
    """Decodes lines into events; one per watch."""

    def __init__(self, kind: type[T]) -> None:
        self._line = msgspec.json.Decoder(_Line)
        self._object = msgspec.json.Decoder(kind)

    def decode(self, line: bytes | memoryview) -> Changed[T] | Deleted[T] | Bookmark | Skipped:
        """Raises the error that the server sends in the stream, or Unavailable for a malformed line."""
        try:
            event = self._line.decode(line)
            if event.type in ("ADDED", "MODIFIED", "DELETED"):
                return self._item(event)
            if event.type == "BOOKMARK":
                metadata = msgspec.json.decode(event.object, type=_BookmarkObject).metadata
                initial = (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"
                return Bookmark(metadata.resource_version, initial)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"a line of a watch is malformed: {error}") from None
        if event.type == "ERROR":
            raise from_answer(500, bytes(event.object))
        raise Unavailable(f"a watch sent an event of unknown type {event.type!r}")

    def _item(self, event: _Line) -> Changed[T] | Deleted[T] | Skipped:
        try:
            item = self._object.decode(event.object)
        except msgspec.ValidationError as error:
            return Skipped(f"{error} in {bytes(event.object)[:200].decode(errors='replace')}")
        return Deleted(item) if event.type == "DELETED" else Changed(item)


async def lines(content: aiohttp.StreamReader, silence: float) -> AsyncIterator[list[bytes]]:
    """Complete lines, as many at a time as have arrived. Ends when the server ends the stream.

    Raises Unavailable after `silence` seconds without data: a connection to a machine that is gone is never reset and
    just stays silent, while a live server sends bookmarks. A line that is cut off by the end is dropped.
    """
    rest = b""
    chunks = content.iter_any().__aiter__()
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await chunks.__anext__()
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Unavailable(f"a watch received nothing for {silence:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"a watch was interrupted: {error}") from None
        whole = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        rest = whole.pop()
        if len(rest) > MOST_LINE:
            raise Unavailable(f"a line of a watch is longer than {MOST_LINE >> 20} MiB")
        if whole:
            yield [line for line in whole if line]
