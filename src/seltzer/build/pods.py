"""What the pods have in common: how they are locked down, how they wait, and how a user changes them."""

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
    """The lifecycle of a daemon that ends at SIGINT only.

    The first process of a container gets no SIGTERM that it doesn't handle, and Kubernetes would wait for it for as
    long as it waits for anybody.
    """
    return {"preStop": {"exec": {"command": ["/bin/sh", "-c", "kill -INT 1"]}}}


def from_field(name: str, path: str) -> Manifest:
    """An environment variable with a field of the pod in it.

    The API server's default is written out: of a map that it fills in it says that two who apply the same differ.
    """
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def secret_volume(name: str, secret: str, mode: int, *keys: str) -> Manifest:
    """Some keys of a Secret as files."""
    items = [{"key": key, "path": key} for key in keys]
    return {"name": name, "secret": {"secretName": secret, "defaultMode": mode, "items": items}}


def resources(asked: Resources, **requests: str) -> Manifest:
    """What the user asks for, or else these requests: both together could be a request above its limit."""
    parts = {"requests": asked.requests, "limits": asked.limits}
    given = {part: {name: str(much) for name, much in amounts.items()} for part, amounts in parts.items() if amounts}
    return given or {"requests": dict(requests)}


def leave_dead_nodes(spec: Manifest, seconds: int) -> Manifest:
    """The pod is made anew elsewhere this long after its node is lost, unless the user says how long."""
    tolerations = list(spec.get("tolerations", []))
    said = {toleration.get("key") for toleration in tolerations if isinstance(toleration, dict)}
    for what in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{what}"
        if key not in said:
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
    return {**spec, "tolerations": tolerations}


def spread(selector: Mapping[str, str]) -> Manifest:
    """Rather on a Kubernetes node that has none of these pods yet; anywhere if there is none."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(selector)}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def checksum(*texts: str) -> str:
    """What changes when one of the texts does."""
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

    The main container is always there, under the hostname that Slurm knows it by, and our labels and annotations win.
    """
    ours = spec.get("hostname")
    metadata: dict[str, dict[str, str]] = {"labels": {}, "annotations": {}}
    for template in templates:
        spec = merge(spec, template.spec)
        metadata["labels"].update(template.metadata.labels)
        metadata["annotations"].update(template.metadata.annotations)
    if not any(container["name"] == main and container.get("image") for container in spec.get("containers", [])):
        raise TemplateRefused(
            f"podTemplate.spec.containers: removes {main}, the container that the pod is for; keep it"
        )
    if spec.get("hostname") != ours:
        raise TemplateRefused("podTemplate.spec.hostname: Slurm knows the pod by the name that it has; remove it")
    metadata["labels"].update(labels)
    metadata["annotations"].update(annotations or {})
    return {"metadata": {part: said for part, said in metadata.items() if said}, "spec": spec}


def service_account(cluster: SlurmCluster, component: str, name: str) -> Manifest:
    """An account of its own for each component; only who needs a token mounts one."""
    head = names.manifest("ServiceAccount", "v1", cluster, component, name)
    return {**head, "automountServiceAccountToken": False}


def deployment(cluster: SlurmCluster, component: str, name: str, replicas: int, pod: Manifest) -> Manifest:
    """A Deployment that finds its pods by labels that no template can change."""
    spec = {
        "replicas": replicas,
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": names.selector(cluster, component)},
        "template": pod,
    }
    return {**names.manifest("Deployment", "apps/v1", cluster, component, name), "spec": spec}
