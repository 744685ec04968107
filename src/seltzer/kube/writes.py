"""Read your own writes: a pass must not decide on a store that lacks what the previous pass wrote.

Instead of counting expected events, this remembers the version that the server gave to a write. Once the store has
reached it, everything up to that write has been read (Kubernetes guarantees that the versions of one resource can be
compared).
"""

from __future__ import annotations

from typing import Any

from seltzer.kube.resource import HasMeta, Key
from seltzer.kube.store import Store


class Writes:
    """The newest write to one store on behalf of each key: for example to the pods that belong to a NodeSet.

    Kept in memory only: a process that has just started has written nothing, and its store is up to date once it syncs.
    """

    def __init__(self, store: Store[Any]) -> None:
        self._store = store
        self._versions: dict[Key, int] = {}

    def wrote(self, key: Key, answer: HasMeta) -> None:
        """`answer` is the object that the server returned for a write on behalf of `key`."""
        version = int(answer.metadata.resource_version)
        self._versions[key] = max(version, self._versions.get(key, 0))

    def are_read(self, key: Key) -> bool:
        """Whether the store has everything written on behalf of `key`. If not, the pass has to be repeated."""
        version = self._versions.get(key)
        if version is None:
            return True
        if not self._store.reached(str(version)):
            return False
        del self._versions[key]
        return True
