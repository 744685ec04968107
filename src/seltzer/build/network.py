"""NetworkPolicies: who may talk to whom. Only what comes in is restricted."""

from __future__ import annotations

from collections.abc import Sequence

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import names
from .names import PORTS, Component, Manifest


def applied(cluster: SlurmCluster) -> list[Manifest]:
    """The policies in the cluster's namespace."""
    nodes = _nodes(cluster)
    return [
        _policy(
            cluster,
            "slurmctld",
            names.controller(cluster),
            [
                _allow([_pods(cluster, "slurmrestd"), _pods(cluster, "login"), *nodes], PORTS["slurmctld"]),
                _allow([_operator()], PORTS["slurmctld"], PORTS["guard"]),
            ],
        ),
        _policy(
            cluster,
            "slurmrestd",
            names.rest(cluster),
            [_allow([_operator(), _pods(cluster, "login")], PORTS["slurmrestd"])],
        ),
        _policy(
            cluster,
            "login",
            names.login(cluster),
            # Whoever has a key may come; srun and sackd listen on ports of their own for those who answer them.
            [_allow([], PORTS["login"]), _allow([_pods(cluster, "slurmctld"), *nodes])],
        ),
        _policy(cluster, "slurmd", names.slurmd(cluster), [_to_nodes(cluster)]),
    ]


def of_nodeset(nodeset: NodeSet, cluster: SlurmCluster) -> Manifest:
    """The policy beside a NodeSet that isn't in its cluster's namespace."""
    head = names.manifest(
        "NetworkPolicy",
        "networking.k8s.io/v1",
        cluster,
        "slurmd",
        names.nodeset_policy(nodeset),
        more_labels={names.NODESET: nodeset.metadata.name},
        owner=nodeset,
    )
    return {**head, "spec": _spec(names.nodeset_selector(nodeset, cluster), [_to_nodes(cluster)])}


def _to_nodes(cluster: SlurmCluster) -> Manifest:
    """Any port: the processes of a job talk to each other on ports that nobody knows before."""
    return _allow([_pods(cluster, "slurmctld"), _pods(cluster, "login"), *_nodes(cluster)])


def _nodes(cluster: SlurmCluster) -> list[Manifest]:
    """The slurmd pods of the cluster, in all namespaces that may have some."""
    allowed = {cluster.metadata.namespace, *cluster.spec.node_sets.namespaces}
    return [_pods(cluster, "slurmd", namespace) for namespace in sorted(allowed)]


def _pods(cluster: SlurmCluster, component: Component, namespace: str | None = None) -> Manifest:
    """Pods by namespace and labels: a pod elsewhere gains nothing by wearing our labels."""
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace or cluster.metadata.namespace}},
        "podSelector": {"matchLabels": names.selector(cluster, component)},
    }


def _operator() -> Manifest:
    """The operator, wherever it was installed; what it asks for is signed."""
    return {"namespaceSelector": {}, "podSelector": {"matchLabels": {names.NAME: names.OPERATOR}}}


def _allow(peers: Sequence[Manifest], *ports: int) -> Manifest:
    """From these to these ports; no peers are all, and so are no ports."""
    rule: Manifest = {}
    if peers:
        rule["from"] = list(peers)
    if ports:
        rule["ports"] = [{"protocol": "TCP", "port": port} for port in ports]
    return rule


def _policy(cluster: SlurmCluster, component: Component, name: str, ingress: list[Manifest]) -> Manifest:
    head = names.manifest("NetworkPolicy", "networking.k8s.io/v1", cluster, component, name)
    return {**head, "spec": _spec(names.selector(cluster, component), ingress)}


def _spec(selector: dict[str, str], ingress: list[Manifest]) -> Manifest:
    return {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"], "ingress": ingress}
