"""SlurmClusters: observe, plan, act, report."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from seltzer.api.core import Deployment, Node, Pod
from seltzer.api.labels import CONFIG, CONTROLLER_POD
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import cluster as build
from seltzer.build import config, names, topology, trial, volumes
from seltzer.build.components import slurmd, slurmrestd
from seltzer.build.components.base import GeneratedKey
from seltzer.build.components.table import COMPONENTS, CONTROL_PLANE, findings, is_variant
from seltzer.build.merge import TemplateRefused
from seltzer.build.pods import checksum
from seltzer.controllers import members, metrics
from seltzer.controllers.act import Actor, Subject, refused
from seltzer.controllers.caches import VARIED
from seltzer.controllers.children import Manifest
from seltzer.controllers.cluster_users import ClusterUsers
from seltzer.controllers.outcome import outcome
from seltzer.controllers.registration import Shared
from seltzer.controllers.report import now, record, report
from seltzer.controllers.slurm_connection import Secrets, SlurmConnection
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.controller import Done, Outcome
from seltzer.kube.resource import Key, key_of
from seltzer.plan import home, slurm_presence
from seltzer.plan.actions import Delete
from seltzer.plan.cluster import cluster_plan as plan
from seltzer.plan.cluster import cluster_status, trust
from seltzer.plan.cluster.cluster_plan import CONTROLLER, Candidate, ClusterObservation, Mounted
from seltzer.slurm.models import Node as SlurmNode


class ClusterController:
    """Reconciles SlurmClusters."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._caches = shared.caches
        self._users = ClusterUsers(shared.caches, shared.children)

    async def reconcile(self, key: Key) -> Outcome:
        cluster = self._caches.clusters.get(key)
        if cluster is None:
            await self._shared.connections.close(key)
            await self._caches.user_sources.close(key)
            self._users.forget(key)
            metrics.forget_cluster(*key)
            return Done()
        connection = self._connection(cluster)
        seen = self._observe(cluster, connection)
        decision = plan.decide(seen)
        await record(self._shared.recorder, kinds.CLUSTERS, cluster, cluster_status.announcements(decision))
        subject = Subject(kinds.CLUSTERS, cluster)
        done = await Actor(self._shared.client, self._shared.children, subject, connection).act(decision.actions)
        failures = [failure.message for failure in done.failures]
        status = cluster_status.status(seen, decision, findings(seen), failures, now())
        metrics.show_cluster(*key, status)
        events = cluster_status.events(cluster, status, seen, decision)
        await report(self._shared.client, self._shared.recorder, kinds.CLUSTERS, cluster, status, events)
        if done.failures:
            raise refused(done.failures)
        return outcome(key, plan.wakeups(seen))

    def _connection(self, cluster: SlurmCluster) -> SlurmConnection | None:
        """The connection to the cluster's Slurm, opened as soon as it can answer."""
        key = key_of(cluster)
        if connection := self._shared.connections.get(key):
            return connection
        lease = self._caches.leases.get(Key(key.namespace, names.controller(cluster)))
        rest = self._caches.deployments.get(Key(key.namespace, slurmrestd.COMPONENT.named(cluster)))
        if not slurm_presence.can_be_asked(lease, rest) or self._jwt_key(cluster) is None:
            return None
        secrets = Secrets(lambda: self._jwt_key(cluster) or b"", lambda: self._holder(cluster))
        return self._shared.connections.open(cluster, secrets)

    def _holder(self, cluster: SlurmCluster) -> str:
        """The active pod of the controller."""
        lease = self._caches.leases.get(Key(cluster.metadata.namespace, names.controller(cluster)))
        return (lease.spec.holder_identity or "") if lease else ""

    def _jwt_key(self, cluster: SlurmCluster) -> bytes | None:
        secret = self._caches.secrets.get(Key(cluster.metadata.namespace, names.keys(cluster)))
        data = secret.data.get(names.JWT_KEY) if secret else None
        return base64.b64decode(data) if data else None

    def _observe(self, cluster: SlurmCluster, connection: SlurmConnection | None) -> ClusterObservation:
        caches, key, time_now = self._caches, key_of(cluster), time.time()
        nodesets = members.of(caches, key)
        active = caches.config_maps.get(Key(key.namespace, names.config(cluster)))
        home_name = names.home_claim(cluster)
        home_claim = caches.all_claims.get(Key(key.namespace, home_name)) if home_name else None
        # What the pods are built from.
        built = home.mountable(cluster, home_claim, time_now)
        slurm = members.slurm(caches, key, connection, with_our_writes=False)
        candidate, refusal = self._candidate(built, active.data if active else {}, slurm.nodes)
        drifted: tuple[Manifest, ...] = ()
        binder = None
        try:
            manifests = [*build.home(cluster), *build.applied(built, self._shared.images, nodesets)]
            drifted = self._shared.children.drifted(manifests)
            binder = build.home_binder(cluster, self._shared.images) if home_name else None
        except TemplateRefused as error:
            candidate, refusal = None, str(error)
        deployments = self._deployments(cluster)
        controller = deployments.get(CONTROLLER)
        pods = _by_component(caches.pods.by("cluster", str(key)))
        return ClusterObservation(
            cluster=cluster,
            candidate=candidate,
            refusal=refusal,
            active=active.metadata.annotations.get(CONFIG) if active else None,
            pod=build.controller_pod(cluster, self._shared.images) if candidate else "",
            active_pod=controller.metadata.annotations.get(CONTROLLER_POD, "") if controller else None,
            drifted=drifted,
            absent=self._absent(cluster),
            deployments=deployments,
            pods={label: pods.get(label, ()) for each in CONTROL_PLANE for label in each.labels(cluster)},
            surplus=self._surplus(cluster),
            trials=pods.get(trial.COMPONENT, ()),
            leftovers=self._leftovers(key),
            claim=caches.claims.get(Key(key.namespace, names.controller(cluster))),
            lease=caches.leases.get(Key(key.namespace, names.controller(cluster))),
            slurm=slurm,
            failure=connection.failure if connection else "",
            jobs=connection.jobs if connection else None,
            slurmds=len(pods.get(slurmd.NAME, ())),
            home=home_claim,
            home_name=home_name,
            binder=binder,
            binders=pods.get(volumes.COMPONENT, ()),
            mounted=self._mounted(cluster),
            users=self._users.look(cluster),
            nodes=self._nodes(pods.get(CONTROLLER, ())),
            silence=caches.silence(Key(key.namespace, names.controller(cluster))),
            now=time_now,
        )

    def _nodes(self, controllers: Iterable[Pod]) -> dict[str, Node]:
        """The Kubernetes nodes of the controller's pods."""
        named = {pod.spec.node_name for pod in controllers}
        return {name: node for name in named if (node := self._caches.nodes.get(Key("", name)))}

    def _mounted(self, cluster: SlurmCluster) -> tuple[Mounted, ...]:
        found = []
        for component, label in ((each, label) for each in COMPONENTS for label in each.labels(cluster)):
            key = Key(cluster.metadata.namespace, names.of_component(cluster, label))
            if component.config_annotation and (config_map := self._caches.config_maps.get(key)):
                digest = checksum(json.dumps(dict(config_map.data), sort_keys=True))
                found.append(Mounted(label, component.config_annotation, digest))
        return (*found, *self._users.mounted(cluster))

    def _candidate(
        self, cluster: SlurmCluster, active: Mapping[str, str], nodes: Mapping[str, SlurmNode] | None
    ) -> tuple[Candidate | None, str]:
        try:
            topology.check(cluster, active, nodes)
            nodesets = members.of(self._caches, key_of(cluster))
            rendered = config.render(cluster, nodesets)
            candidate = Candidate(
                digest=rendered.digest,
                trusted=trust.is_trusted(cluster, nodesets),
                trial_id=build.trial_id(cluster, rendered, self._shared.images),
                config_map=build.config_map(cluster, rendered),
                trial=tuple(build.trial(cluster, rendered, self._shared.images)),
                restarts=config.restart_keys(active, rendered.files) if active else (),
            )
        except SeltzerError as error:
            return None, str(error)
        return candidate, ""

    def _absent(self, cluster: SlurmCluster) -> tuple[Manifest, ...]:
        """Missing objects that are created once. Keys are among them: new ones would lock out clients with the old."""
        wanted = build.created_once(cluster)
        namespace = cluster.metadata.namespace
        if self._caches.secrets.get(Key(namespace, names.keys(cluster))) is None:
            wanted.append(build.keys(cluster, os.urandom(1024), os.urandom(32)))
        for component in COMPONENTS:
            if component.secret and self._caches.secrets.get(Key(namespace, component.named(cluster))) is None:
                data = {key: _GENERATORS[how]() for key, how in component.secret.items()}
                wanted.append(build.secret(cluster, component, data))
        return self._shared.children.absent(wanted)

    def _deployments(self, cluster: SlurmCluster) -> dict[str, Deployment]:
        namespace, found = cluster.metadata.namespace, self._caches.deployments
        return {
            label: deployment
            for component in CONTROL_PLANE
            for label in component.labels(cluster)
            if (deployment := found.get(Key(namespace, names.of_component(cluster, label))))
        }

    def _surplus(self, cluster: SlurmCluster) -> tuple[Delete, ...]:
        """Objects of variants that were removed from the spec, such as a login set."""
        key = key_of(cluster)
        wanted = {label for component in COMPONENTS for label in component.labels(cluster)}
        return tuple(
            Delete(source.resource.kind, each.metadata.namespace, each.metadata.name, each.metadata.uid)
            for source in VARIED
            for each in self._caches.store(source).by("cluster", str(key))
            if is_variant(label := each.metadata.labels.get(names.COMPONENT, "")) and label not in wanted
        )

    def _leftovers(self, key: Key) -> tuple[Delete, ...]:
        return tuple(
            Delete("ConfigMap", each.metadata.namespace, each.metadata.name, each.metadata.uid)
            for each in self._caches.config_maps.by("cluster", str(key))
            if each.metadata.labels.get(names.COMPONENT) == trial.COMPONENT
        )


def _by_component(pods: Iterable[Pod]) -> dict[str, tuple[Pod, ...]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(pod.metadata.labels.get(names.COMPONENT, ""), []).append(pod)
    return {component: tuple(each) for component, each in found.items()}


def new_host_key() -> bytes:
    """A new host key for sshd, in OpenSSH's format."""
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


_GENERATORS: Mapping[GeneratedKey, Callable[[], bytes]] = {"openssh-ed25519": new_host_key}
