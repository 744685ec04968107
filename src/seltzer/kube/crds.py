"""Installs our CRDs in an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seltzer.api.core import ObjectCondition, ObjectMeta
from seltzer.kube.client import Client
from seltzer.kube.errors import KubeError
from seltzer.kube.resource import Resource

_POLL = 0.1


class _Status(msgspec.Struct):
    conditions: tuple[ObjectCondition, ...] | None = None  # null in a new CRD


class CustomResourceDefinition(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


CRDS: Resource[CustomResourceDefinition] = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    CustomResourceDefinition,
    namespaced=False,
)


class NotEstablished(KubeError):
    """The API server accepted a CRD but doesn't serve it."""


async def install(client: Client, manifests: Sequence[Mapping[str, Any]], *, deadline: float = 30.0) -> None:
    """Apply the CRDs and wait until the API server serves them. Idempotent."""
    for manifest in manifests:
        await client.apply(CRDS, manifest)
    waiting = [str(manifest["metadata"]["name"]) for manifest in manifests]
    try:
        async with asyncio.timeout(deadline):
            while waiting := [name for name in waiting if not await _established(client, name)]:
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise NotEstablished(
            f"the API server doesn't serve {', '.join(waiting)} after {deadline:.0f} s; "
            "see the conditions of 'kubectl get crd -o yaml'"
        ) from None


async def _established(client: Client, name: str) -> bool:
    found = await client.get(CRDS, name)
    return any(each.type == "Established" and each.status == "True" for each in found.status.conditions or ())
