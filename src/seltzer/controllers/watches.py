"""The registered controllers, and which SlurmCluster or NodeSet a change of another object concerns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from seltzer.api.core import Lease, Node, PersistentVolumeClaim, Pod
from seltzer.api.labels import CLUSTER as CLUSTER_LABEL
from seltzer.api.labels import CLUSTER_NAMESPACE
from seltzer.api.labels import COMPONENT as COMPONENT_LABEL
from seltzer.api.labels import NODESET as NODESET_LABEL
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names, users
from seltzer.build.components import slurmd
from seltzer.controllers import caches as selections
from seltzer.controllers import machines
from seltzer.controllers.caches import Caches, managed
from seltzer.controllers.cluster import ClusterController
from seltzer.controllers.nodeset import NodeSetController
from seltzer.controllers.registration import Registration, Watch
from seltzer.kube import kinds
from seltzer.kube.resource import HasMeta, Key, key_of
from seltzer.plan import pod_state
from seltzer.plan.nodeset.membership import cluster_key
from seltzer.slurm.nodes import Change

T = TypeVar("T")


def nodesets_of(caches: Caches, cluster: Key) -> list[Key]:
    """All NodeSets that refer to a cluster."""
    return [key_of(nodeset) for nodeset in caches.nodesets.by("cluster", str(cluster))]


# --- which cluster ----------------------------------------------------------------------------------------------------


def _cluster_of_child(caches: Caches, before: HasMeta | None, after: HasMeta | None) -> Iterable[Key]:
    item = after or before
    assert item
    cluster = _cluster(item)
    # The status counts nodes as Slurm does; only a cluster that is being deleted waits for their pods.
    if cluster is None or (_has_nodeset(item) and not (after is None and _is_closing(caches, cluster))):
        return ()
    return (cluster,)


def _cluster_of_lease(caches: Caches, before: Lease | None, after: Lease | None) -> Iterable[Key]:
    # The guard renews it every second; only what the guard reports matters here.
    if before and after and _reported(before) == _reported(after):
        return ()
    return _cluster_of_child(caches, before, after)


def _cluster_of_nodeset(caches: Caches, before: NodeSet | None, after: NodeSet | None) -> Iterable[Key]:
    """A cluster's configuration depends on the specs of its NodeSets, not on their status."""
    if before and after and not _spec_differs(before, after):
        return ()
    item = after or before
    assert item
    return (cluster_key(item),)


def _clusters_on_machine(caches: Caches, before: Node | None, after: Node | None) -> Iterable[Key]:
    """Those with a pod of the control plane on a Kubernetes node."""
    pods = (pod for pod in _pods_on(caches, before, after) if not _has_nodeset(pod))
    return {cluster for pod in pods if (cluster := _cluster(pod))}


def _clusters_of_claim(
    caches: Caches, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
) -> Iterable[Key]:
    """Those whose home directories are in a claim."""
    claim = key_of(_item(before, after))
    return [key_of(each) for each in caches.clusters if (key_of(each).namespace, names.home_claim(each)) == claim]


CLUSTER: Final = Registration(
    name="slurmcluster",
    kind=selections.CLUSTERS,
    make=ClusterController,
    owns=tuple(each for each in kinds.CHILDREN if each is not kinds.LEASES),
    owner=_cluster_of_child,
    watches=(
        Watch(selections.LEASES, _cluster_of_lease),
        Watch(selections.NODESETS, _cluster_of_nodeset),
        Watch(selections.NODES, _clusters_on_machine),
        Watch(selections.ALL_CLAIMS, _clusters_of_claim),
    ),
    slurm=lambda caches, cluster, change: (cluster,),
    users=lambda cluster: (cluster,),
)


# --- which NodeSets ---------------------------------------------------------------------------------------------------


def _nodeset_of_child(caches: Caches, before: HasMeta | None, after: HasMeta | None) -> Iterable[Key]:
    item = after or before
    assert item
    name = item.metadata.labels.get(NODESET_LABEL)
    return (Key(item.metadata.namespace, name),) if name else ()


def _nodesets_of_cluster(caches: Caches, before: SlurmCluster | None, after: SlurmCluster | None) -> Iterable[Key]:
    if before and after and not _spec_differs(before, after):
        return ()
    item = after or before
    assert item
    return nodesets_of(caches, key_of(item))


def _neighbours(caches: Caches, before: NodeSet | None, after: NodeSet | None) -> Iterable[Key]:
    """Whether a NodeSet is accepted depends on the specs of the others."""
    if before and after and not _spec_differs(before, after):
        return ()
    item = after or before
    assert item
    return nodesets_of(caches, cluster_key(item))


