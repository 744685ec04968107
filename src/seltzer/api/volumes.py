"""Volumes that the pods of a cluster share: people's home directories, scratch space, datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from .common import ObjectName, Part, Quantity, Rule, text

VolumeName = Annotated[
    str,
    text(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z",
        "not the name of a volume: use at most 40 lower-case letters, digits and hyphens",
        40,
    ),
]
MountPath = Annotated[
    str,
    text(
        r"^/[-_.a-zA-Z0-9]+(/[-_.a-zA-Z0-9]+)*\Z",
        "not a path to mount at: write an absolute path such as /scratch, without a slash at its end",
        512,
    ),
]
SubPath = Annotated[
    str,
    text(r"^[-_.a-zA-Z0-9]+(/[-_.a-zA-Z0-9]+)*\Z", "not a folder in a volume: write it without a leading slash", 512),
]
# Trees that the images, Kubernetes or Seltzer fill. /usr/local is free.
_TAKEN = "bin|boot|dev|etc|home|lib|lib32|lib64|proc|root|run|sbin|sys|usr|var"


class Home(Part, frozen=True, kw_only=True):
    """The volume with people's home directories."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.claim) || (!has(self.size) && !has(self.className))",
            "an existing claim has its size and class: remove size and className, or remove claim",
            ".claim",
        ),
        Rule(
            "!has(self.size) || !has(oldSelf.size)"
            " || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",
            "a volume can't shrink: set size to what it was, or to more",
            ".size",
        ),
    )

    claim: ObjectName | None = None
    """An existing PersistentVolumeClaim in the cluster's namespace; by default Seltzer creates one. Its access mode has
    to be ReadWriteMany."""

    size: Quantity | None = None
    """The size of the claim that Seltzer creates; by default 100Gi. It can grow later if the storage class allows it,
    but never shrink."""

    class_name: ObjectName | None = None
    """The storage class of the claim that Seltzer creates, one that can make ReadWriteMany volumes; by default the
    default class of Kubernetes. It can change until the claim has a volume."""

    on_delete: Literal["retain", "delete"] = "retain"
    """What happens to the claim that Seltzer created when the cluster is deleted: keep everybody's files, or delete
    them, too."""


class NodeSetHome(Part, frozen=True, kw_only=True):
    """The home directories as pods in the NodeSet's namespace reach them."""

    claim: ObjectName
    """A PersistentVolumeClaim in the NodeSet's namespace, for the same file system as that of the cluster's
    spec.home."""


class Mount(Part, frozen=True, kw_only=True):
    """A volume, and the path at which it is mounted."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.claim) != has(self.volume)",
            "a mount needs one volume: set either claim, or volume such as {nfs: {server: files, path: /data}}",
        ),
        Rule(
            f"!self.path.matches('^/({_TAKEN})(/|$)') || self.path.startsWith('/usr/local/')",
            "a volume there would hide files of the image, of Slurm or of the home directories: choose another path, "
            "such as /scratch, /data or /opt/apps; home directories are spec.home",
            ".path",
        ),
        Rule(
            "!self.path.matches('/[.][.]?(/|$)')",
            "the path has a . or .. in it: write it without",
            ".path",
        ),
        Rule(
            "!has(self.subPath) || !('/' + self.subPath).matches('/[.][.](/|$)')",
            "the folder has a .. in it: write it without",
            ".subPath",
        ),
    )

    name: VolumeName
    """The name of the mount, unique in the list. A NodeSet's mount replaces the cluster's with the same name."""

    path: MountPath
    """Where the volume is mounted, such as /scratch."""

    claim: ObjectName | None = None
    """An existing PersistentVolumeClaim in the pods' namespace."""

    volume: (
        Annotated[Mapping[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})] | None
    ) = None
    """Any other volume, as in a pod and without a name, such as {nfs: {server: files, path: /data}}; see `kubectl
    explain pod.spec.volumes`."""

    sub_path: SubPath | None = None
    """The folder in the volume that is mounted; by default the whole volume."""

    read_only: bool = False
    """Whether the pods can only read it, as for datasets."""


Mounts = Annotated[
    tuple[Mount, ...],
    Meta(
        max_length=32,
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]
MOUNTS_RULE = Rule(
    "!has(self.mounts) || self.mounts.all(one, self.mounts.exists_one(other, other.path == one.path))",
    "two mounts have one path: choose another for one of them",
    ".mounts",
)
