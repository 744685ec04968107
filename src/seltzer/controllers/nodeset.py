"""NodeSet: observe, plan, act, report."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from seltzer.api.core import Pod
from seltzer.api.nodeset import NodeSet, NodeSetStatus
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names
from seltzer.build import nodeset as build
from seltzer.build.images import Images
from seltzer.controllers import members, metrics
from seltzer.controllers.act import Actor, Subject, refused
from seltzer.controllers.ages import Ages
from seltzer.controllers.caches import Caches
from seltzer.controllers.children import Children
from seltzer.controllers.report import now, report
from seltzer.controllers.slurm_connection import SlurmConnection, SlurmConnections
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.controller import After, Done, Outcome
from seltzer.kube.events import Recorder
from seltzer.kube.resource import Key, key_of
from seltzer.kube.writes import Writes
from seltzer.plan.actions import Action, Apply, CreatePods, DownNodes, KillJobs, OnSlurm
from seltzer.plan.nodeset import aging, drain_causes, node_records, nodeset_status, unreachable_pods
from seltzer.plan.nodeset import nodeset_plan as plan
from seltzer.plan.nodeset.deletion import deleted
from seltzer.plan.nodeset.membership import cluster_key
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.slurm.errors import SlurmError

# How soon to look again at what was just written.
_AT_ONCE = 0.02
_SOON = 0.5


class NodeSetController:
    """Makes NodeSets so."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        children: Children,
        connections: SlurmConnections,
        recorder: Recorder,
        images: Images,
    ) -> None:
        self._client = client
        self._caches = caches
        self._children = children
        self._connections = connections
        self._recorder = recorder
        self._images = images
        self._writes = Writes(caches.pods)
        self._ages = Ages()

    async def reconcile(self, key: Key) -> Outcome:
        nodeset = self._caches.nodesets.get(key)
        if nodeset is None:
            self._ages.forget(key)
            return Done()
        if not self._writes.are_read(key):
            return After(_AT_ONCE)
        connection = self._connections.get(cluster_key(nodeset))
        if connection and not await _has_read_its_writes(connection):
            return After(_SOON)
        if connection and connection.view is not None and (self._is_choosing(nodeset) or self._has_ended(nodeset)):
            await connection.fresh()
        seen = await self._observe(nodeset, connection)
        began = time.thread_time()
        decision = plan.decide(seen)
        cost = time.thread_time() - began
        actions = [*self._support(seen, decision), *decision.actions, *decision.told]
        done = await self._actor(nodeset, connection).act(actions)
        failures = [failure.message for failure in done.failures]
        began = time.thread_time()
        status = nodeset_status.status(seen, decision, failures, now())
        cost += time.thread_time() - began
        told = nodeset_status.happenings(nodeset, status, done.done)
        await report(self._client, self._recorder, kinds.NODESETS, nodeset, status, told)
        self._pace(key, connection, decision, status)
        if done.failures:
            raise refused(done.failures)
        if done.unfinished:
            return After(_AT_ONCE)
        if connection and any(isinstance(action, OnSlurm) for action in done.done):
            # Jobs that are taken off a node need a moment.
            patience = any(isinstance(action, KillJobs | DownNodes) for action in done.done)
            return After(_AT_ONCE if await connection.fresh() and not patience else _SOON, cost)
        return After(1.0, cost) if decision.timed else Done(cost)

    def _actor(self, nodeset: NodeSet, connection: SlurmConnection | None) -> Actor:
        cluster = self._caches.clusters.get(cluster_key(nodeset))
        key = key_of(nodeset)

        @functools.cache
        def make() -> Callable[[str], Mapping[str, object]]:
            assert cluster, "no pod is planned for a cluster that isn't there"
            return build.pods_of(nodeset, cluster, self._images)

        subject = Subject(kinds.NODESETS, nodeset)
        wrote = lambda answer: self._writes.wrote(key, answer)  # noqa: E731
        return Actor(self._client, self._children, subject, connection, lambda name: make()(name), wrote)

    async def _observe(self, nodeset: NodeSet, connection: SlurmConnection | None) -> NodeSetObservation:
        caches, key, where = self._caches, key_of(nodeset), cluster_key(nodeset)
        cluster = caches.clusters.get(where)
        template, refusal = self._template(nodeset, cluster)
        slurm = members.slurm(caches, where, connection)
        pods = tuple(pod for pod in caches.pods.by("nodeset", str(key)) if _is_owned(pod, nodeset))
        seen = NodeSetObservation(
            nodeset=nodeset,
            verdict=members.verdicts(caches, where)[key],
            pods=pods,
            template=template,
            refusal=refusal,
            slurm=slurm,
            now=time.time(),
            closing=cluster is not None and cluster.metadata.deletion_timestamp is not None,
            controller_started=members.controller_started(caches, where),
            free_at=connection.free_at if connection else {},
        )
        seen = dataclasses.replace(seen, ages=self._ages.of(key, aging.things(seen), time.monotonic()))
        seen = await self._with_jobs(await _with_deadlines(seen, connection), connection)
        # Last, since nothing is older sooner: who was silent when the questions above were asked may be back.
        seen = dataclasses.replace(seen, machines=caches.machines.of({pod.spec.node_name for pod in pods}))
        if connection and slurm.nodes is not None and (doubtful := unreachable_pods.doubtful(seen)):
            seen = dataclasses.replace(seen, answers=connection.answers(doubtful))
        return seen

    async def _with_jobs(self, seen: NodeSetObservation, connection: SlurmConnection | None) -> NodeSetObservation:
        """Add what waiting jobs need, where a record or the whole NodeSet is about to go."""
        if connection is None or seen.slurm.nodes is None:
            return seen
        if not node_records.can_wait(seen) and any(not node.occupied for node in node_records.orphaned(seen)):
            seen = dataclasses.replace(seen, named=await connection.named())
        if deleted(seen.nodeset) and not seen.pods:
            partition = self._ending(seen.nodeset)
            seen = dataclasses.replace(seen, queued=await connection.queued(partition) if partition else 0)
        return seen

    def _ending(self, nodeset: NodeSet) -> str:
        """The partition that goes with this NodeSet, if no other one is in it."""
        name = nodeset_status.partition(nodeset)
        others = [
            each
            for each in members.of(self._caches, cluster_key(nodeset))
            if each.metadata.uid != nodeset.metadata.uid and not deleted(each)
        ]
        return "" if any(nodeset_status.partition(each) == name for each in others) else name

    def _is_choosing(self, nodeset: NodeSet) -> bool:
        """Who goes is chosen by whom the jobs are on now: seconds ago, another node may have been the idle one."""
        return 0 < nodeset.spec.replicas < len(self._caches.pods.by("nodeset", str(key_of(nodeset))))

    def _has_ended(self, nodeset: NodeSet) -> bool:
        """A container that ended is started again in a second, and jobs come: Slurm tells whether it has been."""
        return any(drain_causes.ended(pod) for pod in self._caches.pods.by("nodeset", str(key_of(nodeset))))

    def _template(self, nodeset: NodeSet, cluster: SlurmCluster | None) -> tuple[str | None, str]:
        if cluster is None:
            return None, "there is no such SlurmCluster"
        try:
            return build.template(nodeset, cluster, self._images), ""
        except SeltzerError as error:
            return None, str(error)

    def _support(self, seen: NodeSetObservation, decision: NodeSetDecision) -> list[Action]:
        """What the pods need beside them: before the first of them, and as long as there are any."""
        nodeset = seen.nodeset
        cluster = self._caches.clusters.get(cluster_key(nodeset))
        needed = decision.staying or any(isinstance(each, CreatePods) for each in decision.actions)
        # Also if all of them are about to go and are waited for. What goes with a deleted NodeSet isn't made again.
        needed = needed or (seen.pods and not deleted(nodeset) and not seen.closing)
        if cluster is None or not needed:
            return []
        manifests = self._budget(seen, cluster)
        secret = self._caches.secrets.get(Key(cluster.metadata.namespace, names.keys(cluster)))
        # Whoever has the key is root in Slurm: it goes to nobody who may not be there, whatever pods they have made.
        if seen.verdict.member and (data := secret.data.get(names.SLURM_KEY) if secret else None):
            manifests += build.support(nodeset, cluster, base64.b64decode(data))
        return [Apply(manifest) for manifest in self._children.drifted(manifests)]

    def _budget(self, seen: NodeSetObservation, cluster: SlurmCluster) -> list[Mapping[str, Any]]:
        """It protects all pods while nobody knows which of them have jobs. Before that is certain, one that is there
        stays as it is: a new leader knows nothing yet."""
        slurm = seen.slurm
        known = slurm.nodes is not None or slurm.gone
        wanted = build.budget(seen.nodeset, cluster, everyone=not known)
        return [wanted] if known or slurm.unreachable else list(self._children.absent([wanted]))

    def _pace(
        self, key: Key, connection: SlurmConnection | None, decision: NodeSetDecision, status: NodeSetStatus
    ) -> None:
        """Ask Slurm every second while something is about to happen there."""
        metrics.draining.labels(str(key)).set(len(decision.removal.busy))
        if connection:
            arriving = status.ready_replicas < decision.target
            connection.cache.busy(f"nodeset {key}", arriving or bool(decision.removal.busy) or bool(decision.replacing))


