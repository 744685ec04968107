"""Applies and deletes objects of any kind, given as manifests, and reports the changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from seltzer.errors import SeltzerError
from seltzer.kube.client import Client
from seltzer.kube.errors import NotFound

Manifest = Mapping[str, Any]

MANAGER = "seltzer-cli"
"""Our field manager. The operator has another: neither removes the other's fields."""

_NOT_MEANT = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")


@dataclass(frozen=True)
class Change:
    """The effect of applying an object: it is new, or these fields change."""

    name: str
    is_new: bool
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.is_new:
            return f"{self.name}: new"
        if not self.fields:
            return f"{self.name}: unchanged"
        most = 6
        more = f" and {len(self.fields) - most} more" if len(self.fields) > most else ""
        return f"{self.name}: {', '.join(self.fields[:most])}{more}"


class _Kind(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _Kinds(msgspec.Struct):
    resources: list[_Kind]


class Objects:
    """Objects of any kind, by the API server's discovery."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds: dict[str, list[_Kind]] = {}

    async def get(self, manifest: Manifest) -> dict[str, Any] | None:
        try:
            return _decode(await self._client.call("GET", await self._path(manifest)))
        except NotFound:
            return None

    async def apply(self, manifest: Manifest, *, dry_run: bool = False, manager: str = MANAGER) -> Change:
        """Applies a manifest. `dry_run` only reports what would change."""
        path, before = await self._path(manifest), await self.get(manifest)
        params = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        kind = "application/apply-patch+yaml"
        after = await self._client.call("PATCH", path, params=params, content=manifest, kind=kind, repeatable=True)
        if before is None:
            return Change(name_of(manifest), True)
        return Change(name_of(manifest), False, tuple(differences(_meant(before), _meant(_decode(after)))))

    async def delete(self, manifest: Manifest) -> bool:
        """Deletes an object. Returns whether there was one."""
        try:
            await self._client.call(
                "DELETE", await self._path(manifest), content={"propagationPolicy": "Background"}, repeatable=True
            )
        except NotFound:
            return False
        return True

    async def _path(self, manifest: Manifest) -> str:
        version, kind, metadata = str(manifest["apiVersion"]), manifest["kind"], manifest["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if base not in self._kinds:
            self._kinds[base] = msgspec.json.decode(await self._client.call("GET", base), type=_Kinds).resources
        for known in self._kinds[base]:
            if known.kind == kind and "/" not in known.name:
                where = f"/namespaces/{metadata['namespace']}" if known.namespaced else ""
                return f"{base}{where}/{known.name}/{metadata['name']}"
        raise SeltzerError(f"this Kubernetes has no {kind} in {version}; it may be too old for Seltzer")


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _decode(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    return found


def _meant(item: dict[str, Any]) -> dict[str, Any]:
    """An object without the API server's own fields, and without its status."""
    metadata = {key: value for key, value in item.get("metadata", {}).items() if key not in _NOT_MEANT}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": metadata}


def differences(before: object, after: object, path: str = "") -> Iterator[str]:
    """The fields that differ, with both values if they are short."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{at}]")
    elif before != after:
        shown = _is_short(before) and _is_short(after)
        yield f"{path} {_word(before)} -> {_word(after)}" if shown else path


def _is_short(value: object) -> bool:
    return not isinstance(value, Mapping | Sequence) or (isinstance(value, str) and len(value) <= 80)


def _word(value: object) -> str:
    return "(none)" if value is None else str(value)
