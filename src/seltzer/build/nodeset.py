"""The pods of a NodeSet, each of which is a node in Slurm."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources as files
from typing import Any, cast

from seltzer.api.core import ConfigMap
from seltzer.api.labels import BUSY, DELETION_COST, SAFE_TO_EVICT, USERS
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import clients, names, network, node_names, placement, pods, quantity, users, volumes
from .components import slurmd
from .images import Images
from .merge import TemplateRefused
from .names import Manifest

__all__ = ["TemplateRefused", "budget", "pod", "pods_of", "selection", "support", "template"]

_SCRIPT = files.files(__package__).joinpath("slurmd.sh").read_text()
_DEFAULT_REQUESTS = {"cpu": "100m", "memory": "64Mi"}
# As minAvailable this is never reached, and no pod can be evicted, ready or not. `maxUnavailable: 0` protects only as
# many pods as the NodeSet has replicas: pods that still run jobs after a scale-in could be evicted.
_MORE_THAN_ANY_NODESET = 1_000_000
_SHM = {"medium": "Memory"}
# Without a limit Kubernetes fills in what the node can allocate.
_FROM_NODE = {
    "cpu": (placement.MACHINES_OWN[0], "limits.cpu", "1"),
    "memory": (placement.MACHINES_OWN[1], "limits.memory", "1Mi"),
}


def pod(nodeset: NodeSet, cluster: SlurmCluster, images: Images, name: str, machine: str = "") -> Manifest:
    """One pod, with the user's changes. Raises TemplateRefused if they can't be merged."""
    return pods_of(nodeset, cluster, images, machines={name: machine} if machine else {})(name)


def pods_of(
    nodeset: NodeSet,
    cluster: SlurmCluster,
    images: Images,
    known_users: str = "",
    machines: Mapping[str, str] | None = None,
) -> Callable[[str], Manifest]:
    """A function that builds a pod from its name. The parts that thousands of pods share are built once.

    `known_users` is the digest of the users that a new pod finds. `machines` are those of pods of placement perNode.
    """
    built = _template(nodeset, cluster, images)
    digest, built = _hash(built, nodeset), placement.placed(built, nodeset, cluster)
    metadata = {
        **built["metadata"],
        # True of a pod without jobs, which saves a second write. The user's values come first.
        "annotations": {
            DELETION_COST: "0",
            SAFE_TO_EVICT: "true",
            **built["metadata"].get("annotations", {}),
            **({USERS: known_users} if known_users else {}),
        },
        "namespace": nodeset.metadata.namespace,
        "ownerReferences": names.owners(nodeset),
        "labels": {**built["metadata"]["labels"], names.TEMPLATE: digest},
    }

    def make(name: str) -> Manifest:
        # With a hostname the pod has a name in DNS. It isn't part of the template's hash.
        head, spec = {**metadata, "name": name}, {**built["spec"], "hostname": name}
        if machines and name in machines:
            head, spec = placement.pinned(head, spec, machines[name])
        return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}

    return make


def template(nodeset: NodeSet, cluster: SlurmCluster, images: Images) -> str:
    """The hash of the pod template, for a label: it changes if a new pod would differ from the existing ones."""
    return _hash(_template(nodeset, cluster, images), nodeset)


def selection(nodeset: NodeSet, cluster: SlurmCluster, images: Images) -> Manifest:
    """The spec that says on which machines pods of placement perNode are."""
    return cast(Manifest, _template(nodeset, cluster, images)["spec"])


def support(
    nodeset: NodeSet, cluster: SlurmCluster, slurm_key: bytes, published: Sequence[ConfigMap] = ()
) -> list[Manifest]:
    """Objects for a NodeSet outside the cluster's namespace: the Secret with the key, the users, a NetworkPolicy."""
    if not _in_other_namespace(nodeset, cluster):
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
    copies = users.copies(nodeset, cluster, published)
    return [{**secret, "type": "Opaque", "data": data}, network.of_nodeset(nodeset, cluster), *copies]


def users_in(nodeset: NodeSet, cluster: SlurmCluster) -> tuple[str, str]:
    """The ConfigMaps with the users and the groups that the NodeSet's pods mount."""
    if _in_other_namespace(nodeset, cluster):
        return names.nodeset_passwd(nodeset), names.nodeset_group(nodeset)
    return names.passwd(cluster), names.group(cluster)


