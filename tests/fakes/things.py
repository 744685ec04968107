"""An object with nothing in it but what the runtime itself reads, and a colour to find it by."""

from __future__ import annotations

import msgspec


class Meta(msgspec.Struct, frozen=True):
    name: str
    resource_version: str
    namespace: str = "ns"
    uid: str = ""


class Thing(msgspec.Struct, frozen=True):
    metadata: Meta
    colour: str = ""
