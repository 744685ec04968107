"""Runs a plan's actions concurrently; one failure doesn't block the others.

The result names only what was done: neither what others changed in the meantime, nor what there was no time for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from seltzer.api.labels import FINALIZER, HOLD
from seltzer.controllers import batch, metrics, slurm_actions
from seltzer.controllers.batch import if_there
from seltzer.controllers.children import Children
from seltzer.controllers.slurm_connection import SlurmConnection
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import AlreadyExists, Conflict, Invalid, KubeError
from seltzer.kube.resource import HasMeta, Resource
from seltzer.plan import recheck
from seltzer.plan.actions import (
    Action,
    Apply,
    Create,
    CreatePods,
    Delete,
    DeletePods,
    Hold,
    OnKubernetes,
    OnSlurm,
    PatchPods,
    PodPatch,
    PodRef,
    RefreshVolumes,
    RemoveStuckPod,
    SetFinalizer,
    SetReplicas,
)
from seltzer.plan.recheck import Facts
from seltzer.plan.stages import stages
from seltzer.slurm import hostlist

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """An action that failed, and why."""

    action: Action
    message: str


@dataclass(frozen=True)
class ActResult:
    """The outcome of a plan's actions."""

    # With only the names that were acted on.
    done: tuple[Action, ...]
    failures: tuple[Failure, ...]
    # Some items were not reached in time: the next pass goes on with them.
    unfinished: bool = False


@dataclass(frozen=True)
class _ActionResult:
    """The part of an action that was done, None if none was; and why the rest was refused."""

    done: Action | None
    error: SeltzerError | None = None


@dataclass(frozen=True)
class Subject:
    """The object that a plan is about."""

    resource: Resource[Any]
    item: HasMeta


