"""Which managed objects have drifted: missing, changed by us, or changed by someone else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from seltzer.controllers.caches import Caches
from seltzer.kube.resource import HasMeta, Key

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class _Applied:
    manifest: Manifest
    digest: str
    version: int
    fingerprint: str


class Children:
    """Remembers applied manifests, in memory only: a new leader applies everything once, which changes nothing."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._applied: dict[tuple[str, Key], _Applied] = {}

    def drifted(self, manifests: Iterable[Manifest]) -> tuple[Manifest, ...]:
        """The manifests that have to be applied."""
        return tuple(manifest for manifest in manifests if not self._is_current(manifest))

    def absent(self, manifests: Iterable[Manifest]) -> tuple[Manifest, ...]:
        """The manifests whose objects don't exist."""
        return tuple(each for each in manifests if self._caches.owned(each["kind"]).get(_key(each)) is None)

    def wrote(self, manifest: Manifest, answer: HasMeta) -> None:
        """Remembers the API server's answer to an apply."""
        applied = _Applied(manifest, _digest(manifest), int(answer.metadata.resource_version), _fingerprint(answer))
        self._applied[manifest["kind"], _key(manifest)] = applied

    def _is_current(self, manifest: Manifest) -> bool:
        applied = self._applied.get((manifest["kind"], _key(manifest)))
        if applied is None:
            return False
        # The identical object needs no digest: the users' files are large, and they are kept between passes.
        if applied.manifest is not manifest and applied.digest != _digest(manifest):
            return False
        store = self._caches.owned(manifest["kind"])
        if not store.reached(str(applied.version)):
            return True  # the store is older than our own write
        found = store.get(_key(manifest))
        if found is None:
            return False
        return int(found.metadata.resource_version) <= applied.version or _fingerprint(found) == applied.fingerprint


def _key(manifest: Manifest) -> Key:
    return Key(manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"])


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(manifest, order="sorted")).hexdigest()


def _fingerprint(item: HasMeta) -> str:
    """Changes if someone changes the fields that we set. A new status doesn't count where there is a generation."""
    return f"generation {item.metadata.generation}" if item.metadata.generation else item.metadata.resource_version
