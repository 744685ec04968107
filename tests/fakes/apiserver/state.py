"""The objects of a fake API server: versions, generations, ownership of fields, finalizers, graceful deletion.

No HTTP here: `apiserver` speaks it, `apiserver_collector` collects what nobody owns, `kubelet_cluster` runs the pods;
all in one process and on this one state. Every call is done when it returns. Objects are replaced and never changed,
so whoever holds one holds it as it was.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.fakes.apiserver import admission, fields
from tests.fakes.apiserver.errors import Failure, already_exists, conflict, expired, invalid, modified, not_found
from tests.fakes.apiserver.fields import Manager, Owners, Schema

Object = dict[str, Any]
FIRST_VERSION = 1000
INSIDER = Manager("insider", "Update", "")


class Id(NamedTuple):
    """Where an object is."""

    group: str
    plural: str
    namespace: str
    name: str

    @property
    def custom(self) -> bool:
        """Not one of Kubernetes' own kinds."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def schema(self) -> Schema:
        return Schema(self.custom, (self.group, self.plural) == ("", "services"))


class Event(NamedTuple):
    """A change. `before` is None for a new object, `after` for one that is gone."""

    version: int
    id: Id
    before: Object | None
    after: Object | None


@dataclass(frozen=True)
class Stored:
    """An object, and who owns its fields."""

    item: Object
    owners: Owners = field(default_factory=dict)


Listener = Callable[[Event], None]