class Actor:
    """Does the actions of one subject's plan."""

    def __init__(
        self,
        client: Client,
        children: Children,
        subject: Subject,
        connection: SlurmConnection | None = None,
        make_pod: Callable[[str], Mapping[str, Any]] | None = None,
        wrote_pod: Callable[[HasMeta], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._children = children
        self._subject = subject
        self._connection = connection
        self._make_pod = make_pod
        self._wrote_pod = wrote_pod
        self._facts = Facts()
        self._unfinished = False

    async def act(self, actions: Iterable[Action]) -> ActResult:
        """Stage by stage."""
        done: list[Action] = []
        failures: list[Failure] = []
        actions = list(actions)
        self._facts = await self._read(actions)
        for stage in stages(actions):
            for action, part in zip(stage, await asyncio.gather(*map(self._one, stage)), strict=True):
                if part.done:
                    done.append(part.done)
                if part.error:
                    failures.append(Failure(action, str(part.error)))
        return ActResult(tuple(done), tuple(failures), self._unfinished)

    async def _read(self, actions: Sequence[Action]) -> Facts:
        """What the plan wants to know right before these actions."""
        connection = self._connection
        if connection is None:
            return Facts()
        needs = recheck.needs(actions, connection.view.nodes if connection.view else {})
        named = await connection.named.now(None) if needs.named else None
        queued = await connection.queued.now(needs.partition) if needs.partition else None
        view = await connection.fresh(within=needs.max_age) if needs.nodes else None
        # Read last: this goes stale fastest.
        answers = connection.answers(needs.silent) if needs.silent else {}
        return Facts(view.nodes if view else None, answers, named, queued)

    async def _one(self, action: Action) -> _ActionResult:
        kind = type(action).__name__
        try:
            due = recheck.still_due(action, self._facts)
            part = await self._do(due) if due else _ActionResult(None)
        except SeltzerError as error:
            part = _ActionResult(None, error)
        if part.done:
            metrics.acted(kind, "done")
            logger.info("%s", _summary(part.done), extra=self._extra(kind))
        if part.error:
            metrics.acted(kind, "failed")
            logger.warning("%s: %s", kind, part.error, extra=self._extra(kind))
        return part

    def _extra(self, step: str) -> dict[str, str]:
        metadata = self._subject.item.metadata
        return {"object": f"{self._subject.resource.kind}/{metadata.namespace}/{metadata.name}", "step": step}

    async def _do(self, action: Action) -> _ActionResult:
        if isinstance(action, OnSlurm):
            return await self._on_slurm(action)
        match action:
            case CreatePods():
                return await self._create_pods(action)
            case DeletePods():
                return await self._delete_pods(action)
            case PatchPods(patches):
                some = await self._each(patches, lambda patch: if_there(self._patch_pod(patch)))
                return _ActionResult(replace(action, patches=some.done) if some.done else None, some.error)
            case _:
                return _ActionResult(action if await self._do_whole(action) else None)

    async def _do_whole(self, action: OnKubernetes) -> bool:
        """Act on one object; whether something was done."""
        match action:
            case Apply(manifest):
                resource = kinds.BY_KIND[manifest["kind"]]
                self._children.wrote(manifest, await self._client.apply(resource, manifest))
                return True
            case Create(manifest):
                return await self._create(manifest)
            case Delete(kind, namespace, name, uid):
                return await if_there(self._client.delete(kinds.BY_KIND[kind], name, namespace, uid=uid))
            case RefreshVolumes(namespace, name, annotation, value):
                return await self._annotate(kinds.PODS, name, namespace, annotation, value)
            case Hold(namespace, name, held):
                return await self._annotate(kinds.LEASES, name, namespace, HOLD, "true" if held else None)
            case RemoveStuckPod():
                return await self._remove_stuck(action)
            case SetFinalizer(present):
                return await self._set_finalizer(present)
            case SetReplicas(count):
                return await self._patch_subject({"spec": {"replicas": count}})
        raise AssertionError(f"{action} acts on many objects")

    async def _remove_stuck(self, pod: RemoveStuckPod) -> bool:
        if (seen := pod.silent) is not None:
            lease = await self._client.get(kinds.LEASES, seen.metadata.name, seen.metadata.namespace)
            if lease.metadata.resource_version != seen.metadata.resource_version:
                return False  # its guard may have renewed it since: the next pass looks again
        call = self._client.delete(kinds.PODS, pod.name, pod.namespace, uid=pod.uid, grace_seconds=0)
        return await if_there(call)

    async def _annotate(
        self, resource: Resource[Any], name: str, namespace: str, annotation: str, value: str | None
    ) -> bool:
        patch = {"metadata": {"annotations": {annotation: value}}}
        return await if_there(self._client.patch(resource, name, namespace, patch=patch))

    async def _create(self, manifest: Mapping[str, Any]) -> bool:
        resource = kinds.BY_KIND[manifest["kind"]]
        try:
            await self._client.create(resource, manifest, manifest["metadata"]["namespace"])
        except AlreadyExists:
            return False  # we made it, and the answer was lost
        return True

    async def _create_pods(self, action: CreatePods) -> _ActionResult:
        """One first: if it is refused, a thousand more would be too."""
        first, *others = action.names
        made = (first,) if await self._create_pod(first) else ()
        some = await self._each(others, self._create_pod)
        names = (*made, *some.done)
        return _ActionResult(CreatePods(names) if names else None, some.error)

    async def _create_pod(self, name: str) -> bool:
        assert self._make_pod
        try:
            answer = await self._client.create(kinds.PODS, self._make_pod(name), self._subject.item.metadata.namespace)
        except AlreadyExists:
            return False
        self._wrote_pod(answer)
        return True

    async def _delete_pods(self, action: DeletePods) -> _ActionResult:
        namespace = self._subject.item.metadata.namespace
        some = await self._each(action.pods, lambda pod: if_there(self._delete_pod(pod, namespace)))
        return _ActionResult(replace(action, pods=some.done) if some.done else None, some.error)

    async def _each(self, items: Sequence[T], do: Callable[[T], Awaitable[bool]]) -> batch.BatchResult[T]:
        some = await batch.each(items, do)
        self._unfinished |= some.begun < len(items)
        return some

    async def _delete_pod(self, pod: PodRef, namespace: str) -> None:
        answer = await self._client.delete(
            kinds.PODS, pod.name, namespace, uid=pod.uid, resource_version=pod.resource_version or None
        )
        if answer is not None:
            self._wrote_pod(answer)

    async def _patch_pod(self, patch: PodPatch) -> None:
        """Labels, annotations and status in one call: for pods the API server takes all of them there."""
        metadata: dict[str, Any] = {"uid": patch.uid}
        if patch.labels:
            metadata["labels"] = patch.labels
        if patch.annotations:
            metadata["annotations"] = patch.annotations
        body: dict[str, Any] = {"metadata": metadata}
        if patch.conditions:
            # All fields are written out: one that is missing would stay as it is.
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
                kinds.PODS, patch.name, namespace, patch=body, subresource="status", strategic=True
            )
        except Invalid as error:
            if "metadata.uid" in str(error):  # another pod of this name: the next pass sees it
                raise Conflict(error.status, error.reason, str(error)) from error
            raise
        self._wrote_pod(answer)

    async def _set_finalizer(self, present: bool) -> bool:
        metadata = self._subject.item.metadata
        others = [each for each in metadata.finalizers if each != FINALIZER]
        return await self._patch_subject({"metadata": {"finalizers": [*others, FINALIZER] if present else others}})

    async def _patch_subject(self, patch: Mapping[str, Any]) -> bool:
        """Only onto this version: what somebody else has written meanwhile must not get lost."""
        metadata = self._subject.item.metadata
        patch = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": metadata.resource_version}}
        call = self._client.patch(self._subject.resource, metadata.name, metadata.namespace, patch=patch)
        return await if_there(call)

    async def _on_slurm(self, action: OnSlurm) -> _ActionResult:
        if self._connection is None:
            raise SeltzerError("Slurm can't be asked")
        outcome = await self._connection.write(type(action).__name__, slurm_actions.call(action))
        if outcome is None or not outcome.failed:
            return _ActionResult(action)
        name, why = next(iter(sorted(outcome.failed.items())))
        more = f" (and {len(outcome.failed) - 1} more)" if len(outcome.failed) > 1 else ""
        names = tuple(name for name in action.names if name in outcome.done)
        return _ActionResult(replace(action, names=names) if names else None, SeltzerError(f"{name}{more}: {why}"))


def _summary(action: Action) -> str:
    match action:
        case PatchPods(patches):
            return f"PatchPods {hostlist.fold([patch.name for patch in patches])[:200]}"
        case Apply(manifest) | Create(manifest):
            return f"{type(action).__name__} {manifest['kind']} {manifest['metadata']['name']}"
        case _:
            return str(action)[:300]


def refused(failures: Sequence[Failure]) -> KubeError | SeltzerError:
    """One error for all failures."""
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return SeltzerError(f"{failures[0].message}{more}")