def _nodesets_on_machine(caches: Caches, before: Node | None, after: Node | None) -> Iterable[Key]:
    """Those with a pod on a Kubernetes node."""
    pods = (pod for pod in _pods_on(caches, before, after) if _has_nodeset(pod))
    return {Key(pod.metadata.namespace, pod.metadata.labels[NODESET_LABEL]) for pod in pods}


def _nodesets_of_claim(
    caches: Caches, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
) -> Iterable[Key]:
    """Those that have their home directories in a claim: their cluster's, or one that they name."""
    claim = key_of(_item(before, after))
    found = {key for cluster in _clusters_of_claim(caches, before, after) for key in nodesets_of(caches, cluster)}
    for each in caches.nodesets:
        if each.spec.home and (each.metadata.namespace, each.spec.home.claim) == claim:
            found.add(key_of(each))
    return found


def _nodesets_without_slurm(caches: Caches, before: HasMeta | None, after: HasMeta | None) -> Iterable[Key]:
    """A part of the control plane is gone: nodes may wait for a Slurm that doesn't exist any more."""
    if after is not None or before is None or _has_nodeset(before):
        return ()
    cluster = _cluster(before)
    return nodesets_of(caches, cluster) if cluster else ()


def _nodesets_of_users(caches: Caches, before: HasMeta | None, after: HasMeta | None) -> Iterable[Key]:
    """All pods of a cluster know its users."""
    item = after or before
    assert item
    cluster = _cluster(item)
    is_users = item.metadata.labels.get(COMPONENT_LABEL) == users.COMPONENT and not _has_nodeset(item)
    return nodesets_of(caches, cluster) if cluster and is_users else ()


def _nodesets_of_slurm(caches: Caches, cluster: Key, change: Change | None) -> Iterable[Key]:
    """All of them, also those without a node: a NodeSet may have waited for Slurm to be reachable."""
    return nodesets_of(caches, cluster) if change is not None else ()


def _cluster_of_ready_slurmd(before: Pod | None, after: Pod | None) -> Key | None:
    """A slurmd that has just become ready registers now."""
    if after is None or after.metadata.labels.get(COMPONENT_LABEL) != slurmd.NAME:
        return None
    return _cluster(after) if pod_state.ready(after) and not (before and pod_state.ready(before)) else None


NODESET: Final = Registration(
    name="nodeset",
    kind=selections.NODESETS,
    make=NodeSetController,
    owns=(kinds.PODS, kinds.SECRETS, kinds.CONFIG_MAPS, kinds.POLICIES, kinds.BUDGETS),
    owner=_nodeset_of_child,
    watches=(
        Watch(selections.CLUSTERS, _nodesets_of_cluster),
        Watch(selections.NODESETS, _neighbours),
        # Urgent: no job should start on a machine that is being drained or has died.
        Watch(selections.NODES, _nodesets_on_machine, urgent=True),
        Watch(selections.ALL_CLAIMS, _nodesets_of_claim),
        *(Watch(managed(each), _nodesets_without_slurm) for each in kinds.CHILDREN),
        Watch(selections.CONFIG_MAPS, _nodesets_of_users),
    ),
    slurm=_nodesets_of_slurm,
    slurm_news=_cluster_of_ready_slurmd,
)


# --- objects ----------------------------------------------------------------------------------------------------------


def _pods_on(caches: Caches, before: Node | None, after: Node | None) -> list[Pod]:
    """The pods on a Kubernetes node that has changed in something that matters."""
    item = after or before
    assert item
    return caches.pods.by("on", item.metadata.name) if machines.differs(before, after) else []


def _item(before: T | None, after: T | None) -> T:
    """A changed object, as it is or was."""
    item = after or before
    assert item
    return item


def _cluster(item: HasMeta) -> Key | None:
    """The cluster that an object of ours belongs to."""
    labels = item.metadata.labels
    name = labels.get(CLUSTER_LABEL)
    return Key(labels.get(CLUSTER_NAMESPACE, item.metadata.namespace), name) if name else None


def _has_nodeset(item: HasMeta) -> bool:
    return bool(item.metadata.labels.get(NODESET_LABEL))


def _is_closing(caches: Caches, cluster: Key) -> bool:
    found = caches.clusters.get(cluster)
    return found is None or found.metadata.deletion_timestamp is not None


def _spec_differs(before: HasMeta, after: HasMeta) -> bool:
    """In its spec, or in whether it is being deleted."""
    return (before.metadata.generation, before.metadata.deletion_timestamp) != (
        after.metadata.generation,
        after.metadata.deletion_timestamp,
    )


def _reported(lease: Lease) -> object:
    return (lease.spec.holder_identity, lease.metadata.annotations)
