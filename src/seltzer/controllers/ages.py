"""Since when we have seen what has to be so for a while, by our own clock.

An operator that has just begun has seen nothing yet, and waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from seltzer.kube.resource import Key


class Ages:
    """What each object's last look has seen."""

    def __init__(self) -> None:
        self._since: dict[Key, dict[Hashable, float]] = {}

    def of(self, key: Key, things: Iterable[Hashable], now: float) -> Mapping[Hashable, float]:
        """For how many seconds each of them has been there in every look; what isn't there any more is forgotten."""
        before = self._since.pop(key, {})
        if since := {thing: before.get(thing, now) for thing in things}:
            self._since[key] = since
        return {thing: now - began for thing, began in since.items()}

    def forget(self, key: Key) -> None:
        self._since.pop(key, None)
