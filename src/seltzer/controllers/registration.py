"""How a controller is registered: its kind, what it owns and what else it watches. All wiring follows from that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from seltzer.api.core import Pod
from seltzer.build.images import Images
from seltzer.controllers.caches import Caches, Selection, managed
from seltzer.controllers.children import Children
from seltzer.controllers.slurm_connection import SlurmConnections
from seltzer.kube.client import Client
from seltzer.kube.controller import Controller, Outcome
from seltzer.kube.events import Recorder
from seltzer.kube.resource import Key, Resource, key_of
from seltzer.kube.store import Watcher
from seltzer.slurm.nodes import Change

Keys = Callable[[Caches, Any, Any], Iterable[Key]]
"""The keys that a change of an object concerns, from its states before and after: None where it doesn't exist."""


@dataclass(frozen=True)
class Shared:
    """What all controllers work with."""

    client: Client
    caches: Caches
    children: Children
    connections: SlurmConnections
    recorder: Recorder
    images: Images


class Reconciler(Protocol):
    """One pass over one object of the controller's kind."""

    async def reconcile(self, key: Key) -> Outcome: ...


@dataclass(frozen=True)
class Watch:
    """A selection of objects, and which of the controller's keys a change of its objects concerns.

    An urgent change skips the cool-down after an expensive pass.
    """

    selection: Selection[Any]
    keys: Keys
    urgent: bool = False


def _itself(_: Caches, before: Any, after: Any) -> Iterable[Key]:
    return (key_of(after or before),)


@dataclass(frozen=True)
class Registration:
    """A controller, and every change that makes it look at an object again."""

    # What logs and metrics call it.
    name: str
    kind: Selection[Any]
    make: Callable[[Shared], Reconciler]
    # The kinds of the objects that it makes, and whose they are.
    owns: tuple[Resource[Any], ...]
    owner: Keys
    watches: tuple[Watch, ...] = ()
    # The keys that a change in a cluster's Slurm concerns; without a change, only the number of jobs is new.
    slurm: Callable[[Caches, Key, Change | None], Iterable[Key]] = lambda caches, cluster, change: ()
    # The keys that a change in what a cluster's sources of users list concerns.
    users: Callable[[Key], Iterable[Key]] = lambda cluster: ()
    # The cluster whose Slurm knows more than a moment ago, from the states of a pod before and after.
    slurm_news: Callable[[Pod | None, Pod | None], Key | None] = lambda before, after: None

    def all_watches(self) -> Iterator[Watch]:
        """Its own kind, what it owns, and what else it watches."""
        yield Watch(self.kind, _itself)
        yield from (Watch(managed(each), self.owner) for each in self.owns)
        yield from self.watches

    def wire(self, caches: Caches, controller: Controller) -> None:
        """Give the controller the keys that changes concern."""
        for watch in self.all_watches():
            enqueue = controller.hurry if watch.urgent else controller.changed
            caches.store(watch.selection).watch(_watcher(caches, watch.keys, enqueue))


def _watcher(caches: Caches, keys: Keys, enqueue: Callable[[Key], None]) -> Watcher[Any]:
    def changed(before: Any, after: Any) -> None:
        for key in keys(caches, before, after):
            enqueue(key)

    return changed
