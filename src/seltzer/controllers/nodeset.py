"""NodeSets: observe, plan, act, report."""

from __future__ import annotations

import base64
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Mapping

from seltzer.api.core import PersistentVolumeClaim, Pod
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names, topology, users
from seltzer.build import nodeset as build
from seltzer.controllers import members, metrics
from seltzer.controllers.act import Actor, Subject, refused
from seltzer.controllers.ages import Ages
from seltzer.controllers.outcome import outcome
from seltzer.controllers.registration import Shared
from seltzer.controllers.report import now, report
from seltzer.controllers.slurm_connection import SlurmConnection
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.controller import Done, Outcome
from seltzer.kube.resource import Key, key_of
from seltzer.kube.writes import Writes
from seltzer.plan import home
from seltzer.plan.actions import Action, Apply
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.nodeset import (
    aging,
    deletion,
    membership,
    next_pass,
    nodeset_status,
    places,
    support,
    unreachable_pods,
)
from seltzer.plan.nodeset import nodeset_plan as plan
from seltzer.plan.nodeset.membership import cluster_key
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation, Wants
from seltzer.plan.nodeset.places import Places, machine_of


class NodeSetController:
    """Reconciles NodeSets."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._caches = shared.caches
        self._writes = Writes(shared.caches.pods)
        self._ages = Ages()

    async def reconcile(self, key: Key) -> Outcome:
        nodeset = self._caches.nodesets.get(key)
        if nodeset is None:
            self._ages.forget(key)
            return Done()
        if not self._writes.are_read(key):
            return outcome(key, [next_pass.PODS_UNREAD])
        connection = self._shared.connections.get(cluster_key(nodeset))
        if connection and not await _has_read_its_writes(connection):
            return outcome(key, [next_pass.SLURM_UNREAD])
        labelled = self._caches.pods.by("nodeset", str(key))
        if connection and connection.view is not None and next_pass.needs_fresh_nodes(nodeset, labelled):
            await connection.fresh()
        seen = self._observe(nodeset, connection)
        began = time.thread_time()
        decision = plan.decide(seen)
        cost = time.thread_time() - began
        if connection:
            _feed(decision.wants, connection)
        actions = [*self._support(seen, decision), *decision.actions, *decision.pod_updates]
        done = await self._actor(seen, connection).act(actions)
        failures = [failure.message for failure in done.failures]
        began = time.thread_time()
        status = nodeset_status.status(seen, decision, failures, now())
        cost += time.thread_time() - began
        events = nodeset_status.events(nodeset, status, done.done)
        await report(self._shared.client, self._shared.recorder, kinds.NODESETS, nodeset, status, events)
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
        wakeups = next_pass.wakeups(seen, decision, done.done, unfinished=done.unfinished, read_back=read_back)
        # A pass that goes on with the rest of this one doesn't wait for the cool-down of an expensive pass.
        return outcome(key, wakeups, 0.0 if done.unfinished else cost)

    def _actor(self, seen: NodeSetObservation, connection: SlurmConnection | None) -> Actor:
        built = self._built(seen.nodeset, seen.now)
        key = key_of(seen.nodeset)
        machines = seen.places.wanted if seen.places else {}

        @functools.cache
        def make() -> Callable[[str], Mapping[str, object]]:
            assert built, "no pod is planned without a cluster"
            return build.pods_of(*built, self._shared.images, self._users(*built), machines)

        subject = Subject(kinds.NODESETS, seen.nodeset)
        wrote = lambda answer: self._writes.wrote(key, answer)  # noqa: E731
        return Actor(self._shared.client, self._shared.children, subject, connection, lambda name: make()(name), wrote)

    def _observe(self, nodeset: NodeSet, connection: SlurmConnection | None) -> NodeSetObservation:
        caches, key, where = self._caches, key_of(nodeset), cluster_key(nodeset)
        cluster, time_now = caches.clusters.get(where), time.time()
        pods = tuple(pod for pod in caches.pods.by("nodeset", str(key)) if membership.owns(nodeset, pod))
        template, selected, refusal = self._template(nodeset, pods, time_now)
        ending = deletion.ending_partition(nodeset, members.of(caches, where)) if deletion.deleted(nodeset) else ""
        seen = NodeSetObservation(
            nodeset=nodeset,
            membership=members.memberships(caches, where)[key],
            pods=pods,
            template=template,
            refusal=refusal,
            home=home.of_nodeset(nodeset, cluster, self._home_claim(nodeset)),
            slurm=members.slurm(caches, where, connection),
            now=time_now,
            home_wakeup=home.awaited(cluster, self._cluster_claim(cluster), time_now) if cluster else None,
            closing=cluster is not None and cluster.metadata.deletion_timestamp is not None,
            controller_started=GuardReport(members.control_plane(caches, where).lease).running_since,
            ending_partition=ending,
            machines=caches.machines.of({machine_of(pod) for pod in pods}),
            places=selected,
            topology=self._topology(cluster),
            users=self._users(nodeset, cluster),
        )
        seen = dataclasses.replace(seen, ages=self._ages.of(key, aging.things(seen), time.monotonic()))
        return _with_feeds(seen, connection) if connection else seen

    def _topology(self, cluster: SlurmCluster | None) -> tuple[str, ...] | None:
        """The labels that say where nodes are in Slurm's topology."""
        if cluster is None:
            return None
        active = self._caches.config_maps.get(Key(cluster.metadata.namespace, names.config(cluster)))
        return topology.labels(cluster, active.data if active else None)

    def _users(self, nodeset: NodeSet, cluster: SlurmCluster | None) -> str:
        """The digest of the users that the NodeSet's pods mount; empty while there are none."""
        if cluster is None:
            return ""
        keys = (Key(nodeset.metadata.namespace, name) for name in build.users_in(nodeset, cluster))
        return users.digest(*(self._caches.config_maps.get(key) for key in keys))

    def _template(
        self, nodeset: NodeSet, pods: Iterable[Pod], time_now: float
    ) -> tuple[str | None, Places | None, str]:
        """The template's hash and, with placement perNode, the selected machines; or why there are none."""
        built = self._built(nodeset, time_now)
        if built is None:
            return None, None, "there is no such SlurmCluster"
        try:
            images, found = self._shared.images, None
            if nodeset.per_node:
                found = places.find(nodeset, build.selection(*built, images), self._caches.nodes, pods)
            return build.template(*built, images), found, ""
        except SeltzerError as error:
            return None, None, str(error)

    def _built(self, nodeset: NodeSet, time_now: float) -> tuple[NodeSet, SlurmCluster] | None:
        """What its pods are built from: itself and its cluster, without home directories that can't be mounted yet."""
        cluster = self._caches.clusters.get(cluster_key(nodeset))
        if cluster is None:
            return None
        claim = self._cluster_claim(cluster)
        return home.mountable_by(nodeset, self._home_claim(nodeset)), home.mountable(cluster, claim, time_now)

    def _cluster_claim(self, cluster: SlurmCluster) -> PersistentVolumeClaim | None:
        return self._caches.all_claims.get(Key(cluster.metadata.namespace, names.home_claim(cluster)))

    def _home_claim(self, nodeset: NodeSet) -> PersistentVolumeClaim | None:
        """The claim that the NodeSet itself names."""
        own = nodeset.spec.home
        return self._caches.all_claims.get(Key(nodeset.metadata.namespace, own.claim)) if own else None

    def _support(self, seen: NodeSetObservation, decision: NodeSetDecision) -> list[Action]:
        """Objects that the pods need and that have drifted."""
        nodeset, needs = seen.nodeset, support.needs(seen, decision)
        cluster = self._caches.clusters.get(cluster_key(nodeset))
        if cluster is None or needs is None:
            return []
        budget = build.budget(nodeset, cluster, all_pods=needs.protects == "everyone")
        manifests = list(self._shared.children.absent([budget])) if needs.only_create else [budget]
        secret = self._caches.secrets.get(Key(cluster.metadata.namespace, names.keys(cluster)))
        if needs.key and (data := secret.data.get(names.SLURM_KEY) if secret else None):
            home = cluster.metadata.namespace
            found = (self._caches.config_maps.get(Key(home, each(cluster))) for each in (names.passwd, names.group))
            published = [each for each in found if each]
            manifests += build.support(nodeset, cluster, base64.b64decode(data), published)
        return [Apply(manifest) for manifest in self._shared.children.drifted(manifests)]


async def _has_read_its_writes(connection: SlurmConnection) -> bool:
    """Whether Slurm's nodes include our writes. Nodes that are unknown altogether are the plan's concern."""
    if connection.view is not None or connection.cache.view is None:
        return True
    return await connection.fresh() is not None


def _with_feeds(seen: NodeSetObservation, connection: SlurmConnection) -> NodeSetObservation:
    """Add the latest answers of the connection's feeds."""
    suspects = unreachable_pods.suspects(seen) if seen.slurm.nodes is not None else {}
    return dataclasses.replace(
        seen,
        free_at=connection.deadlines.free_at,
        deadlines_age=connection.deadlines.age,
        named=connection.named.latest(None),
        queued=connection.queued.latest(seen.ending_partition),
        answers=connection.answers(suspects) if suspects else {},
    )


def _feed(wants: Wants, connection: SlurmConnection) -> None:
    """Have the feeds fetch what the next plan needs."""
    if wants.deadlines:
        connection.deadlines.want()
    if wants.named:
        connection.named.want(None)
    if wants.partition:
        connection.queued.want(wants.partition)
