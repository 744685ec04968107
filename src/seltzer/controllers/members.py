"""A cluster's NodeSets, as both controllers see them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime

from seltzer.api.core import Pod
from seltzer.api.labels import EPOCH, PHASE, STARTED
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names
from seltzer.controllers.caches import Caches
from seltzer.controllers.slurm_connection import PACE, SlurmConnection
from seltzer.kube.resource import Key, key_of
from seltzer.plan import pod_state
from seltzer.plan.nodeset import membership
from seltzer.plan.nodeset.membership import Membership
from seltzer.plan.nodeset.removal import SlurmState
from seltzer.slurm import conf

# A cluster that is being deleted and whose Slurm hasn't answered for so long has lost it.
GONE_AFTER = 300.0


def verdicts(caches: Caches, key: Key) -> Mapping[Key, Membership]:
    """On each NodeSet that refers to a cluster."""
    cluster = caches.clusters.get(key)
    nodesets = caches.nodesets.by("cluster", str(key))
    return membership.verdicts(cluster, nodesets, _max_nodes(cluster) if cluster else membership.MAX_NODES)


def of(caches: Caches, key: Key) -> list[NodeSet]:
    """The NodeSets that are members of a cluster."""
    known = verdicts(caches, key)
    return [each for each in caches.nodesets.by("cluster", str(key)) if known[key_of(each)].member]


def _max_nodes(cluster: SlurmCluster) -> int:
    try:
        setting = conf.parse(cluster.spec.config.get("slurm.conf", "")).get("MaxNodeCount")
        return int(setting) if setting else membership.MAX_NODES
    except (conf.ConfError, ValueError):
        return membership.MAX_NODES  # the configuration is refused elsewhere, with the reason


def slurm(caches: Caches, key: Key, connection: SlurmConnection | None, *, with_our_writes: bool = True) -> SlurmState:
    """What is known of a cluster's Slurm; to decide on it, it must have what we wrote, to tell of it need not."""
    cluster = caches.clusters.get(key)
    if cluster is None or _is_removed(caches, cluster):
        return SlurmState(None, gone=True)  # what it told before doesn't matter any more
    view = (connection.view if with_our_writes else connection.cache.view) if connection else None
    if view is not None:
        return SlurmState(view.nodes, view.statistics.now)
    gone = _is_gone(caches, cluster, connection)
    return SlurmState(None, gone=gone, unreachable=not gone and _is_unreachable(caches, connection))


def controller_started(caches: Caches, key: Key) -> float | None:
    """When the slurmctld that runs was started, if its guard tells."""
    cluster = caches.clusters.get(key)
    lease = caches.leases.get(Key(key.namespace, names.controller(cluster))) if cluster else None
    told = lease.metadata.annotations if lease else {}
    try:
        return datetime.fromisoformat(told[STARTED]).timestamp() if told.get(PHASE) == "running" else None
    except (KeyError, ValueError):
        return None


def _is_removed(caches: Caches, cluster: SlurmCluster) -> bool:
    """Whether it is being deleted, and somebody has already deleted its slurmctld, pods and all."""
    if cluster.metadata.deletion_timestamp is None:
        return False
    deployment = caches.deployments.get(Key(cluster.metadata.namespace, names.controller(cluster)))
    return deployment is None and not _controllers(caches, cluster)


def _is_gone(caches: Caches, cluster: SlurmCluster, connection: SlurmConnection | None) -> bool:
    """Whether a slurmctld that doesn't answer certainly isn't there, so that there is no job to lose. Two ways:

    1. No controller has ever held the Lease, and none runs.
    2. The cluster is being deleted, and hasn't answered since then, for GONE_AFTER seconds.
    """
    controllers = _controllers(caches, cluster)
    lease = caches.leases.get(Key(cluster.metadata.namespace, names.controller(cluster)))
    if lease is None and not controllers:
        return True
    # A Lease that is missing beside a controller was deleted by somebody: it tells nothing.
    never_held = lease is not None and not lease.spec.holder_identity and EPOCH not in lease.metadata.annotations
    if never_held and not any(pod_state.ready(pod) for pod in controllers):
        return True
    if cluster.metadata.deletion_timestamp is None:
        return False
    since = datetime.fromisoformat(cluster.metadata.deletion_timestamp).timestamp()
    return time.time() - since >= GONE_AFTER and _unknown_for(caches, connection) >= GONE_AFTER


def _is_unreachable(caches: Caches, connection: SlurmConnection | None) -> bool:
    """Whether its last answer is too long ago; for the first one it is given as long."""
    return _unknown_for(caches, connection) > (connection.cache.pace.stale if connection else PACE.stale)


def _unknown_for(caches: Caches, connection: SlurmConnection | None) -> float:
    """For how many seconds nobody has answered. Whoever has just begun to look has asked nobody yet."""
    return time.monotonic() - caches.began if connection is None else connection.unknown_for


def _controllers(caches: Caches, cluster: SlurmCluster) -> list[Pod]:
    """The controller's pods that run, or may."""
    return [
        pod
        for pod in caches.pods.by("cluster", str(key_of(cluster)))
        if pod.metadata.labels.get(names.COMPONENT) == "slurmctld" and not pod_state.finished(pod)
    ]
