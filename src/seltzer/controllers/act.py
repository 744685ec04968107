"""Do what a plan asks for: side by side, each on its own, so that one that fails holds up no other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from seltzer.api.labels import FINALIZER, HOLD
from seltzer.controllers import metrics, resources
from seltzer.controllers.children import Children
from seltzer.controllers.link import Link
from seltzer.errors import SeltzerError
from seltzer.kube.client import Client
from seltzer.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound
from seltzer.kube.resource import HasMeta, Resource
from seltzer.plan import nodes as slurm_nodes
from seltzer.plan.actions import (
    Action,
    Apply,
    Create,
    CreatePods,
    Delete,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    Goner,
    Hold,
    KillJobs,
    MarkNodes,
    MirrorPods,
    OnSlurm,
    PodPatch,
    Poke,
    RemoveStuckPod,
    ResumeNodes,
    SetAddress,
    SetFinalizer,
)
from seltzer.slurm import hostlist
from seltzer.slurm.client import Outcome, SlurmClient
from seltzer.slurm.models import Node
from seltzer.slurm.nodes import View

logger = logging.getLogger(__name__)

T = TypeVar("T")
IN_FLIGHT = 32
PATIENCE = 2.0
_MOMENT = 0.5

# Pods wait for what they mount, and longer each time they don't find it: it has to be there first. A binding to a role
# that isn't there yet is refused.
_LATER = frozenset({"Deployment", "Pod", "RoleBinding"})


@dataclass(frozen=True)
class Failure:
    """What could not be done, and why."""

    action: Action
    message: str


@dataclass(frozen=True)
class Done:
    """What became of a plan's actions."""

    done: tuple[Action, ...]
    failures: tuple[Failure, ...]
    # Some were begun and took long: the next pass goes on with what is left of them.
    unfinished: bool = False


@dataclass(frozen=True)
class Subject:
    """The object that a plan is about."""

    resource: Resource[Any]
    item: HasMeta