class State:
    """What an API server keeps. `clock` returns the time in seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.version = FIRST_VERSION
        self._clock = clock
        self._objects: dict[Id, Stored] = {}
        self._kinds: dict[tuple[str, str], set[Id]] = {}
        self._history: list[Event] = []
        self._compacted = FIRST_VERSION
        self._listeners: list[Listener] = []
        self._born = 0

    # --- reading --------------------------------------------------------------------------------------------------

    def find(self, id_: Id) -> Object | None:
        stored = self._objects.get(id_)
        return stored.item if stored else None

    def get(self, id_: Id) -> Object:
        item = self.find(id_)
        if item is None:
            raise not_found(id_.plural, id_.name)
        return item

    def items(self, group: str, plural: str, namespace: str = "") -> list[tuple[Id, Object]]:
        """All of a kind, in the order in which the API server lists them."""
        found = (id_ for id_ in self._kinds.get((group, plural), ()) if namespace in ("", id_.namespace))
        return [(id_, self._objects[id_].item) for id_ in sorted(found)]

    def everything(self) -> Iterator[tuple[Id, Object]]:
        """All objects of all kinds, in a fixed order."""
        for id_ in sorted(self._objects):
            yield id_, self._objects[id_].item

    def since(self, version: int) -> list[Event]:
        """What happened after a version; Expired if that is no longer known."""
        if version < self._compacted:
            raise expired(f"too old resource version: {version} ({self._compacted})")
        return [event for event in self._history if event.version > version]

    def compact(self) -> None:
        """Forget everything but the present."""
        self._compacted = self.version
        self._history.clear()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after each change; it must not change anything at once. Returns how to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def now(self, later: float = 0.0) -> str:
        return datetime.fromtimestamp(self._clock() + later, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- writing --------------------------------------------------------------------------------------------------

    def create(self, id_: Id, item: Mapping[str, Any], manager: Manager = INSIDER) -> Object:
        if id_ in self._objects:
            raise already_exists(id_.plural, id_.name)
        owners = fields.update(id_.schema, {}, {}, manager, item)
        return self._create(id_, dict(item), owners)

    def replace(self, id_: Id, change: Callable[[Object], Mapping[str, Any]], manager: Manager = INSIDER) -> Object:
        """Write what `change` makes of the object. What its manager's subresource isn't about stays as it is."""
        self.get(id_)
        old = self._objects[id_]
        item = _joined(id_, old.item, dict(change(old.item)), manager.subresource)
        owners = fields.update(id_.schema, old.item, old.owners, manager, item)
        return self._commit(id_, Stored(item, owners))

    def patch(self, id_: Id, **parts: Any) -> Object:
        """For insiders: set top-level parts of an object; those of the metadata are merged into it."""
        metadata = parts.pop("metadata", {})
        return self.replace(id_, lambda item: {**item, **parts, "metadata": {**item["metadata"], **metadata}}, INSIDER)

    def patch_status(self, id_: Id, **parts: Any) -> Object:
        """For insiders: set parts of the status."""
        return self.set_status(id_, {**self.get(id_).get("status", {}), **parts})

    def set_status(self, id_: Id, status: Object) -> Object:
        """For insiders: the whole status."""
        return self.replace(id_, lambda item: {**item, "status": status}, INSIDER._replace(subresource="status"))

    def apply(self, id_: Id, item: Mapping[str, Any], manager: Manager, *, force: bool) -> tuple[Object, bool]:
        """Server-side apply; also tells whether the object is new."""
        old = self._objects.get(id_)
        if old is None and manager.subresource:
            raise not_found(id_.plural, id_.name)
        if old is None and (uid := item["metadata"].get("uid")):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(id_.plural, id_.name, why)
        live = old.item if old else {}
        done = fields.apply(id_.schema, live, old.owners if old else {}, manager, item)
        if done.conflicts and not force:
            names = ", ".join(f'conflict with "{other.name}"' for other in done.conflicts)
            raise Failure(409, "Conflict", f"Apply failed with {len(done.conflicts)} conflict: {names}")
        if old is None:
            kind = {key: item[key] for key in ("apiVersion", "kind")}
            return self._create(id_, {**kind, **done.item}, done.owners), True
        asked = {key: item["metadata"][key] for key in ("uid", "resourceVersion") if key in item["metadata"]}
        merged = {**done.item, "metadata": {**done.item["metadata"], **asked}}
        return self._commit(id_, Stored(_joined(id_, live, merged, manager.subresource), done.owners)), False

    def _create(self, id_: Id, item: Object, owners: Owners) -> Object:
        self._born += 1
        own = {
            "name": id_.name,
            **({"namespace": id_.namespace} if id_.namespace else {}),
            "uid": str(uuid.UUID(int=self._born, version=4)),
            "creationTimestamp": self.now(),
            **({"generation": 1} if admission.has_generation(id_) else {}),
        }
        given = {key: value for key, value in item.get("metadata", {}).items() if key not in _OWN}
        item = admission.defaulted(id_, {**item, "metadata": {**given, **own}})
        item = admission.stored(id_, item)
        admission.check(id_, item, self.items)
        return self._put(id_, None, Stored(item, owners))

    def _commit(self, id_: Id, new: Stored) -> Object:
        old = self._objects[id_]
        before, after = old.item["metadata"], new.item["metadata"]
        if after.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
            raise modified(id_.plural, id_.name)
        if (uid := after.get("uid", before["uid"])) != before["uid"]:
            raise invalid(old.item["kind"], id_.name, f'metadata.uid: Invalid value: "{uid}": field is immutable')
        metadata = {**after, **{key: before[key] for key in _OWN if key in before}}
        item = {**new.item, "metadata": {key: value for key, value in metadata.items() if value not in ({}, [])}}
        item = admission.stored(id_, item)
        if item == old.item and new.owners == old.owners:
            return old.item
        admission.check_update(id_, old.item, item)
        added = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if "deletionTimestamp" in before and added:
            why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
            raise invalid(item["kind"], id_.name, f"{why}, found new finalizers {sorted(added)}")
        if admission.is_new_generation(id_, old.item, item):
            item["metadata"]["generation"] = before["generation"] + 1
        if before.get("deletionGracePeriodSeconds") == 0 and not item["metadata"].get("finalizers"):
            self._drop(id_)
            return item
        return self._put(id_, old.item, Stored(item, new.owners))

    # --- deleting -------------------------------------------------------------------------------------------------

    def delete(
        self,
        id_: Id,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace: int | None = None,
        finalizers: Iterable[str] = (),
    ) -> Object | None:
        """Begin or finish to delete an object. Returns it while it is still there. `finalizers` are added first."""
        item = self.get(id_)
        metadata = item["metadata"]
        for name, asked, found in (("UID", uid, "uid"), ("ResourceVersion", version, "resourceVersion")):
            if asked not in (None, metadata[found]):
                why = f"the {name} in the precondition ({asked}) does not match the one in record ({metadata[found]})"
                raise conflict(item["kind"], id_.name, why)
        grace = _grace(id_, item, grace)
        waiting = list(dict.fromkeys([*metadata.get("finalizers", ()), *finalizers]))
        if "deletionTimestamp" in metadata:
            begun = metadata["deletionGracePeriodSeconds"]
            if grace >= begun and (begun or waiting):
                return item
        if not grace and not waiting:
            self._drop(id_)
            return None
        metadata = {
            **metadata,
            "deletionTimestamp": self.now(grace),
            "deletionGracePeriodSeconds": grace,
            **({"finalizers": waiting} if waiting else {}),
            **({"generation": metadata["generation"] + 1} if "generation" in metadata else {}),
        }
        return self._put(id_, item, Stored({**item, "metadata": metadata}, self._objects[id_].owners))

    # --- every change goes through one of these ------------------------------------------------------------------

    def _put(self, id_: Id, before: Object | None, new: Stored) -> Object:
        self.version += 1
        item = {**new.item, "metadata": {**new.item["metadata"], "resourceVersion": str(self.version)}}
        self._objects[id_] = Stored(item, new.owners)
        self._kinds.setdefault((id_.group, id_.plural), set()).add(id_)
        self._tell(Event(self.version, id_, before, item))
        return item

    def _drop(self, id_: Id) -> None:
        self.version += 1
        self._kinds[id_.group, id_.plural].discard(id_)
        self._tell(Event(self.version, id_, self._objects.pop(id_).item, None))

    def _tell(self, event: Event) -> None:
        self._history.append(event)
        for listener in tuple(self._listeners):
            listener(event)


# What an object's writers have no say in.
_OWN = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def _joined(id_: Id, old: Object, new: Object, subresource: str) -> Object:
    """The part of `new` that a write through this subresource may change, and the rest of `old`."""
    if subresource == "status":
        kept = {key: value for key, value in old.items() if key != "status"}
        # Of a pod, what is said about it goes with its status.
        more = ("labels", "annotations") if (id_.group, id_.plural) == ("", "pods") else ()
        asked = {key: new["metadata"][key] for key in ("uid", "resourceVersion", *more) if key in new["metadata"]}
        told = {"status": new["status"]} if "status" in new else {}
        return {**kept, **told, "metadata": {**old["metadata"], **asked}}
    kept = {key: value for key, value in new.items() if key != "status"}
    return {**kept, **({"status": old["status"]} if "status" in old else {})}


def _grace(id_: Id, item: Object, asked: int | None) -> int:
    """Only pods that a kubelet has to end get any time to end."""
    if (id_.group, id_.plural) != ("", "pods") or not item["spec"].get("nodeName"):
        return 0
    if item.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(item["spec"].get("terminationGracePeriodSeconds", 30)) if asked is None else asked
