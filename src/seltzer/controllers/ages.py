"""Since when we have seen facts that have to last before a plan acts on them, by our own clock.

An operator that has just started has seen nothing yet, and waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from seltzer.kube.resource import Key


class Ages:
    """The facts of each object's last pass, with the time of the first."""

    def __init__(self) -> None:
        self._since: dict[Key, dict[Hashable, float]] = {}

    def of(self, key: Key, things: Iterable[Hashable], now: float) -> Mapping[Hashable, float]:
        """For how many seconds each fact has held in every pass. One that no longer holds is forgotten."""
        before = self._since.pop(key, {})
        if since := {thing: before.get(thing, now) for thing in things}:
            self._since[key] = since
        return {thing: now - began for thing, began in since.items()}

    def forget(self, key: Key) -> None:
        self._since.pop(key, None)
