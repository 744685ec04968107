"""The manifests of the operator, to install beside the CRDs (`seltzer.api.crd`)."""

from __future__ import annotations

from typing import Final

from seltzer.api.common import GROUP
from seltzer.wire import environment

from . import pods
from .images import Images
from .names import MANAGED_BY, NAME, OPERATOR, Manifest

_PORT: Final = 8080
_USER: Final = 65532
_LABELS: Final = {NAME: OPERATOR, "app.kubernetes.io/part-of": "seltzer"}
_SELECTOR: Final = {NAME: OPERATOR}
_RBAC: Final = "rbac.authorization.k8s.io"
_READ: Final = ("get", "list", "watch")
_ALL: Final = (*_READ, "create", "patch", "update", "delete")


def manifests(namespace: str, image: str, images: Images, replicas: int = 2) -> list[Manifest]:
    """All objects of the operator, in the order in which they can be created."""
    return [
        _namespace(namespace),
        _head("ServiceAccount", "v1", namespace),
        _cluster_role(),
        _binding("ClusterRole", namespace),
        _role(namespace),
        _binding("Role", namespace),
        _service(namespace),
        _network_policy(namespace),
        _disruption_budget(namespace),
        _deployment(namespace, image, images, replicas),
    ]


def _head(kind: str, api_version: str, namespace: str | None) -> Manifest:
    metadata: Manifest = {"name": OPERATOR, "labels": dict(_LABELS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _namespace(name: str) -> Manifest:
    modes = ("enforce", "audit", "warn")
    security = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in modes}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {**_LABELS, **security}}}


def _rule(group: str, resources: list[str], verbs: tuple[str, ...]) -> Manifest:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _cluster_role() -> Manifest:
    """Clusters may be in any namespace. Includes the rights of the guard's Role: RBAC lets no one grant more than they
    have."""
    kinds = ["slurmclusters", "nodesets"]
    rules = [
        _rule(GROUP, kinds, (*_READ, "patch", "update")),
        _rule(GROUP, [f"{kind}/{part}" for kind in kinds for part in ("status", "finalizers")], ("patch", "update")),
        _rule("", ["pods"], (*_READ, "create", "delete", "patch")),
        _rule("", ["pods/status"], ("patch",)),
        _rule("", ["services", "configmaps", "secrets", "persistentvolumeclaims", "serviceaccounts"], _ALL),
        _rule("apps", ["deployments"], _ALL),
        _rule(_RBAC, ["roles", "rolebindings"], _ALL),
        _rule("networking.k8s.io", ["networkpolicies"], _ALL),
        _rule("policy", ["poddisruptionbudgets"], _ALL),
        _rule("discovery.k8s.io", ["endpointslices"], _ALL),
        _rule("coordination.k8s.io", ["leases"], _ALL),
        _rule("", ["events"], ("create", "patch")),
        _rule("", ["nodes"], _READ),
    ]
    return {**_head("ClusterRole", f"{_RBAC}/v1", None), "rules": rules}


def _role(namespace: str) -> Manifest:
    """The rights for leader election, independent of the ClusterRole."""
    rules = [_rule("coordination.k8s.io", ["leases"], ("get", "create", "patch", "update"))]
    return {**_head("Role", f"{_RBAC}/v1", namespace), "rules": rules}


def _binding(role: str, namespace: str) -> Manifest:
    head = _head(f"{role}Binding", f"{_RBAC}/v1", namespace if role == "Role" else None)
    subject = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": namespace}
    return {**head, "subjects": [subject], "roleRef": {"apiGroup": _RBAC, "kind": role, "name": OPERATOR}}


def _service(namespace: str) -> Manifest:
    port = {"name": "http", "port": _PORT, "protocol": "TCP", "targetPort": "http"}
    return {**_head("Service", "v1", namespace), "spec": {"selector": dict(_SELECTOR), "ports": [port]}}


def _network_policy(namespace: str) -> Manifest:
    """Anyone may read metrics and health; the operator serves nothing else."""
    spec = {
        "podSelector": {"matchLabels": dict(_SELECTOR)},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": _PORT}]}],
    }
    return {**_head("NetworkPolicy", "networking.k8s.io/v1", namespace), "spec": spec}


def _disruption_budget(namespace: str) -> Manifest:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTOR)}}
    return {**_head("PodDisruptionBudget", "policy/v1", namespace), "spec": spec}


def _deployment(namespace: str, image: str, images: Images, replicas: int) -> Manifest:
    spec = {
        "replicas": replicas,
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": dict(_SELECTOR)},
        "template": {"metadata": {"labels": {**_LABELS, MANAGED_BY: "seltzer"}}, "spec": _pod(image, images)},
    }
    return {**_head("Deployment", "apps/v1", namespace), "spec": spec}


def _pod(image: str, images: Images) -> Manifest:
    def probe(path: str, seconds: int) -> Manifest:
        return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": seconds}

    container = {
        "name": "operator",
        "image": image,
        "imagePullPolicy": images.pull_policy,
        "args": ["operator"],
        "env": [
            pods.from_field(environment.NAMESPACE, "metadata.namespace"),
            pods.from_field(environment.IDENTITY, "metadata.name"),
            *images.to_env(),
        ],
        "ports": [{"name": "http", "containerPort": _PORT, "protocol": "TCP"}],
        "readinessProbe": probe("/readyz", 1),
        "livenessProbe": {**probe("/healthz", 10), "timeoutSeconds": 5, "failureThreshold": 3},
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.NO_ROOT,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }
    spec: Manifest = {
        "serviceAccountName": OPERATOR,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "affinity": pods.spread(_SELECTOR),
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, **pods.SECCOMP},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return pods.leave_dead_nodes(spec, 5)
