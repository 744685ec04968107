"""NodeSet: observe, plan, act, report."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names
from seltzer.build import nodeset as build
from seltzer.build.images import Images
from seltzer.controllers import members, metrics
from seltzer.controllers.act import Actor, Subject, refused
from seltzer.controllers.ages import Ages
from seltzer.controllers.caches import Caches
from seltzer.controllers.children import Children
from seltzer.controllers.outcome import outcome
from seltzer.controllers.report import now, report
from seltzer.controllers.slurm_connection import SlurmConnection, SlurmConnections
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.controller import Done, Outcome
from seltzer.kube.events import Recorder
from seltzer.kube.resource import Key, key_of
from seltzer.kube.writes import Writes
from seltzer.plan.actions import Action, Apply
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.nodeset import (
    aging,
    deletion,
    membership,
    next_pass,
    node_records,
    nodeset_status,
    support,
    unreachable_pods,
)
from seltzer.plan.nodeset import nodeset_plan as plan
from seltzer.plan.nodeset.membership import cluster_key
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.slurm.errors import SlurmError


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
            return outcome(key, [next_pass.PODS_UNREAD])
        connection = self._connections.get(cluster_key(nodeset))
        if connection and not await _has_read_its_writes(connection):
            return outcome(key, [next_pass.SLURM_UNREAD])
        labelled = self._caches.pods.by("nodeset", str(key))
        if connection and connection.view is not None and next_pass.needs_fresh_nodes(nodeset, labelled):
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
        metrics.draining.labels(str(key)).set(len(decision.removal.busy))
        if connection:
            connection.cache.busy(f"nodeset {key}", next_pass.in_flight(decision, status))
        if done.failures:
            raise refused(done.failures)
        read_back = (
            connection is not None
            and not done.unfinished
            and next_pass.wrote_to_slurm(done.done)
            and await connection.fresh() is not None
        )
        wakeups = next_pass.wakeups(decision, done.done, unfinished=done.unfinished, read_back=read_back)
        # A pass that goes on with the rest of this one doesn't wait for the cool-down of an expensive pass.
        return outcome(key, wakeups, 0.0 if done.unfinished else cost)

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
        pods = tuple(pod for pod in caches.pods.by("nodeset", str(key)) if membership.owns(nodeset, pod))
        seen = NodeSetObservation(
            nodeset=nodeset,
            verdict=members.verdicts(caches, where)[key],
            pods=pods,
            template=template,
            refusal=refusal,
            slurm=slurm,
            now=time.time(),
            closing=cluster is not None and cluster.metadata.deletion_timestamp is not None,
            controller_started=GuardReport(members.control_plane(caches, where).lease).running_since,
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
        if deletion.deleted(seen.nodeset) and not seen.pods:
            partition = deletion.ending_partition(seen.nodeset, members.of(self._caches, cluster_key(seen.nodeset)))
            seen = dataclasses.replace(seen, queued=await connection.queued(partition) if partition else 0)
        return seen

    def _template(self, nodeset: NodeSet, cluster: SlurmCluster | None) -> tuple[str | None, str]:
        if cluster is None:
            return None, "there is no such SlurmCluster"
        try:
            return build.template(nodeset, cluster, self._images), ""
        except SeltzerError as error:
            return None, str(error)

    def _support(self, seen: NodeSetObservation, decision: NodeSetDecision) -> list[Action]:
        """Objects that the pods need and that have drifted."""
        nodeset, needs = seen.nodeset, support.needs(seen, decision)
        cluster = self._caches.clusters.get(cluster_key(nodeset))
        if cluster is None or needs is None:
            return []
        budget = build.budget(nodeset, cluster, everyone=needs.protects == "everyone")
        manifests = list(self._children.absent([budget])) if needs.only_create else [budget]
        secret = self._caches.secrets.get(Key(cluster.metadata.namespace, names.keys(cluster)))
        if needs.key and (data := secret.data.get(names.SLURM_KEY) if secret else None):
            manifests += build.support(nodeset, cluster, base64.b64decode(data))
        return [Apply(manifest) for manifest in self._children.drifted(manifests)]


async def _has_read_its_writes(connection: SlurmConnection) -> bool:
    """Whether what is known of Slurm has all that we wrote; unknown altogether is another matter, told by the plan."""
    if connection.view is not None or connection.cache.view is None:
        return True
    return await connection.fresh() is not None


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
