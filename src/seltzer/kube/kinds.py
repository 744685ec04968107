"""The kinds of objects that the operator reads and writes."""

from __future__ import annotations

from typing import Any

from seltzer.api import core
from seltzer.api.common import GROUP, VERSION
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.kube.resource import Resource

CLUSTERS = Resource(GROUP, VERSION, "slurmclusters", "SlurmCluster", SlurmCluster)
NODESETS = Resource(GROUP, VERSION, "nodesets", "NodeSet", NodeSet)
PODS = Resource("", "v1", "pods", "Pod", core.Pod)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", core.Deployment)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", core.PersistentVolumeClaim)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", core.ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", core.Secret)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", core.Lease)
SERVICES = Resource("", "v1", "services", "Service", core.Anything)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", core.Anything)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", core.Anything)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", core.Anything)
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", core.Anything)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", core.Anything)
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", core.Anything)
NODES = Resource("", "v1", "nodes", "Node", core.Node, namespaced=False)

# Objects that belong to a cluster or a NodeSet. They are watched by our label, so that others take no memory.
CHILDREN: tuple[Resource[Any], ...] = (
    PODS,
    DEPLOYMENTS,
    CLAIMS,
    CONFIG_MAPS,
    SECRETS,
    LEASES,
    SERVICES,
    ACCOUNTS,
    ROLES,
    BINDINGS,
    POLICIES,
    BUDGETS,
    SLICES,
)
BY_KIND: dict[str, Resource[Any]] = {each.kind: each for each in (*CHILDREN, CLUSTERS, NODESETS, NODES)}
