"""Home directories: when pods begin to mount them, and what is missing until then.

A pod that mounts a volume which doesn't exist never starts. No pod but the binder therefore mounts the home directories
before their claim is bound: a cluster without a suitable storage class works, without them. Once bound they stay
mounted, whatever becomes of the volume. The pods of a new cluster wait for the claim a little: most are bound in a few
seconds, and without that every new cluster would make its pods twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from seltzer.api.core import PersistentVolumeClaim, Pod
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.plan import pod_state
from seltzer.plan.actions import Action, Create, Delete, Manifest
from seltzer.plan.conditions import Finding
from seltzer.plan.wakeup import Wakeup

HOME_READY = "HomeReady"
_SHARED = "ReadWriteMany"
_PATIENCE = 20.0


def is_bound(claim: PersistentVolumeClaim | None) -> bool:
    """Whether it has a volume, or had one that is lost: a claim never goes back to Pending."""
    return claim is not None and claim.status.phase not in ("", "Pending")


def awaited(cluster: SlurmCluster, claim: PersistentVolumeClaim | None, now: float) -> Wakeup | None:
    """Whether a new cluster's pods wait for the claim."""
    created = cluster.metadata.creation_timestamp
    if cluster.spec.home is None or is_bound(claim) or created is None:
        return None
    left = datetime.fromisoformat(created).timestamp() + _PATIENCE - now
    return Wakeup("a new cluster waits for its home directories", left + 1.0) if 0 < left <= _PATIENCE else None


def mountable(cluster: SlurmCluster, claim: PersistentVolumeClaim | None, now: float) -> SlurmCluster:
    """The cluster as its pods are built: without home directories while their claim isn't bound."""
    if cluster.spec.home is None or is_bound(claim) or awaited(cluster, claim, now):
        return cluster
    return msgspec.structs.replace(cluster, spec=msgspec.structs.replace(cluster.spec, home=None))


def mountable_by(nodeset: NodeSet, claim: PersistentVolumeClaim | None) -> NodeSet:
    """The NodeSet as its pods are built: without its own claim for the home directories while that doesn't exist.

    One that isn't bound yet is mounted: these pods may be the ones for which it is bound.
    """
    if nodeset.spec.home is None or claim is not None:
        return nodeset
    return msgspec.structs.replace(nodeset, spec=msgspec.structs.replace(nodeset.spec, home=None))


def is_replaced(cluster: SlurmCluster, claim: PersistentVolumeClaim | None) -> bool:
    """Whether our claim has another class than the spec. It has no volume yet, so no files are lost."""
    wanted = cluster.spec.home
    if wanted is None or wanted.claim or wanted.class_name is None or claim is None or is_bound(claim):
        return False
    return claim.spec.storage_class_name != wanted.class_name


def binding(
    cluster: SlurmCluster, claim: PersistentVolumeClaim | None, pods: Sequence[Pod], binder: Manifest | None
) -> list[Action]:
    """Creates the binder while the claim waits for a volume, and removes it afterwards; the same for a claim that can't
    be changed any more.
    """
    replaced = is_replaced(cluster, claim)
    waits = cluster.spec.home is not None and claim is not None and not is_bound(claim) and not replaced
    if waits and binder is not None:
        return [] if pods else [Create(binder)]
    actions: list[Action] = [
        Delete("Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        for pod in pods
        if not pod_state.deleting(pod)
    ]
    if replaced and claim is not None and claim.metadata.deletion_timestamp is None:
        metadata = claim.metadata
        actions.append(Delete("PersistentVolumeClaim", metadata.namespace, metadata.name, metadata.uid))
    return actions


def of_cluster(cluster: SlurmCluster, claim: PersistentVolumeClaim | None, name: str, now: float) -> Finding | None:
    """The condition of a cluster's home directories, in the claim of that name; None if the spec asks for none."""
    if cluster.spec.home is None:
        return None
    if awaited(cluster, claim, now):
        return Finding(HOME_READY, "Unknown", "Binding", f"claim {name} is about to get its volume")
    ours = not cluster.spec.home.claim
    if claim is None and ours:
        return _no("Starting", f"the claim {name} is about to be created")
    return _of_claim(claim, name, cluster.metadata.namespace, "spec.home", ours=ours)


def of_nodeset(nodeset: NodeSet, cluster: SlurmCluster | None, claim: PersistentVolumeClaim | None) -> Finding | None:
    """The condition of a NodeSet's home directories; None where the cluster's counts, or where there are none."""
    own, namespace = nodeset.spec.home, nodeset.metadata.namespace
    if own is not None:
        return _of_claim(claim, own.claim, namespace, "spec.home", ours=False)
    if cluster is None or cluster.spec.home is None or cluster.metadata.namespace == namespace:
        return None
    return _no(
        "NoClaim",
        f"the home directories of {cluster.metadata.name} are in namespace {cluster.metadata.namespace}, and a claim "
        f"can't be used from another: create a claim in {namespace} for the same file system, and name it in "
        "spec.home.claim; jobs here run without home directories until then",
    )


def _of_claim(claim: PersistentVolumeClaim | None, name: str, namespace: str, field: str, *, ours: bool) -> Finding:
    if claim is None:
        return _no(
            "ClaimMissing",
            f"there is no PersistentVolumeClaim {name} in namespace {namespace}: create it with access mode {_SHARED}, "
            f"or correct {field}.claim; pods start without home directories until then",
        )
    if claim.status.phase == "Lost":
        return _no(
            "VolumeLost",
            f"the volume of claim {name} no longer exists: restore PersistentVolume {claim.spec.volume_name}, or set "
            f"{field}.claim to another claim",
        )
    if is_bound(claim):
        if claim.metadata.deletion_timestamp is not None:
            retain = """'{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'"""
            return _no(
                "ClaimDeleted",
                f"claim {name} is being deleted: running pods keep the home directories, and new ones can't start. The "
                "files may go with it once the last of these pods has ended; 'kubectl patch pv "
                f"{claim.spec.volume_name} -p {retain}' keeps them",
            )
        if _SHARED not in claim.spec.access_modes:
            modes = ", ".join(claim.spec.access_modes)
            return _no(
                "NotShared",
                f"claim {name} is {modes}, so pods on other Kubernetes nodes can't mount it: set {field}.claim to a "
                f"claim with access mode {_SHARED}",
            )
        return Finding(HOME_READY, "True", "Bound", f"home directories are in claim {name}")
    return _pending(claim, name, field, ours=ours)


def _pending(claim: PersistentVolumeClaim, name: str, field: str, *, ours: bool) -> Finding:
    """Why a claim has no volume, as far as the claim itself shows it."""
    remedy = f"set {field}.className to a class" if ours else "create it with a class"
    remedy = f"{remedy} that can make {_SHARED} volumes, such as one for NFS or CephFS"
    consequence = "pods start without home directories until then"
    if not claim.spec.storage_class_name:
        words = f"claim {name} has no storage class, and Kubernetes has no default one: {remedy}; {consequence}"
        return _no("NoStorageClass", words)
    return _no(
        "NoVolume",
        f"claim {name} has no volume of class {claim.spec.storage_class_name} yet, and 'kubectl describe pvc {name}' "
        f"says why; if that class can't make {_SHARED} volumes, {remedy}; {consequence}",
    )


def _no(reason: str, message: str) -> Finding:
    return Finding(HOME_READY, "False", reason, message)
