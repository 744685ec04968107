"""NetworkPolicies, from the peers of each component. Only incoming connections are restricted."""

from __future__ import annotations

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import names
from .components import slurmd
from .components.base import OPERATOR, Component, Ingress
from .components.table import BY_NAME, COMPONENTS
from .names import Manifest


def applied(cluster: SlurmCluster) -> list[Manifest]:
    """The policies in the cluster's namespace, one for each component and each variant of it."""
    return [_policy(cluster, component, label) for component in COMPONENTS for label in component.labels(cluster)]


def of_nodeset(nodeset: NodeSet, cluster: SlurmCluster) -> Manifest:
    """The policy beside a NodeSet that isn't in its cluster's namespace."""
    head = names.manifest(
        "NetworkPolicy",
        "networking.k8s.io/v1",
        cluster,
        slurmd.NAME,
        names.nodeset_policy(nodeset),
        more_labels={names.NODESET: nodeset.metadata.name},
        owner=nodeset,
    )
    return {**head, "spec": _spec(names.nodeset_selector(nodeset, cluster), cluster, slurmd.COMPONENT)}


def _policy(cluster: SlurmCluster, component: Component, label: str) -> Manifest:
    name = names.of_component(cluster, label)
    head = names.manifest("NetworkPolicy", "networking.k8s.io/v1", cluster, label, name)
    return {**head, "spec": _spec(names.selector(cluster, label), cluster, component)}


def _spec(selector: dict[str, str], cluster: SlurmCluster, component: Component) -> Manifest:
    ingress = [_rule(cluster, component, each) for each in component.ingress]
    return {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": ingress}


def _rule(cluster: SlurmCluster, component: Component, ingress: Ingress) -> Manifest:
    """As in Kubernetes, a rule without peers allows any peer, and one without ports any port."""
    rule: Manifest = {}
    if ingress.peers:
        rule["from"] = [peer for name in ingress.peers for peer in _peers(cluster, name)]
    if ingress.ports:
        rule["ports"] = [{"protocol": "TCP", "port": component.ports[name]} for name in ingress.ports]
    return rule


def _peers(cluster: SlurmCluster, name: str) -> list[Manifest]:
    """Pods by namespace and labels: our labels don't help a pod in another namespace."""
    if name == OPERATOR:
        # In any namespace: its requests are signed.
        return [{"namespaceSelector": {}, "podSelector": {"matchLabels": {names.NAME: names.OPERATOR}}}]
    component = BY_NAME[name]
    return [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "podSelector": {"matchLabels": names.selector(cluster, label)},
        }
        for label in component.labels(cluster)
        for namespace in component.namespaces(cluster)
    ]
