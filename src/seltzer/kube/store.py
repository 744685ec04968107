"""A local copy of the objects of one kind, with indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from seltzer.kube.resource import HasMeta, Key, key_of

T = TypeVar("T", bound=HasMeta)
Index = Callable[[T], Sequence[str]]
Watcher = Callable[[T | None, T | None], None]


class Store(Generic[T]):
    """A copy of the API server's objects, maintained by a reflector. Reading never blocks and sends no request.

    Watchers are called with every change, as (before, after). A deletion that was missed is delivered as soon as it is
    discovered. Before the first synchronisation the store is empty, and `synced` is False.
    """

    def __init__(self, indices: Mapping[str, Index[T]] | None = None) -> None:
        self._items: dict[Key, T] = {}
        self._indices = dict(indices or {})
        self._indexed: dict[str, dict[str, set[Key]]] = {name: {} for name in self._indices}
        self._watchers: list[Watcher[T]] = []
        self.resource_version = 0
        self.synced = False

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def get(self, key: Key) -> T | None:
        return self._items.get(key)

    def keys(self) -> Iterable[Key]:
        return self._items.keys()

    def by(self, index: str, value: str) -> list[T]:
        """The objects with this value in an index."""
        return [self._items[key] for key in self._indexed[index].get(value, ())]

    def reached(self, resource_version: str) -> bool:
        """Whether everything up to that version has been seen, so that a write with this version can be read here."""
        return self.synced and self.resource_version >= int(resource_version)

    def watch(self, watcher: Watcher[T]) -> None:
        self._watchers.append(watcher)

    # --- for the reflector ----------------------------------------------------------------------------------------

    def put(self, item: T) -> None:
        """Store a new or changed object. Ignores a version older than the known one."""
        key, version = key_of(item), int(item.metadata.resource_version)
        if version > self.resource_version:
            self.resource_version = version
        before = self._items.get(key)
        if before is None or int(before.metadata.resource_version) < version:
            self._set(key, before, item)

    def remove(self, item: T) -> None:
        """Remove a deleted object; `item` is its last state. One that was recreated since then stays."""
        key, version = key_of(item), int(item.metadata.resource_version)
        self.resource_version = max(self.resource_version, version)
        before = self._items.get(key)
        if before is not None and int(before.metadata.resource_version) <= version:
            self._set(key, before, None)

    def replace(self, items: Iterable[T], resource_version: str) -> None:
        """Replace the contents: objects that aren't in `items` no longer exist."""
        fresh = {key_of(item): item for item in items}
        for key in [key for key in self._items if key not in fresh]:
            self._set(key, self._items[key], None)
        # Not `put`: a server restored from a backup has older versions, and they count.
        for key, item in fresh.items():
            known = self._items.get(key)
            if known is None or known.metadata.resource_version != item.metadata.resource_version:
                self._set(key, known, item)
        self.resource_version = int(resource_version)
        self.synced = True

    def progress(self, resource_version: str) -> None:
        """Nothing changed up to this version."""
        self.resource_version = max(self.resource_version, int(resource_version))

    def _set(self, key: Key, before: T | None, after: T | None) -> None:
        if after is None:
            del self._items[key]
        else:
            self._items[key] = after
        for name, index in self._indices.items():
            old = index(before) if before is not None else ()
            new = index(after) if after is not None else ()
            if old != new:  # most changes don't affect an index
                self._reindex(self._indexed[name], key, old, new)
        for watcher in self._watchers:
            watcher(before, after)

    @staticmethod
    def _reindex(indexed: dict[str, set[Key]], key: Key, old: Iterable[str], new: Iterable[str]) -> None:
        for value in old:
            keys = indexed.get(value)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del indexed[value]
        for value in new:
            indexed.setdefault(value, set()).add(key)