class Actor:
    """Does actions for one subject."""

    def __init__(
        self,
        client: Client,
        children: Children,
        subject: Subject,
        link: Link | None = None,
        make_pod: Callable[[str], Mapping[str, Any]] | None = None,
        wrote_pod: Callable[[HasMeta], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._children = children
        self._subject = subject
        self._link = link
        self._make_pod = make_pod
        self._wrote_pod = wrote_pod
        self._view: View | None = None
        self._unfinished = False

    async def act(self, actions: Iterable[Action]) -> Done:
        """Inputs first, then what uses them."""
        done: list[Action] = []
        failures: list[Failure] = []
        actions = list(actions)
        if self._link and (asking := [action for action in actions if _needs_view(action)]):
            # Seconds may have passed since the plan's view of Slurm, and people drain nodes too.
            self._view = await self._link.fresh(within=_MOMENT if self._all_drained(asking) else 0.0)
        for stage in _stages(actions):
            answers = await asyncio.gather(*(self._one(action) for action in stage))
            for action, message in zip(stage, answers, strict=True):
                if message is None:
                    done.append(action)
                else:
                    failures.append(Failure(action, message))
        return Done(tuple(done), tuple(failures), self._unfinished)

    async def _one(self, action: Action) -> str | None:
        """Why it could not be done, if so."""
        kind = type(action).__name__
        try:
            await self._do(action)
        except SeltzerError as error:
            metrics.acted(kind, "failed")
            logger.warning("%s: %s", kind, error, extra=self._extra(kind))
            return str(error)
        metrics.acted(kind, "done")
        logger.info("%s", _summary(action), extra=self._extra(kind))
        return None

    def _extra(self, step: str) -> dict[str, str]:
        metadata = self._subject.item.metadata
        return {"object": f"{self._subject.resource.kind}/{metadata.namespace}/{metadata.name}", "step": step}

    async def _do(self, action: Action) -> None:
        match action:
            case Apply(manifest):
                resource = resources.BY_KIND[manifest["kind"]]
                self._children.wrote(manifest, await self._client.apply(resource, manifest))
            case Create(manifest):
                await self._create(manifest)
            case Delete(kind, namespace, name, uid):
                await _if_there(self._client.delete(resources.BY_KIND[kind], name, namespace, uid=uid))
            case CreatePods(names):
                await self._create_pods(names)
            case DeletePods(pods, ask):
                await self._delete_pods(pods, ask)
            case Poke(namespace, name, annotation, value):
                await self._annotate(resources.PODS, name, namespace, annotation, value)
            case Hold(namespace, name, held):
                await self._annotate(resources.LEASES, name, namespace, HOLD, "true" if held else None)
            case RemoveStuckPod():
                await self._remove_stuck(action)
            case SetFinalizer(present):
                await self._set_finalizer(present)
            case MirrorPods(patches):
                await self._each(patches, lambda patch: _if_there(self._mirror(patch)))
            case _:
                await self._on_slurm(action)

    async def _remove_stuck(self, pod: RemoveStuckPod) -> None:
        if (seen := pod.silent) is not None:
            lease = await self._client.get(resources.LEASES, seen.metadata.name, seen.metadata.namespace)
            if lease.metadata.resource_version != seen.metadata.resource_version:
                return  # its guard may have spoken since: it is looked at again
        await _if_there(self._client.delete(resources.PODS, pod.name, pod.namespace, uid=pod.uid, grace_seconds=0))

    async def _annotate(
        self, resource: Resource[Any], name: str, namespace: str, annotation: str, value: str | None
    ) -> None:
        patch = {"metadata": {"annotations": {annotation: value}}}
        await _if_there(self._client.patch(resource, name, namespace, patch=patch))

    async def _create(self, manifest: Mapping[str, Any]) -> None:
        resource = resources.BY_KIND[manifest["kind"]]
        with contextlib.suppress(AlreadyExists):  # it was made before, by us: the answer was lost
            await self._client.create(resource, manifest, manifest["metadata"]["namespace"])

    async def _create_pods(self, names: Sequence[str]) -> None:
        """One first: if that is refused, a thousand more would be as well."""
        await self._create_pod(names[0])
        await self._each(names[1:], self._create_pod)

    async def _create_pod(self, name: str) -> None:
        assert self._make_pod
        try:
            answer = await self._client.create(
                resources.PODS, self._make_pod(name), self._subject.item.metadata.namespace
            )
        except AlreadyExists:
            return
        self._wrote_pod(answer)

    async def _delete_pods(self, pods: Sequence[Goner], ask: bool) -> None:
        if ask:
            pods = self._still_empty(pods)
        namespace = self._subject.item.metadata.namespace
        await self._each(pods, lambda pod: _if_there(self._delete_pod(pod, namespace)))

    async def _each(self, items: Sequence[T], do: Callable[[T], Awaitable[None]]) -> None:
        self._unfinished |= await _each(items, do) < len(items)

    async def _delete_pod(self, pod: Goner, namespace: str) -> None:
        answer = await self._client.delete(
            resources.PODS, pod.name, namespace, uid=pod.uid, resource_version=pod.resource_version or None
        )
        if answer is not None:
            self._wrote_pod(answer)

    async def _mirror(self, patch: PodPatch) -> None:
        """Labels and annotations go with the status, in one call: of pods the API server takes them there too."""
        metadata: dict[str, Any] = {"uid": patch.uid}
        if patch.labels:
            metadata["labels"] = patch.labels
        if patch.annotations:
            metadata["annotations"] = patch.annotations
        body: dict[str, Any] = {"metadata": metadata}
        if patch.conditions:
            # Written out: a field that isn't there stays as it is.
            body["status"] = {
                "conditions": [
                    {
                        "type": each.type,
                        "status": each.status,
                        "reason": each.reason,
                        "message": each.message,
                        "lastTransitionTime": each.last_transition_time,
                    }
                    for each in patch.conditions
                ]
            }
        namespace = self._subject.item.metadata.namespace
        try:
            answer = await self._client.patch(
                resources.PODS, patch.name, namespace, patch=body, subresource="status", strategic=True
            )
        except Invalid as error:
            if "metadata.uid" in str(error):
                return  # another pod of this name: the next pass looks at that one
            raise
        self._wrote_pod(answer)

    def _all_drained(self, actions: Iterable[Action]) -> bool:
        """Whether all that they are about are drained, so that no job can come in the next moment."""
        known = self._link.view.nodes if self._link and self._link.view else {}
        pods = [action.pods if isinstance(action, DeletePods) else None for action in actions]
        return all(
            some is not None and all((node := known.get(pod.name)) and node.drained for pod in some) for some in pods
        )

    def _still_empty(self, pods: Sequence[Goner]) -> list[Goner]:
        """Those whose nodes have no job right now."""
        known = self._known()
        return [pod for pod in pods if (node := known.get(pod.name)) is None or slurm_nodes.is_empty(node)]

    def _known(self) -> Mapping[str, Node]:
        """Slurm's nodes as they are right now."""
        if self._view is None:
            raise SeltzerError("Slurm can't be asked right now, so nothing is done that could cost a job")
        return self._view.nodes

    def _still_true(self, action: OnSlurm) -> OnSlurm:
        """The action without the nodes that somebody else has changed since it was planned: theirs is kept."""
        if not _needs_view(action):
            return action
        known = self._known()
        kept = (name for name in action.names if (node := known.get(name)) and _is_due(action, node))
        return replace(action, names=tuple(kept))

    async def _set_finalizer(self, present: bool) -> None:
        metadata = self._subject.item.metadata
        others = [each for each in metadata.finalizers if each != FINALIZER]
        # Onto this very version only: somebody else's finalizer must not get lost.
        patch = {
            "metadata": {
                "resourceVersion": metadata.resource_version,
                "finalizers": [*others, FINALIZER] if present else others,
            }
        }
        call = self._client.patch(self._subject.resource, metadata.name, metadata.namespace, patch=patch)
        await _if_there(call)

    async def _on_slurm(self, action: OnSlurm) -> None:
        if self._link is None:
            raise SeltzerError("Slurm can't be asked")
        action = self._still_true(action)
        if not action.names:
            return
        call = _call(action)
        outcome = await self._link.write(type(action).__name__, call)
        if outcome is not None and outcome.failed:
            name, why = next(iter(sorted(outcome.failed.items())))
            more = f" (and {len(outcome.failed) - 1} more)" if len(outcome.failed) > 1 else ""
            raise SeltzerError(f"{name}{more}: {why}")


def _is_due(action: OnSlurm, node: Node) -> bool:
    """Whether an action is still what this node needs."""
    match action:
        case DrainNodes(_, reason):
            if slurm_nodes.down_by_others(node) or not reason.startswith(slurm_nodes.OURS):
                return not node.drained and node.reason == reason
            return not node.drained or (slurm_nodes.drained_by_us(node) and node.reason != reason)
        case ResumeNodes():
            if node.drained:
                return slurm_nodes.drained_by_us(node)
            return slurm_nodes.down_by_us(node) or slurm_nodes.down_by_outage(node)
        case DownNodes(_, reason):
            # A reason of somebody else is kept, and only where they still give it.
            theirs = slurm_nodes.held_by_others(node) or not reason.startswith(slurm_nodes.OURS)
            return not theirs or node.reason == reason
    return True


def _needs_view(action: Action) -> bool:
    return isinstance(action, DrainNodes | ResumeNodes | DownNodes) or (isinstance(action, DeletePods) and action.ask)


def _call(action: OnSlurm) -> Callable[[SlurmClient], Awaitable[Outcome | None]]:
    match action:
        case DrainNodes(names, reason):
            return lambda slurm: slurm.drain(names, reason)
        case ResumeNodes(names):
            return lambda slurm: slurm.resume(names)
        case DownNodes(names, reason):
            return lambda slurm: slurm.down(names, reason)
        case KillJobs(names):
            return lambda slurm: slurm.kill_jobs(names)
        case MarkNodes(names, comment):
            return lambda slurm: slurm.comment(names, comment)
        case SetAddress(names, address):
            return lambda slurm: slurm.set_address(names, address)
        case DeleteRecords(names):
            return lambda slurm: slurm.delete(names)


def _stages(actions: Iterable[Action]) -> list[list[Action]]:
    """Inputs, then what needs them; the finalizer is removed last of all."""
    inputs: list[Action] = []
    later: list[Action] = []
    last: list[Action] = []
    for action in actions:
        if isinstance(action, SetFinalizer) and not action.present:
            last.append(action)
        elif isinstance(action, Apply | Create) and action.manifest["kind"] in _LATER:
            later.append(action)
        else:
            inputs.append(action)
    return [stage for stage in (inputs, later, last) if stage]


async def _each(items: Iterable[T], do: Callable[[T], Awaitable[None]]) -> int:
    """As many at a time as the API server is asked at once, so that no call's deadline begins before it is sent; how
    many were begun.

    After PATIENCE no further ones are begun: the next pass does the rest, and sees what has changed meanwhile.
    A failure is told when all that were begun have ended.
    """
    left = iter(items)
    end = time.monotonic() + PATIENCE
    failures: list[Exception] = []
    begun = 0

    async def work() -> None:
        nonlocal begun
        for item in left:
            begun += 1
            try:
                await do(item)
            except Exception as error:
                failures.append(error)
            if failures or time.monotonic() >= end:
                return

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    if failures:
        raise failures[0]
    return begun


async def _if_there(call: Awaitable[Any]) -> None:
    """What is gone, or no longer what it was, needs nothing from us; the next pass looks at what there is now."""
    try:
        await call
    except (NotFound, Conflict) as error:
        logger.debug("skipped: %s", error)


def _summary(action: Action) -> str:
    match action:
        case MirrorPods(patches):
            return f"MirrorPods {hostlist.fold([patch.name for patch in patches])[:200]}"
        case Apply(manifest) | Create(manifest):
            return f"{type(action).__name__} {manifest['kind']} {manifest['metadata']['name']}"
        case _:
            return str(action)[:300]


def refused(failures: Sequence[Failure]) -> KubeError | SeltzerError:
    """One error that tells of all."""
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return SeltzerError(f"{failures[0].message}{more}")
