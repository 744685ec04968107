"""Strategic merge: applies a user's changes to a pod that we build, as `kubectl patch` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seltzer.errors import SeltzerError

from .names import Manifest

# Lists of a pod whose items are identified by a key. All other lists are replaced as a whole.
_KEYS: Mapping[str, str] = {
    "claims": "name",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
# Fields that we read after the merge: their form matters to us, not only to the API server.
_LISTS: frozenset[str] = frozenset({*_KEYS, "args", "searches", "tolerations"})
_MAPS: frozenset[str] = frozenset({"dnsConfig", "limits", "requests", "resources"})
# Maps with arbitrary keys.
_FREE: frozenset[str] = frozenset({"annotations", "labels", "matchLabels", "nodeSelector", "volumeAttributes"})
# An item has only one of these fields: another kind of volume replaces the volume, and isn't added as a second source.
_ONE_OF: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "env": lambda item: item.keys() & {"value", "valueFrom"},
    "resourceClaims": lambda item: item.keys() - {"name"},
    "volumes": lambda item: item.keys() - {"name"},
}


class TemplateRefused(SeltzerError):
    """A podTemplate can't be merged, or removes what the pod needs. Its text says what is wrong and what to do."""


def merge(base: Manifest, patch: Mapping[str, Any]) -> Manifest:
    """`base` with the changes of `patch`; neither is changed.

    Maps are merged. Lists whose items have a key (containers by name, mounts by path) are merged item by item. Other
    lists and values are replaced. null removes a field. Fields that the patch leaves out stay.
    """
    return _merge_maps(base, patch, "podTemplate.spec")


def _merge_maps(base: Mapping[str, Any], patch: Mapping[str, Any], path: str) -> Manifest:
    merged = dict(base)
    free = path.rpartition(".")[2] in _FREE
    for name, value in patch.items():
        where = f"{path}.{name}"
        if name.startswith("$"):
            raise TemplateRefused(f"{where}: directives aren't supported; write null to remove a field")
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_values(merged.get(name), value, "" if free else name, where)
    return merged


def _merge_values(old: Any, new: Any, name: str, path: str) -> Any:
    if isinstance(new, Mapping):
        if isinstance(old, list) or name in _LISTS:
            raise TemplateRefused(f"{path}: has a map where Kubernetes has a list; write a list")
        return _merge_maps(old if isinstance(old, Mapping) else {}, new, path)
    if isinstance(new, list | tuple):
        if isinstance(old, Mapping) or name in _MAPS:
            raise TemplateRefused(f"{path}: has a list where Kubernetes has a map; write a map")
        if name in _KEYS:
            return _merge_items(old if isinstance(old, list) else [], new, name, path)
        return [_merge_values(None, item, "", f"{path}[{at}]") for at, item in enumerate(new)]
    if isinstance(old, Mapping | list) or name in _LISTS | _MAPS:
        raise TemplateRefused(
            f"{path}: has one value where Kubernetes has a list or a map; see 'kubectl explain pod.spec'"
        )
    return new


def _merge_items(old: list[Manifest], new: Sequence[Any], name: str, path: str) -> list[Manifest]:
    """Existing items keep their places. New ones follow."""
    merged = {_identity(item, name, path): item for item in old}
    for item in new:
        if not isinstance(item, Mapping):
            raise TemplateRefused(f"{path}: has an item that isn't a map; see 'kubectl explain pod.spec'")
        key = _identity(item, name, path)
        known = merged.get(key, {})
        one_of = _ONE_OF.get(name)
        if one_of and one_of(item) and one_of(item) != one_of(known):
            known = {}
        merged[key] = _merge_maps(known, item, f"{path}[{item[_KEYS[name]]}]")
    return list(merged.values())


def _identity(item: Mapping[str, Any], name: str, path: str) -> tuple[Any, ...]:
    key = item.get(_KEYS[name])
    if not isinstance(key, str | int):
        raise TemplateRefused(f"{path}: an item has no {_KEYS[name]}; give it one, since items are known by that")
    return (key, item.get("protocol", "TCP")) if name == "ports" else (key,)
