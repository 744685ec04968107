"""Volumes that the pods of a cluster share: the home directories, and the mounts of the spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.api.volumes import Mount

from . import names, pods
from .images import Images
from .names import Manifest

HOME: Final = "/home"
_SIZE: Final = "100Gi"
COMPONENT: Final = "home"
"""The component label of the claim and of the binder."""


def of_login(cluster: SlurmCluster) -> list[tuple[Manifest, Manifest]]:
    """The volumes of a login pod, each with its mount."""
    return _pairs(names.home_claim(cluster), cluster.spec.mounts)


def of_nodeset(nodeset: NodeSet, cluster: SlurmCluster) -> list[tuple[Manifest, Manifest]]:
    """The volumes of a NodeSet's pods, each with its mount."""
    return _pairs(home_claim_of(nodeset, cluster), _mounts_of(nodeset, cluster))


def home_claim_of(nodeset: NodeSet, cluster: SlurmCluster) -> str:
    """The claim with the home directories in the NodeSet's namespace; empty if there is none."""
    if nodeset.spec.home:
        return nodeset.spec.home.claim
    return names.home_claim(cluster) if _is_at_home(nodeset, cluster) else ""


def home(cluster: SlurmCluster) -> list[Manifest]:
    """The claim for the home directories, unless the user has one. Without an owner: people's files outlive the cluster
    unless home.onDelete says otherwise.
    """
    wanted = cluster.spec.home
    if wanted is None or wanted.claim:
        return []
    head = names.manifest("PersistentVolumeClaim", "v1", cluster, COMPONENT, names.home(cluster))
    del head["metadata"]["ownerReferences"]
    spec: Manifest = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": str(wanted.size or _SIZE)}},
    }
    if wanted.class_name:
        spec["storageClassName"] = wanted.class_name
    return [{**head, "spec": spec}]


def binder(cluster: SlurmCluster, images: Images) -> Manifest:
    """A pod that only mounts the home directories.

    Many storage classes make a volume only once a pod asks for it. This pod is the one that may wait for it: no other
    pod mounts the volume before it exists.
    """
    user = pods.SLURM_USER
    container = {
        "name": COMPONENT,
        "image": cluster.spec.login.image or images.of("login"),
        "imagePullPolicy": images.pull_policy,
        "command": ["/bin/true"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, **pods.NO_ROOT},
        "volumeMounts": [{"name": "home", "mountPath": HOME}],
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": dict(pods.SECCOMP),
        "containers": [container],
        "volumes": [_claimed("home", names.home_claim(cluster))],
    }
    built = pods.customised(spec, [cluster.spec.pod_template], COMPONENT, labels=names.labels(cluster, COMPONENT))
    head = names.manifest("Pod", "v1", cluster, COMPONENT, names.home(cluster))
    # The user's podTemplate says where it may run. Sidecars and other volumes could only prevent its start.
    only = [each for each in built["spec"]["containers"] if each["name"] == COMPONENT]
    ours = {"containers": only, "volumes": spec["volumes"]}
    return {**head, "metadata": {**built["metadata"], **head["metadata"]}, "spec": {**built["spec"], **ours}}


def _is_at_home(nodeset: NodeSet, cluster: SlurmCluster) -> bool:
    return nodeset.metadata.namespace == cluster.metadata.namespace


def _mounts_of(nodeset: NodeSet, cluster: SlurmCluster) -> list[Mount]:
    """The cluster's, unless the NodeSet has its own of that name or path or they need a claim of another namespace."""
    own = nodeset.spec.mounts
    replaced = {mount.name for mount in own} | {mount.path for mount in own}
    shared = [
        mount
        for mount in cluster.spec.mounts
        if (_is_at_home(nodeset, cluster) or not mount.claim) and replaced.isdisjoint({mount.name, mount.path})
    ]
    return [*shared, *own]


def _pairs(home_claim: str, mounts: Iterable[Mount]) -> list[tuple[Manifest, Manifest]]:
    found = [(_claimed("home", home_claim), {"name": "home", "mountPath": HOME})] if home_claim else []
    return [*found, *(_pair(mount) for mount in mounts)]


def _pair(mount: Mount) -> tuple[Manifest, Manifest]:
    # The prefix avoids the names of our own volumes and of those in podTemplates.
    name = f"mount-{mount.name}"
    volume = _claimed(name, mount.claim) if mount.claim else {**(mount.volume or {}), "name": name}
    mounted: Manifest = {"name": name, "mountPath": mount.path}
    if mount.sub_path:
        mounted["subPath"] = mount.sub_path
    if mount.read_only:
        mounted["readOnly"] = True
    return volume, mounted


def _claimed(name: str, claim: str) -> Manifest:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}
