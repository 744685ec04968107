"""DNS names of nodes: a headless Service in each namespace that has some, and the domains that pods search for them.

A node is `<node>.<Service>.<namespace>.svc.<domain>`. Kubernetes writes that name into the pod's own /etc/hosts, DNS
answers it in both directions, and every pod of the cluster finds `<node>` alone by its search domains.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import names
from .components import slurmd
from .images import Images
from .merge import TemplateRefused
from .names import Manifest

# Kubernetes refuses more than 32 domains or 2048 characters; it adds three domains, and those of the machine.
_MOST_DOMAINS: Final = 24
_MOST_CHARACTERS: Final = 1_600
_DIGEST: Final = 8


def service(cluster: SlurmCluster, namespace: str) -> str:
    """The Service of the cluster's nodes in a namespace.

    In a namespace that isn't the cluster's, the name is also unlike that of a cluster with the same name elsewhere.
    """
    name = names.of_component(cluster, slurmd.NAME)
    if namespace == cluster.metadata.namespace:
        return name
    return f"{name}-{hashlib.sha256(cluster.metadata.namespace.encode()).hexdigest()[:_DIGEST]}"


def services(cluster: SlurmCluster, nodesets: Iterable[NodeSet]) -> list[Manifest]:
    """The Service in the cluster's namespace, and one in each other namespace of these NodeSets, which own it.

    A Service that only deleted NodeSets need is left alone: it is deleted with them, perhaps with their namespace.
    """
    elsewhere: dict[str, list[NodeSet]] = {}
    for nodeset in sorted(nodesets, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        if nodeset.metadata.namespace != cluster.metadata.namespace and not nodeset.metadata.deletion_timestamp:
            elsewhere.setdefault(nodeset.metadata.namespace, []).append(nodeset)
    return [_service(cluster, [cluster]), *(_service(cluster, owners) for owners in elsewhere.values())]


def searched(spec: Manifest, cluster: SlurmCluster, images: Images) -> Manifest:
    """The spec of a pod that finds all nodes by their short names. The user's own search domains come first."""
    dns = spec.get("dnsConfig", {})
    users = dns.get("searches", [])
    if not all(isinstance(each, str) for each in users):
        raise TemplateRefused("podTemplate.spec.dnsConfig.searches: has an item that isn't a domain; write text")
    searches = list(dict.fromkeys([*users, *_domains(cluster, images)]))
    if len(searches) > _MOST_DOMAINS or len(" ".join(searches)) > _MOST_CHARACTERS:
        raise TemplateRefused(
            f"pods would have {len(searches)} search domains of {len(' '.join(searches))} characters for the names of "
            f"nodes, and at most {_MOST_DOMAINS} of {_MOST_CHARACTERS} are possible: remove namespaces from "
            "spec.nodeSets.namespaces of the SlurmCluster, or dnsConfig.searches from podTemplate"
        )
    return {**spec, "dnsConfig": {**dns, "searches": searches}}


def _domains(cluster: SlurmCluster, images: Images) -> Sequence[str]:
    """The domains of all namespaces that may have nodes, so that a new NodeSet changes no pod."""
    own = cluster.metadata.namespace
    namespaces = [own, *sorted({*cluster.spec.node_sets.namespaces} - {own})]
    return [f"{service(cluster, each)}.{each}.svc.{images.cluster_domain}" for each in namespaces]


def _service(cluster: SlurmCluster, owners: Sequence[SlurmCluster] | Sequence[NodeSet]) -> Manifest:
    namespace = owners[0].metadata.namespace
    head = names.manifest("Service", "v1", cluster, slurmd.NAME, service(cluster, namespace), owner=owners[0])
    # Deleted with its last owner. Only one of several could be the controller.
    references: list[Mapping[str, object]] = [reference for owner in owners for reference in names.owners(owner)]
    if namespace != cluster.metadata.namespace:
        references = [{**reference, "controller": False} for reference in references]
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        # A node has its name before it registers, and while its slurmd is down.
        "publishNotReadyAddresses": True,
        "selector": names.selector(cluster, slurmd.NAME),
        "ports": [{"name": slurmd.NAME, "port": slurmd.PORT, "protocol": "TCP", "targetPort": slurmd.PORT}],
    }
    return {**head, "metadata": {**head["metadata"], "ownerReferences": references}, "spec": spec}
