"""The parts that pods share: security settings, volumes, tolerations, and the user's changes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from seltzer.api.common import PodTemplate, Resources
from seltzer.api.slurmcluster import SlurmCluster

from . import names
from .merge import TemplateRefused, merge
from .names import Manifest

SLURM_USER: Final = 401
NO_ROOT: Final[Manifest] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
SECCOMP: Final[Manifest] = {"seccompProfile": {"type": "RuntimeDefault"}}


def ended_by_interrupt() -> Manifest:
    """The lifecycle of a daemon that exits only on SIGINT.

    The first process of a container doesn't get a SIGTERM that it doesn't handle, and Kubernetes would wait for its
    whole grace period.
    """
    return {"preStop": {"exec": {"command": ["/bin/sh", "-c", "kill -INT 1"]}}}


def from_field(name: str, path: str) -> Manifest:
    """An environment variable with the value of a pod's field.

    It includes the API server's default: in a map that the server completes, it reports a conflict between two managers
    that apply the same.
    """
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def secret_volume(name: str, secret: str, mode: int, *keys: str) -> Manifest:
    """Keys of a Secret, as files."""
    items = [{"key": key, "path": key} for key in keys]
    return {"name": name, "secret": {"secretName": secret, "defaultMode": mode, "items": items}}


def resources(asked: Resources, **requests: str) -> Manifest:
    """The user's resources, or else these requests. Merged, a request could exceed its limit."""
    parts = {"requests": asked.requests, "limits": asked.limits}
    given = {part: {name: str(each) for name, each in amounts.items()} for part, amounts in parts.items() if amounts}
    return given or {"requests": dict(requests)}


def leave_dead_nodes(spec: Manifest, seconds: int) -> Manifest:
    """The pod is evicted this long after its node is lost, unless the user sets a toleration."""
    tolerations = list(spec.get("tolerations", []))
    users = {toleration.get("key") for toleration in tolerations if isinstance(toleration, dict)}
    for taint in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{taint}"
        if key not in users:
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    return {**spec, "tolerations": tolerations}


def spread(selector: Mapping[str, str]) -> Manifest:
    """Prefers Kubernetes nodes that have none of these pods yet."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(selector)}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def checksum(*texts: str) -> str:
    """A short digest of the texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[: names.DIGEST_CHARACTERS]


def customised(
    spec: Manifest,
    templates: Sequence[PodTemplate],
    main: str,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """A pod's metadata and spec with the user's changes, one template after the other.

    Raises TemplateRefused if they remove the main container or change the names by which Slurm and DNS know the pod.
    Our labels and annotations win.
    """
    ours = {"hostname": spec.get("hostname"), **{each: spec[each] for each in ("subdomain",) if each in spec}}
    metadata: dict[str, dict[str, str]] = {"labels": {}, "annotations": {}}
    for template in templates:
        spec = merge(spec, template.spec)
        metadata["labels"].update(template.metadata.labels)
        metadata["annotations"].update(template.metadata.annotations)
    if not any(container["name"] == main and container.get("image") for container in spec.get("containers", [])):
        raise TemplateRefused(
            f"podTemplate.spec.containers: removes {main}, the container that the pod is for; keep it"
        )
    for field, value in ours.items():
        if spec.get(field) != value:
            raise TemplateRefused(f"podTemplate.spec.{field}: Slurm knows the pod by the name that it has; remove it")
    metadata["labels"].update(labels)
    metadata["annotations"].update(annotations or {})
    return {"metadata": {part: values for part, values in metadata.items() if values}, "spec": spec}


def service_account(cluster: SlurmCluster, component: str, name: str) -> Manifest:
    """Each component has its own account. Only pods that need a token mount one."""
    head = names.manifest("ServiceAccount", "v1", cluster, component, name)
    return {**head, "automountServiceAccountToken": False}


def deployment(cluster: SlurmCluster, component: str, name: str, replicas: int, pod: Manifest) -> Manifest:
    """A Deployment that selects its pods by labels that no template can change."""
    spec = {
        "replicas": replicas,
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": names.selector(cluster, component)},
        "template": pod,
    }
    return {**names.manifest("Deployment", "apps/v1", cluster, component, name), "spec": spec}
