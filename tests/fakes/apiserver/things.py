"""Objects as tests of an API server read them, fake or real: their metadata in full, the rest as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from seltzer.kube.resource import Resource

T = TypeVar("T")
DEADLINE = 120.0


class Meta(msgspec.Struct, rename="camel", kw_only=True):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[dict[str, Any]] = []


class Item(msgspec.Struct, kw_only=True):
    metadata: Meta
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    data: dict[str, str] = {}


MAPS = Resource("", "v1", "configmaps", "ConfigMap", Item)
PODS = Resource("", "v1", "pods", "Pod", Item)
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", Item)
SECRETS = Resource("", "v1", "secrets", "Secret", Item)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", Item, namespaced=False)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", Item)
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", Item)
NODESETS = Resource("seltzer.dev", "v1alpha1", "nodesets", "NodeSet", Item)


async def until(
    what: str, ask: Callable[[], Awaitable[T | None]], pause: float = 0.01, deadline: float = DEADLINE
) -> T:
    """Ask until the answer is neither None nor False."""
    end = asyncio.get_running_loop().time() + deadline
    while True:
        answer = await ask()
        if answer is not None and answer is not False:
            return answer
        assert asyncio.get_running_loop().time() < end, f"waited in vain: {what}"
        await asyncio.sleep(pause)