async def _has_read_its_writes(connection: SlurmConnection) -> bool:
    """Whether what is known of Slurm has all that we wrote; unknown altogether is another matter, told by the plan."""
    if connection.view is not None or connection.cache.view is None:
        return True
    return await connection.fresh() is not None


def _is_owned(pod: Pod, nodeset: NodeSet) -> bool:
    """Ours, and not of an earlier NodeSet of this name, nor made by hand with our labels.

    One without any owner is ours as well: whoever deletes a NodeSet with --cascade=orphan leaves its jobs running.
    """
    if not re.fullmatch(rf"{re.escape(nodeset.metadata.name)}-(0|[1-9][0-9]*)", pod.metadata.name):
        return False  # a copy that somebody made under another name
    owners = pod.metadata.owner_references
    return not owners or any(owner.uid == nodeset.metadata.uid for owner in owners)


async def _with_deadlines(seen: NodeSetObservation, connection: SlurmConnection | None) -> NodeSetObservation:
    """Add when nodes will be free, if some of them have to go and it matters which."""
    nodes = seen.slurm.nodes
    target = seen.nodeset.spec.replicas
    if connection is None or nodes is None or not 0 < target < len(seen.pods):
        return seen
    names_ = [pod.metadata.name for pod in seen.pods]
    busy = [name for name in names_ if name in nodes and nodes[name].occupied]
    open_ = [name for name in busy if not nodes[name].drained]
    if len(names_) - len(open_) >= len(names_) - target:
        return seen
    with contextlib.suppress(SlurmError):
        free_in = await connection.free_in(open_)
        return dataclasses.replace(seen, free_in=free_in)
    return seen
