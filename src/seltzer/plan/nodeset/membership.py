"""Which NodeSets belong to a cluster, and which pods belong to a NodeSet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from seltzer.api.core import Pod
from seltzer.api.nodeset import NodeSet, oldest_first
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.kube.resource import Key, key_of
from seltzer.plan.nodeset import places
from seltzer.slurm import conf

MAX_NODES = 10_000


@dataclass(frozen=True)
class Membership:
    """Whether a NodeSet is a member of its cluster and accepted as it is; if not, the message says what to do.

    The pods of a member that isn't accepted stay as they are, and no pod is added.
    """

    member: bool
    accepted: bool
    reason: str
    message: str


def cluster_key(nodeset: NodeSet) -> Key:
    """The cluster that a NodeSet refers to."""
    ref = nodeset.spec.cluster_ref
    return Key(ref.namespace or nodeset.metadata.namespace, ref.name)


def owns(nodeset: NodeSet, pod: Pod) -> bool:
    """Whether a pod with the NodeSet's label is its own: not of an earlier NodeSet of this name, nor made by hand.

    A pod without any owner counts: a NodeSet deleted with --cascade=orphan leaves its jobs running.
    """
    if not places.names_of(nodeset).fullmatch(pod.metadata.name):
        return False  # a copy under another name
    owners = pod.metadata.owner_references
    return not owners or any(owner.uid == nodeset.metadata.uid for owner in owners)


def max_nodes(cluster: SlurmCluster | None) -> int:
    """MaxNodeCount of the cluster's slurm.conf."""
    try:
        setting = conf.parse(cluster.spec.config.get("slurm.conf", "")).get("MaxNodeCount") if cluster else None
        return int(setting) if setting else MAX_NODES
    except (conf.ConfError, ValueError):
        return MAX_NODES  # the cluster's own status says what is wrong with the configuration


def memberships(
    cluster: SlurmCluster | None, nodesets: Iterable[NodeSet], limit: int | None = None
) -> Mapping[Key, Membership]:
    """The membership of each NodeSet that refers to this cluster. Of two that exclude each other the older stays.

    `limit` is how many nodes the cluster takes, where it isn't the one of its slurm.conf.
    """
    found: dict[Key, Membership] = {}
    taken: dict[str, NodeSet] = {}
    limit = max_nodes(cluster) if limit is None else limit
    left = limit
    for nodeset in oldest_first(nodesets):
        member = _membership(cluster, nodeset, taken, left, limit)
        found[key_of(nodeset)] = member
        if member.member:
            taken[nodeset.metadata.name] = nodeset
            left -= nodeset.size if member.accepted else nodeset.status.replicas
    return found


def _membership(
    cluster: SlurmCluster | None, nodeset: NodeSet, taken: Mapping[str, NodeSet], left: int, limit: int
) -> Membership:
    where = cluster_key(nodeset)
    name, namespace = nodeset.metadata.name, nodeset.metadata.namespace
    if cluster is None:
        return Membership(
            False, False, "ClusterNotFound", f"there is no SlurmCluster {where}: create it, or correct spec.clusterRef"
        )
    if namespace != cluster.metadata.namespace and namespace not in cluster.spec.node_sets.namespaces:
        return Membership(
            False,
            False,
            "NotAllowed",
            f"SlurmCluster {where} takes no NodeSets from namespace {namespace}: "
            "add it to spec.nodeSets.namespaces of the cluster",
        )
    if name in taken:
        other = key_of(taken[name])
        return Membership(
            False,
            False,
            "NameTaken",
            f"NodeSet {other} has the same name, so its nodes are called {name}-0 and so on too: choose another name",
        )
    if twin := next((each for each in taken.values() if _share_names(each, nodeset)), None):
        return Membership(
            False,
            False,
            "NameTaken",
            f"nodes of NodeSet {key_of(twin)} may have the names of its nodes, since one has placement perNode and the "
            f"other's name begins with that one's and {places.SEPARATOR}: choose another name",
        )
    if nodeset.size > left:
        advice = "select fewer Kubernetes nodes" if nodeset.per_node else "set fewer replicas"
        return Membership(
            True,
            False,
            "TooManyNodes",
            f"{nodeset.size} nodes are more than the {max(0, left)} that are left of MaxNodeCount={limit}:"
            f" {advice}, or a higher MaxNodeCount in slurm.conf of spec.config of the cluster",
        )
    return Membership(True, True, "Accepted", f"its nodes belong to SlurmCluster {where}")


def _share_names(one: NodeSet, other: NodeSet) -> bool:
    """Whether a node of one may have the name of a node of the other."""
    pairs = ((one, other), (other, one))
    return any(
        each.per_node and rival.metadata.name.startswith(f"{each.metadata.name}{places.SEPARATOR}")
        for each, rival in pairs
    )
