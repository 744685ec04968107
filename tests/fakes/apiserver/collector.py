"""Kubernetes' garbage collector and its namespace controller: what nobody owns goes, soon but not at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.fakes.apiserver.errors import Failure
from tests.fakes.apiserver.state import Event, Id, Object, State

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_NAMESPACE = "kubernetes"


class Collector:
    """Deletes objects whose owners are all gone, or are in another namespace, and the contents of namespaces."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._ids: dict[str, Id] = {}
        self._dependents: dict[str, set[Id]] = {}
        self._stop: Callable[[], None] = state.listen(self._changed)

    def stop(self) -> None:
        self._stop()

    def finalizers(self, id_: Id, policy: str | None) -> list[str]:
        """What a deletion with this policy has to wait for."""
        if (id_.group, id_.plural) == ("", "namespaces"):
            return [_NAMESPACE]
        return {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(policy or "", [])

    def _changed(self, event: Event) -> None:
        before, after = _owners(event.before), _owners(event.after)
        for uid in before - after:
            self._dependents[uid].discard(event.id)
            self._soon(self._owner_waits, uid)
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add(event.id)
        if after - before:
            self._soon(self._collect, event.id)
        if event.after is None and event.before is not None:
            uid = event.before["metadata"]["uid"]
            self._ids.pop(uid, None)
            for dependent in sorted(self._dependents.get(uid, ())):
                self._soon(self._collect, dependent)
            self._soon(self._namespace_waits, event.id.namespace)
        elif event.after is not None:
            uid = event.after["metadata"]["uid"]
            self._ids[uid] = event.id
            if "deletionTimestamp" in event.after["metadata"]:
                self._soon(self._owner_waits, uid)
                if (event.id.group, event.id.plural) == ("", "namespaces"):
                    self._soon(self._namespace_waits, event.id.name)

    @staticmethod
    def _soon(what: Callable[..., None], *args: object) -> None:
        asyncio.get_running_loop().call_soon(what, *args)

    def _collect(self, id_: Id) -> None:
        item = self._state.find(id_)
        if item is None or "deletionTimestamp" in item["metadata"] or not _owners(item):
            return
        references = item["metadata"]["ownerReferences"]
        alive = [reference for reference in references if self._alive(reference["uid"], id_.namespace)]
        if not alive:
            self._state.delete(id_, uid=item["metadata"]["uid"])
        elif len(alive) < len(references):
            self._state.patch(id_, metadata={"ownerReferences": alive})

    def _alive(self, uid: str, namespace: str) -> bool:
        owner = self._ids.get(uid)
        return owner is not None and owner.namespace in ("", namespace)

    def _owner_waits(self, uid: str) -> None:
        """An owner that is deleted in the foreground goes after what it owns; one that orphans, before."""
        id_ = self._ids.get(uid)
        item = self._state.find(id_) if id_ else None
        if id_ is None or item is None or "deletionTimestamp" not in item["metadata"]:
            return
        dependents = sorted(self._dependents.get(uid, ()))
        waits = item["metadata"].get("finalizers", [])
        if ORPHAN in waits:
            for dependent in dependents:
                kept = [r for r in self._state.get(dependent)["metadata"]["ownerReferences"] if r["uid"] != uid]
                self._state.patch(dependent, metadata={"ownerReferences": kept})
            self._finish(id_, ORPHAN)
        elif FOREGROUND in waits and dependents:
            for dependent in dependents:
                if "deletionTimestamp" not in self._state.get(dependent)["metadata"]:
                    self._state.delete(dependent)
        elif FOREGROUND in waits:
            self._finish(id_, FOREGROUND)

    def _namespace_waits(self, name: str) -> None:
        """A namespace that is deleted goes after all that is in it."""
        id_ = Id("", "namespaces", "", name)
        item = self._state.find(id_)
        if not name or item is None or _NAMESPACE not in item["metadata"].get("finalizers", ()):
            return
        inside = [each for each in self._state.everything() if each[0].namespace == name]
        for each, content in inside:
            if "deletionTimestamp" not in content["metadata"]:
                self._state.delete(each)
        if not inside:
            self._finish(id_, _NAMESPACE)

    def _finish(self, id_: Id, finalizer: str) -> None:
        left = [each for each in self._state.get(id_)["metadata"]["finalizers"] if each != finalizer]
        try:
            self._state.patch(id_, metadata={"finalizers": left})
        except Failure as failure:
            raise AssertionError(f"{id_} can't go: {failure}") from failure


def _owners(item: Object | None) -> set[str]:
    return {each["uid"] for each in item["metadata"].get("ownerReferences") or ()} if item else set()
