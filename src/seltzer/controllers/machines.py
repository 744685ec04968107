"""Kubernetes nodes as a plan sees them: their state, and since when, by our own clock.

Conditions have timestamps by the clock of their writer. What counts here is for how long we have seen a node unchanged;
an operator that has just started has seen nothing yet, and waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from seltzer.api.core import Node
from seltzer.kube.resource import Key
from seltzer.kube.store import Store
from seltzer.plan.nodeset import drain_causes
from seltzer.plan.nodeset.drain_causes import RESTLESS_CHANGES, Machine

_WINDOW = 120.0
# A pod may arrive before its new node does. A node that is missing for longer than this doesn't exist.
MISSING_SECONDS = 10.0


@dataclass
class _History:
    since: float
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=RESTLESS_CHANGES))


class Machines:
    """All Kubernetes nodes. `following` returns for how many seconds the watch of nodes has run without a break."""

    def __init__(
        self, nodes: Store[Node], following: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nodes = nodes
        self._following = following
        self._clock = clock
        self._seen: dict[str, _History] = {}
        # Nodes that we never saw: when they were first looked for, and when last.
        self._missed: dict[str, tuple[float, float]] = {}
        nodes.watch(self._on_node)

    def of(self, names: Iterable[str]) -> dict[str, Machine]:
        """The machines of which something is known, including that they are gone."""
        return {name: machine for name in names if name and (machine := self._machine(name))}

    def _machine(self, name: str) -> Machine | None:
        now = self._clock()
        history = self._seen.get(name)
        if history is None:
            missing = self._missing(name, now)
            return Machine(None, missing) if missing >= MISSING_SECONDS else None
        recent = sum(now - each <= _WINDOW for each in history.changes)
        return Machine(self._nodes.get(Key("", name)), now - history.since, recent)

    def _missing(self, name: str, now: float) -> float:
        """For how many seconds a node that we never saw has been looked for, with the watch running."""
        first, last = self._missed.get(name, (now, now))
        if now - last > MISSING_SECONDS:
            first = now  # no pod was on it in between: this may be a new node with an old name
        self._missed[name] = (first, now)
        return min(now - first, self._following())

    def _on_node(self, before: Node | None, after: Node | None) -> None:
        if not differs(before, after):
            return
        item = after or before
        assert item
        now = self._clock()
        self._missed.pop(item.metadata.name, None)
        history = self._seen.setdefault(item.metadata.name, _History(now))
        # A cordon is two changes, of a field and of a taint: only its effect counts.
        if drain_causes.words(before, ()) != drain_causes.words(after, ()):
            history.since = now
            if before is not None:
                history.changes.append(now)


def differs(before: Node | None, after: Node | None) -> bool:
    """Whether a Kubernetes node has changed in something that matters: not by a heartbeat."""
    return before is None or after is None or _matters(before) != _matters(after)


def _matters(node: Node) -> object:
    return (node.spec, node.status, node.metadata.deletion_timestamp, node.metadata.labels)
