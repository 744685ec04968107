"""Server-side apply: who owns which field, what an apply merges and what it takes away.

An object is taken apart into paths. A step of a path is a field's name, the keys of a list's item, or the value of a
set's member. What Kubernetes' schemas say about lists and maps is here a short list of names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Item(NamedTuple):
    """The item of a list that has these keys."""

    keys: tuple[tuple[str, Any], ...]


class Member(NamedTuple):
    """A member of a set."""

    value: Any


Step = str | Item | Member
Path = tuple[Step, ...]
Fields = frozenset[Path]


class Manager(NamedTuple):
    """Who wrote: one name that updates and applies is two managers."""

    name: str
    operation: str
    subresource: str


Owners = Mapping[Manager, Fields]

_KEYS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "containerStatuses": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_SETS = frozenset({"finalizers"})
_ATOMIC = frozenset(
    {"selector", "nodeSelector", "podSelector", "namespaceSelector", "labelSelector", "fieldRef", "secretKeyRef"}
    | {"configMapKeyRef", "resourceFieldRef", "roleRef", "scaleTargetRef"}
)
# In custom resources everything below a podTemplate is unknown to the schema, so its lists are replaced as a whole.
_CUSTOM_KEYS = frozenset({"conditions", "ownerReferences"})
_CUSTOM_SETS = frozenset({"finalizers", "features"})
# Not for anybody to own.
_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"})
_SYSTEM = _IDENTITY | {"managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"}


@dataclass(frozen=True)
class Schema:
    """How lists and maps of one kind are merged."""

    custom: bool
    service: bool = False

    def keys(self, path: Path, items: list[Any]) -> tuple[str, ...] | None:
        """The keys of a list's items, if it is merged item by item."""
        name = path[-1] if path else ""
        if not isinstance(name, str) or not all(isinstance(item, dict) for item in items):
            return None
        if self.custom:
            return _KEYS[name] if name in _CUSTOM_KEYS else None
        if name == "ports" and path[:2] == ("spec", "ports") and self.service:
            return ("port", "protocol")
        if name == "ports" and items and all("containerPort" in item for item in items):
            return ("containerPort", "protocol")
        return _KEYS.get(name)

    def is_set(self, path: Path) -> bool:
        return bool(path) and path[-1] in (_CUSTOM_SETS if self.custom else _SETS)

    def atomic(self, path: Path) -> bool:
        return not self.custom and bool(path) and path[-1] in _ATOMIC


def flat(schema: Schema, value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every path that can be owned, with its value; an item of a list counts by itself, too."""
    if isinstance(value, dict) and value and not schema.atomic(path):
        for name, inner in value.items():
            yield from flat(schema, inner, (*path, name))
    elif isinstance(value, list) and value and schema.is_set(path):
        for member in value:
            yield (*path, Member(member)), member
    elif isinstance(value, list) and value and (keys := schema.keys(path, value)):
        for item in value:
            inside = (*path, _item(keys, item))
            yield inside, None
            for name, inner in item.items():
                yield from flat(schema, inner, (*inside, name))
    else:
        yield path, value


def _item(keys: tuple[str, ...], item: dict[str, Any]) -> Item:
    defaults = {"protocol": "TCP"}
    return Item(tuple((key, item.get(key, defaults.get(key))) for key in keys))


def ownable(item: Mapping[str, Any], subresource: str) -> dict[str, Any]:
    """The part of an object that a write through this subresource is about."""
    if subresource == "status":
        return {"status": item["status"]} if "status" in item else {}
    kept = {key: value for key, value in item.items() if key not in ("apiVersion", "kind", "status")}
    metadata = {key: value for key, value in item.get("metadata", {}).items() if key not in _SYSTEM}
    return {**kept, "metadata": metadata} if metadata else {k: v for k, v in kept.items() if k != "metadata"}


def merged(schema: Schema, live: Any, applied: Any, path: Path = ()) -> Any:
    """`live` with everything that is in `applied`."""
    if isinstance(applied, dict) and isinstance(live, dict) and not schema.atomic(path):
        result = dict(live)
        for name, value in applied.items():
            result[name] = merged(schema, live.get(name), value, (*path, name))
        return result
    if isinstance(applied, list) and isinstance(live, list):
        if schema.is_set(path):
            return [*live, *(member for member in applied if member not in live)]
        if keys := schema.keys(path, [*applied, *live]):
            known = {_item(keys, item): item for item in live}
            fresh = {_item(keys, item): item for item in applied}
            rest = [item for key, item in known.items() if key not in fresh]
            return [merged(schema, known.get(k), v, (*path, k)) for k, v in fresh.items()] + rest
    return copy.deepcopy(applied)


def without(value: Any, path: Path) -> Any:
    """`value` without what is at a path; what that leaves empty goes with it."""
    step, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(step, str) and step in value:
        inner = without(value[step], rest) if rest else None
        return {k: inner if k == step else v for k, v in value.items() if k != step or inner}
    if isinstance(value, list) and isinstance(step, Member):
        return [member for member in value if member != step.value]
    if isinstance(value, list) and isinstance(step, Item):
        names = tuple(key for key, _ in step.keys)
        hit = [_item(names, item) == step for item in value]
        if not rest:
            return [item for item, is_it in zip(value, hit, strict=True) if not is_it]
        return [without(item, rest) if is_it else item for item, is_it in zip(value, hit, strict=True)]
    return value


@dataclass(frozen=True)
class Applied:
    """What comes of an apply."""

    item: dict[str, Any]
    owners: dict[Manager, Fields]
    conflicts: dict[Manager, Fields]


def apply(
    schema: Schema, live: Mapping[str, Any], owners: Owners, manager: Manager, applied: Mapping[str, Any]
) -> Applied:
    """Make the named fields so; take away those that the manager alone owned and no longer names."""
    wanted = ownable(applied, manager.subresource)
    new = frozenset(path for path, _ in flat(schema, wanted) if path)
    result = merged(schema, dict(live), wanted)
    others = {path for other, fields in owners.items() if other != manager for path in fields}
    kept = others | new
    for path in sorted(owners.get(manager, frozenset()) - new, key=len):  # an item before the keys it is found by
        if not any(other[: len(path)] == path for other in kept):
            result = without(result, path)
    changed, gone = _differences(schema, live, result, manager.subresource)
    conflicts = {other: fields & changed for other, fields in owners.items() if other != manager and fields & changed}
    after = _handed_over(owners, manager, changed, gone)
    after.pop(manager, None)
    return Applied(result, after | ({manager: new} if new else {}), conflicts)


def update(
    schema: Schema, live: Mapping[str, Any], owners: Owners, manager: Manager, item: Mapping[str, Any]
) -> dict[Manager, Fields]:
    """Who owns what after any other write: its manager what it changed."""
    changed, gone = _differences(schema, live, item, manager.subresource)
    after = _handed_over(owners, manager, changed, gone)
    mine = after.get(manager, frozenset()) | changed
    return {**after, manager: mine} if mine else after


def _differences(
    schema: Schema, before: Mapping[str, Any], after: Mapping[str, Any], subresource: str
) -> tuple[Fields, Fields]:
    old, new = (dict(flat(schema, ownable(item, subresource))) for item in (before, after))
    missing = object()
    changed = frozenset(path for path, value in new.items() if path and old.get(path, missing) != value)
    return changed, frozenset(old.keys() - new.keys())


def _handed_over(owners: Owners, manager: Manager, changed: Fields, gone: Fields) -> dict[Manager, Fields]:
    left = {other: fields - gone - (changed if other != manager else frozenset()) for other, fields in owners.items()}
    return {other: fields for other, fields in left.items() if fields}
