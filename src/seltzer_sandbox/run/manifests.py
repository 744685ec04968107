"""The objects that every sandbox starts with: storage classes, RBAC for the volume provisioner, DNS."""

from __future__ import annotations

from typing import Any

from seltzer_sandbox.run import components, network

COREDNS_IMAGE = "seltzer.dev/coredns:dev"
_SYSTEM = "kube-system"

# Nothing is cached: the address of a replaced node is right at once (docs/operations.md, Network requirements).
# There is no upstream DNS: other names do not exist. With SERVFAIL instead of NXDOMAIN, clients retry for ten seconds
# (slurmctld with a login pod's host name, for example).
_COREFILE = """.:53 {
    errors
    health {
        lameduck 2s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa . {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 0
    }
    loadbalance
}
"""


def all_manifests(*, unified: bool) -> list[dict[str, Any]]:
    """`unified`: the machine has cgroup v2."""
    return [*storage(), *volumes_rbac(), *dns(), *(runtime_classes() if unified else [])]


def runtime_classes() -> list[dict[str, Any]]:
    """For pods that limit their own processes, as slurmd does with `cgroups: v2`."""
    name = components.WRITABLE_CGROUPS
    return [{"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}]


def storage() -> list[dict[str, Any]]:
    """`shared`, the default, is ReadWriteMany on every node; `limited` enforces the requested size."""

    def storage_class(name: str, default: bool, parameters: dict[str, str]) -> dict[str, Any]:
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "annotations": annotations},
            "provisioner": "sandbox.seltzer.dev/volumes",
            "parameters": parameters,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        }

    return [storage_class("shared", True, {}), storage_class("limited", False, {"limited": "true"})]


def volumes_rbac() -> list[dict[str, Any]]:
    rules = [
        _rule("", "persistentvolumes", "get", "list", "watch", "create", "delete"),
        _rule("", "persistentvolumeclaims", "get", "list", "watch"),
        _rule("storage.k8s.io", "storageclasses", "get", "list", "watch"),
    ]
    user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "sandbox:volumes"}
    return _role("sandbox:volumes", rules, user)


def dns() -> list[dict[str, Any]]:
    """CoreDNS: a Deployment behind the Service address in every pod's resolv.conf."""
    labels = {"k8s-app": "kube-dns"}
    metadata = {"name": "coredns", "namespace": _SYSTEM, "labels": labels}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    rules = [
        _rule("", "endpoints,services,pods,namespaces", "list", "watch"),
        _rule("discovery.k8s.io", "endpointslices", "list", "watch"),
    ]
    account = {"kind": "ServiceAccount", "name": "coredns", "namespace": _SYSTEM}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        *_role("system:coredns", rules, account),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"Corefile": _COREFILE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**metadata, "name": "kube-dns"},
            "spec": {"selector": labels, "clusterIP": network.DNS_SERVICE, "ports": ports},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _coredns_pod()},
            },
        },
    ]


def _coredns_pod() -> dict[str, Any]:
    # DNS leaves a lost node as soon as Kubernetes detects the loss, not after the default five minutes.
    gone = [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
        for state in ("not-ready", "unreachable")
    ]
    return {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "tolerations": gone,
        "containers": [
            {
                "name": "coredns",
                "image": COREDNS_IMAGE,
                "imagePullPolicy": "Never",
                "args": ["-conf", "/etc/coredns/Corefile"],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
                "resources": {"requests": {"cpu": "50m", "memory": "40Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }


def _rule(group: str, resources: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(","), "verbs": list(verbs)}


def _role(name: str, rules: list[dict[str, Any]], subject: dict[str, str]) -> list[dict[str, Any]]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    version = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": reference,
            "subjects": [subject],
        },
    ]
