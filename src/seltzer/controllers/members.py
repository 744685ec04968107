"""A cluster's NodeSets and its Slurm, as both controllers see them: what the caches hold, judged by the plan."""

from __future__ import annotations

import time
from collections.abc import Mapping

from seltzer.api.nodeset import NodeSet
from seltzer.build import names
from seltzer.build.components import slurmctld
from seltzer.controllers.caches import Caches
from seltzer.controllers.slurm_connection import PACE, SlurmConnection
from seltzer.kube.resource import Key, key_of
from seltzer.plan import slurm_presence
from seltzer.plan.nodeset import membership
from seltzer.plan.nodeset.membership import Membership
from seltzer.plan.slurm_presence import Contact, ControlPlane, SlurmState


def memberships(caches: Caches, key: Key) -> Mapping[Key, Membership]:
    """The membership of each NodeSet that refers to a cluster."""
    return membership.memberships(caches.clusters.get(key), caches.nodesets.by("cluster", str(key)))


def of(caches: Caches, key: Key) -> list[NodeSet]:
    """The NodeSets that are members of a cluster."""
    known = memberships(caches, key)
    return [each for each in caches.nodesets.by("cluster", str(key)) if known[key_of(each)].member]


def slurm(caches: Caches, key: Key, connection: SlurmConnection | None, *, with_our_writes: bool = True) -> SlurmState:
    """What is known of a cluster's Slurm. A decision needs nodes that include our writes; a status doesn't."""
    view = (connection.view if with_our_writes else connection.cache.view) if connection else None
    contact = Contact(
        nodes=view.nodes if view else None,
        clock=view.statistics.now if view else None,
        silent_for=connection.unknown_for if connection else time.monotonic() - caches.began,
        stale=connection.cache.pace.stale if connection else PACE.stale,
    )
    return slurm_presence.slurm(control_plane(caches, key), contact, time.time())


def control_plane(caches: Caches, key: Key) -> ControlPlane:
    """What Kubernetes shows of a cluster's slurmctld."""
    cluster = caches.clusters.get(key)
    if cluster is None:
        return ControlPlane(None)
    name = Key(key.namespace, names.controller(cluster))
    pods = caches.pods.by("cluster", str(key))
    return ControlPlane(
        cluster,
        caches.deployments.get(name),
        caches.leases.get(name),
        tuple(pod for pod in pods if pod.metadata.labels.get(names.COMPONENT) == slurmctld.NAME),
    )
