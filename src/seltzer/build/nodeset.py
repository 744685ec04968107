"""The pods of a NodeSet, each of which is a node in Slurm."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from importlib import resources as files
from typing import Any

from seltzer.api.labels import BUSY, DELETION_COST, SAFE_TO_EVICT
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import clients, names, network, pods, quantity
from .components import slurmd
from .images import Images
from .merge import TemplateRefused
from .names import Manifest

__all__ = ["TemplateRefused", "budget", "pod", "pods_of", "support", "template"]

_SCRIPT = files.files(__package__).joinpath("slurmd.sh").read_text()
_DEFAULT_REQUESTS = {"cpu": "100m", "memory": "64Mi"}
# While so many aren't available, no pod may be evicted, ready or not. With `maxUnavailable: 0` Kubernetes would keep as
# many as the NodeSet's replicas: those that are too many after a scale-in, and whose jobs are waited for, could go.
_MORE_THAN_THERE_ARE = 1_000_000
# Limits that aren't set are what the Kubernetes node can give.
_FROM_NODE = {"cpu": ("SELTZER_CPUS", "limits.cpu", "1"), "memory": ("SELTZER_MEMORY", "limits.memory", "1Mi")}


def pod(nodeset: NodeSet, cluster: SlurmCluster, images: Images, name: str) -> Manifest:
    """One pod, with the user's changes. Raises TemplateRefused where these can't be."""
    return pods_of(nodeset, cluster, images)(name)


def pods_of(nodeset: NodeSet, cluster: SlurmCluster, images: Images) -> Callable[[str], Manifest]:
    """What makes each pod from its name; what thousands of them have in common is made once."""
    built = _template(nodeset, cluster, images)
    metadata = {
        **built["metadata"],
        # What is true of a pod without a job, so that it needs no second write; the user's word comes first.
        "annotations": {DELETION_COST: "0", SAFE_TO_EVICT: "true", **built["metadata"].get("annotations", {})},
        "namespace": nodeset.metadata.namespace,
        "ownerReferences": names.owners(nodeset),
        "labels": {**built["metadata"]["labels"], names.TEMPLATE: _hash(built)},
    }

    def make(name: str) -> Manifest:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": name}, "spec": built["spec"]}

    return make


def template(nodeset: NodeSet, cluster: SlurmCluster, images: Images) -> str:
    """What the pods are made from, as a label: it changes when a pod made now would differ from the last."""
    return _hash(_template(nodeset, cluster, images))


def support(nodeset: NodeSet, cluster: SlurmCluster, slurm_key: bytes) -> list[Manifest]:
    """What the pods need beside them where they aren't in the cluster's namespace: the key, and to be reached."""
    if not _elsewhere(nodeset, cluster):
        return []
    secret = names.manifest(
        "Secret",
        "v1",
        cluster,
        "slurmd",
        names.nodeset_key(nodeset),
        more_labels={names.NODESET: nodeset.metadata.name},
        owner=nodeset,
    )
    data = {names.SLURM_KEY: base64.b64encode(slurm_key).decode()}
    return [{**secret, "type": "Opaque", "data": data}, network.of_nodeset(nodeset, cluster)]


def budget(nodeset: NodeSet, cluster: SlurmCluster, *, everyone: bool = False) -> Manifest:
    """No pod that has a job is evicted: `kubectl drain` and autoscalers wait until it has ended.

    With `everyone` no pod at all is: nobody knows which of them have jobs.
    """
    head = names.manifest(
        "PodDisruptionBudget",
        "policy/v1",
        cluster,
        "slurmd",
        names.nodeset_budget(nodeset),
        more_labels={names.NODESET: nodeset.metadata.name},
        owner=nodeset,
    )
    labels = {**names.nodeset_selector(nodeset, cluster), **({} if everyone else {BUSY: "true"})}
    return {**head, "spec": {"minAvailable": _MORE_THAN_THERE_ARE, "selector": {"matchLabels": labels}}}


def _elsewhere(nodeset: NodeSet, cluster: SlurmCluster) -> bool:
    return nodeset.metadata.namespace != cluster.metadata.namespace


def _hash(built: Manifest) -> str:
    text = json.dumps(built, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[: names.DIGEST_CHARACTERS]


def _template(nodeset: NodeSet, cluster: SlurmCluster, images: Images) -> Manifest:
    """Metadata and spec as they are in all pods of the NodeSet."""
    key = names.nodeset_key(nodeset) if _elsewhere(nodeset, cluster) else names.keys(cluster)
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "affinity": pods.spread(names.nodeset_selector(nodeset, cluster)),
        "securityContext": dict(pods.SECCOMP),
        # Kubernetes' pause reaps what jobs leave behind; slurmd as the first process would not.
        "shareProcessNamespace": True,
        "containers": [_slurmd(nodeset, cluster, images)],
        "volumes": [pods.secret_volume("keys", key, 0o400, names.SLURM_KEY)],
    }
    labels = {**names.labels(cluster, "slurmd"), names.NODESET: nodeset.metadata.name}
    built = pods.customised(spec, [nodeset.spec.pod_template], "slurmd", labels=labels)
    containers = [
        _sized(container, nodeset) if container["name"] == "slurmd" else container
        for container in built["spec"]["containers"]
    ]
    return {**built, "spec": {**built["spec"], "containers": containers}}


def _slurmd(nodeset: NodeSet, cluster: SlurmCluster, images: Images) -> Manifest:
    """Without its size, which isn't known before the user's changes are."""
    return {
        "name": "slurmd",
        "image": nodeset.spec.image or images.of(slurmd.NAME),
        "imagePullPolicy": images.pull_policy,
        "command": [
            *("/bin/bash", "-c", _SCRIPT, "seltzer"),
            *("/usr/sbin/slurmd", "-D", "-Z", "-N", "$(POD_NAME)", *clients.conf_server(cluster)),
        ],
        "env": [
            pods.from_field("POD_NAME", "metadata.name"),
            *clients.environment(cluster),
            {"name": "SELTZER_SLURMD_PORT", "value": str(slurmd.PORT)},
        ],
        "ports": [{"name": "slurmd", "containerPort": slurmd.PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": "slurmd"}, "periodSeconds": 1},
        "resources": pods.resources(nodeset.spec.resources),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            # To become the job's user, to give it its files and output, and to end it.
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "KILL", "SETGID", "SETUID"]},
        },
        "volumeMounts": [{"name": "keys", "mountPath": "/etc/slurm", "readOnly": True}],
    }


def _sized(container: Manifest, nodeset: NodeSet) -> Manifest:
    """The slurmd container with what Slurm is told of the node: what the container really may use."""
    resources: Manifest = container.get("resources", {})
    env = list(container.get("env", []))
    sizes = {"cpu": "", "memory": ""}
    requests = dict(resources.get("requests", {}))
    for name in sizes:
        much = resources.get("limits", {}).get(name, requests.get(name))
        if much is None:
            variable, field, divisor = _FROM_NODE[name]
            source = {"containerName": "slurmd", "resource": field, "divisor": divisor}
            env.append({"name": variable, "valueFrom": {"resourceFieldRef": source}})
            requests[name] = _DEFAULT_REQUESTS[name]
            sizes[name] = f"$({variable})"
        else:
            sizes[name] = str(_amount(name, much))
    node = [
        f"CPUs={sizes['cpu']}",
        f"RealMemory={sizes['memory']}",
        f"Weight={nodeset.spec.weight}",
        f"Feature={','.join(_features(nodeset))}",
    ]
    sized = {**container, "env": env, "resources": {**resources, **({"requests": requests} if requests else {})}}
    # Arguments of the user's are for slurmd too: they go last.
    return {**sized, "args": ["--conf", " ".join(node), *container.get("args", [])]}


def _amount(name: str, much: Any) -> int:
    try:
        return quantity.cpus(much) if name == "cpu" else quantity.mebibytes(much)
    except quantity.QuantityError as error:
        raise TemplateRefused(f"the slurmd container's {name}: {error}") from None


def _features(nodeset: NodeSet) -> list[str]:
    """The NodeSet's name, the feature that puts the node into its set, and the user's."""
    return list(dict.fromkeys([nodeset.metadata.name, names.slurm_set(nodeset), *nodeset.spec.features]))