def budget(nodeset: NodeSet, cluster: SlurmCluster, *, all_pods: bool = False) -> Manifest:
    """Pods with jobs can't be evicted: `kubectl drain` and autoscalers wait until the jobs have ended.

    With `all_pods` no pod can be, because it isn't known which of them have jobs.
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
    labels = {**names.nodeset_selector(nodeset, cluster), **({} if all_pods else {BUSY: "true"})}
    return {**head, "spec": {"minAvailable": _MORE_THAN_ANY_NODESET, "selector": {"matchLabels": labels}}}


def _in_other_namespace(nodeset: NodeSet, cluster: SlurmCluster) -> bool:
    return nodeset.metadata.namespace != cluster.metadata.namespace


def _hash(built: Manifest, nodeset: NodeSet) -> str:
    """Without what `placement.placed` adds: that depends on the rest, and pods of an earlier release can stay."""
    placement_ = nodeset.spec.placement
    text = json.dumps(built if placement_ == "spread" else {**built, "placement": placement_}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[: names.DIGEST_CHARACTERS]


def _template(nodeset: NodeSet, cluster: SlurmCluster, images: Images) -> Manifest:
    """The metadata and spec that all pods of the NodeSet share."""
    key = names.nodeset_key(nodeset) if _in_other_namespace(nodeset, cluster) else names.keys(cluster)
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "subdomain": node_names.service(cluster, nodeset.metadata.namespace),
        "terminationGracePeriodSeconds": 30,
        "affinity": pods.spread(names.nodeset_selector(nodeset, cluster)),
        "securityContext": dict(pods.SECCOMP),
        # The pause container reaps processes that jobs leave behind. slurmd as PID 1 would not.
        "shareProcessNamespace": True,
        "containers": [_slurmd(nodeset, cluster, images)],
        "volumes": [
            pods.secret_volume("keys", key, 0o400, names.SLURM_KEY),
            users.volume(*users_in(nodeset, cluster)),
            {"name": "shm", "emptyDir": dict(_SHM)},
            *(volume for volume, _ in volumes.of_nodeset(nodeset, cluster)),
        ],
    }
    labels = {**names.labels(cluster, "slurmd"), names.NODESET: nodeset.metadata.name}
    built = pods.customised(spec, [nodeset.spec.pod_template], "slurmd", labels=labels)
    containers = [
        _sized(container, nodeset) if container["name"] == "slurmd" else container
        for container in built["spec"]["containers"]
    ]
    shared = [_shared_memory(volume, containers) for volume in built["spec"].get("volumes", [])]
    spec = node_names.searched({**built["spec"], "containers": containers, "volumes": shared}, cluster, images)
    return {**built, "spec": placement.tolerated(spec, nodeset)}


def _shared_memory(volume: Manifest, containers: list[Manifest]) -> Manifest:
    """Shared memory is half of the memory that the container may use, as on Linux, unless the user sets its size.

    What is in it counts as memory of that container. Without a limit Kubernetes takes what the machine can allocate.
    """
    if volume.get("name") != "shm" or volume.get("emptyDir") != _SHM:
        return volume
    slurmd_ = next(each for each in containers if each["name"] == slurmd.NAME)
    limit = slurmd_.get("resources", {}).get("limits", {}).get("memory")
    if limit is None:
        return volume
    return {**volume, "emptyDir": {**_SHM, "sizeLimit": f"{max(1, _whole_units('memory', limit) // 2)}Mi"}}


def _slurmd(nodeset: NodeSet, cluster: SlurmCluster, images: Images) -> Manifest:
    """Without its size, which depends on the user's changes."""
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
            # To switch to the job's user, to give it its files and output, and to end the job.
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "KILL", "SETGID", "SETUID"]},
        },
        "volumeMounts": [
            {"name": "keys", "mountPath": "/etc/slurm", "readOnly": True},
            users.mount(),
            # For the ranks of MPI programs; containers have 64 MiB by default.
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            *(mount for _, mount in volumes.of_nodeset(nodeset, cluster)),
        ],
    }


def _sized(container: Manifest, nodeset: NodeSet) -> Manifest:
    """The slurmd container with the node's size for Slurm: the resources that the container may use."""
    resources: Manifest = container.get("resources", {})
    env = list(container.get("env", []))
    sizes = {"cpu": "", "memory": ""}
    requests = dict(resources.get("requests", {}))
    for name in sizes:
        amount = resources.get("limits", {}).get(name, requests.get(name))
        if amount is None:
            variable, field, divisor = _FROM_NODE[name]
            source = {"containerName": "slurmd", "resource": field, "divisor": divisor}
            env.append({"name": variable, "valueFrom": {"resourceFieldRef": source}})
            requests[name] = _DEFAULT_REQUESTS[name]
            sizes[name] = f"$({variable})"
        else:
            sizes[name] = str(_whole_units(name, amount))
    node = [
        f"CPUs={sizes['cpu']}",
        f"RealMemory={sizes['memory']}",
        f"Weight={nodeset.spec.weight}",
        f"Feature={','.join(_features(nodeset))}",
    ]
    sized = {**container, "env": env, "resources": {**resources, **({"requests": requests} if requests else {})}}
    # The user's arguments are for slurmd too, and go last.
    return {**sized, "args": ["--conf", " ".join(node), *container.get("args", [])]}


def _whole_units(name: str, amount: Any) -> int:
    """CPUs or MiB, as Slurm counts them."""
    try:
        return quantity.cpus(amount) if name == "cpu" else quantity.mebibytes(amount)
    except quantity.QuantityError as error:
        raise TemplateRefused(f"the slurmd container's {name}: {error}") from None


def _features(nodeset: NodeSet) -> list[str]:
    """The NodeSet's name, the feature that puts the node into its set, and the user's features."""
    return list(dict.fromkeys([nodeset.metadata.name, names.slurm_set(nodeset), *nodeset.spec.features]))
