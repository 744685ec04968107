"""Access to Kubernetes for the verbs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from seltzer.api.core import ObjectMeta, View
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import sandbox
from seltzer.errors import SeltzerError
from seltzer.kube import config, kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import ConfigError, Forbidden, NotFound, Unauthorized, Unavailable
from seltzer.kube.resource import HasMeta, Resource
from seltzer.view.text import suggestion

T = TypeVar("T")
H = TypeVar("H", bound=HasMeta)

POLL = 0.5
_GREETING = 3.0


class Container(View, frozen=True, kw_only=True):
    """A container of a pod template."""

    name: str = ""
    image: str = ""


class _PodSpec(View, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()


class _Template(View, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _Selector(View, frozen=True, kw_only=True):
    match_labels: Mapping[str, str] = {}


class _DeploymentSpec(View, frozen=True, kw_only=True):
    replicas: int = 1
    selector: _Selector = _Selector()
    template: _Template = _Template()


class _DeploymentStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0


class Deployment(View, frozen=True, kw_only=True):
    """A Deployment: its images, and how many of its pods are available."""

    metadata: ObjectMeta
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()


DEPLOYMENTS: Resource[Deployment] = Resource("apps", "v1", "deployments", "Deployment", Deployment)


@dataclass(frozen=True)
class Place:
    """An API server, a namespace, and the flags that lead kubectl there."""

    config: config.Config
    namespace: str
    flags: tuple[str, ...] = ()

    @property
    def kubectl_flags(self) -> tuple[str, ...]:
        return (*self.flags, "--namespace", self.namespace)


def locate(namespace: str | None = None, context: str | None = None, env: Mapping[str, str] = os.environ) -> Place:
    """The place that kubectl would use. Without any configuration it is a running sandbox, with a note on stderr."""
    flags = ("--context", context) if context else ()
    try:
        found = config.load(context, env)
    except ConfigError:
        fallback = None if env.get("KUBECONFIG") or _usual(env).exists() else sandbox.running()
        if fallback is None:
            raise
        print(f"using the sandbox {fallback.name!r}", file=sys.stderr)
        kubeconfig = str(fallback.kubeconfig)
        found = config.load(context, {"KUBECONFIG": kubeconfig})
        flags = ("--kubeconfig", kubeconfig, *flags)
    return Place(found, namespace or found.namespace, flags)


def _usual(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME", "/root")) / ".kube" / "config"


def talk(place: Place, about: Callable[[Client], Awaitable[T]]) -> T:
    """Runs `about` with a client. An API server that can't be reached fails soon, with one line."""

    async def conversation() -> T:
        async with Client(place.config) as client:
            await _greet(client, place)
            return await about(client)

    return asyncio.run(conversation())


async def _greet(client: Client, place: Place) -> None:
    """Fails soon if there is no server: other calls wait longer for one that is away for a moment."""
    try:
        await client.call("GET", "/version", deadline=_GREETING)
    except Forbidden:
        return
    except Unauthorized:
        raise SeltzerError(
            f"the API server {place.config.server} doesn't accept your credentials; log in to the cluster again, or "
            "choose another context with --context"
        ) from None
    except Unavailable as error:
        raise SeltzerError(
            f"{error} ({place.config.server}); see that the cluster is up, or choose another context with --context"
        ) from None


async def every(client: Client, resource: Resource[H], namespace: str = "") -> list[H]:
    """All objects of one of our kinds, sorted by namespace and name."""
    try:
        found = await client.list_all(resource, namespace)
    except NotFound:
        raise SeltzerError(f"Kubernetes doesn't know {resource.kind}s; run 'seltzer install' first") from None
    return sorted(found.items, key=lambda item: (item.metadata.namespace, item.metadata.name))


async def cluster(client: Client, place: Place, name: str) -> SlurmCluster:
    """The SlurmCluster of that name. Raises SeltzerError with suggestions if there is none."""
    return await one(client, kinds.CLUSTERS, place, name)


async def one(client: Client, resource: Resource[H], place: Place, name: str) -> H:
    """The object of that name. Raises SeltzerError with suggestions if there is none."""
    here = await every(client, resource, place.namespace)
    for item in here:
        if item.metadata.name == name:
            return item
    try:
        elsewhere = [i.metadata.namespace for i in await every(client, resource) if i.metadata.name == name]
    except Forbidden:
        elsewhere = []
    raise SeltzerError(_not_found(resource.kind, name, place.namespace, [i.metadata.name for i in here], elsewhere))


def _not_found(kind: str, name: str, namespace: str, here: Sequence[str], elsewhere: Sequence[str]) -> str:
    says = f"there is no {kind} {name!r} in namespace {namespace!r}"
    if elsewhere:
        return f"{says}, but in {', '.join(elsewhere)}: add -n {elsewhere[0]}"
    if not here:
        create = "; make one with 'seltzer create NAME'" if kind == kinds.CLUSTERS.kind else ""
        return f"{says}, nor any other{create}"
    return f"{says}; {suggestion(name, here)}"


async def nodesets(client: Client, of: SlurmCluster) -> list[NodeSet]:
    """The NodeSets of this cluster, in its own namespace and in those that it allows."""
    home = of.metadata.namespace
    found: list[NodeSet] = []
    for namespace in dict.fromkeys((home, *of.spec.node_sets.namespaces)):
        try:
            found += await every(client, kinds.NODESETS, namespace)
        except Forbidden:
            if namespace == home:
                raise
    return [each for each in found if belongs(each, of)]


def belongs(nodeset: NodeSet, to: SlurmCluster) -> bool:
    """Whether the NodeSet names this cluster."""
    ref = nodeset.spec.cluster_ref
    return (ref.name, ref.namespace or nodeset.metadata.namespace) == (to.metadata.name, to.metadata.namespace)


class Reviewed(Protocol):
    """Returns what is still missing; empty when it is done."""

    def __call__(self) -> Awaitable[str]: ...


async def until(done: Reviewed, timeout: float, say: Callable[[str], None], what: str, *, poll: float = POLL) -> None:
    """Asks until the answer is empty. Says each answer once; the error after the timeout has the last one."""
    last = ""
    said: set[str] = set()
    try:
        async with asyncio.timeout(timeout):
            while answer := await done():
                if answer not in said:
                    say(answer)
                last = answer
                said.add(answer)
                await asyncio.sleep(poll)
    except TimeoutError:
        raise SeltzerError(f"{what} after {timeout:.0f} s: {last or 'no answer'}") from None
