"""GPUs: what a NodeSet's pods are promised, and what Slurm has to know for that.

The pods' own limits or claims decide. `gpus.sh` finds out in each pod what it really has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources as files
from typing import Any, Literal

from seltzer.api.common import Quantity
from seltzer.api.nodeset import Gpus, NodeSet

from . import quantity
from .components import slurmd
from .merge import TemplateRefused
from .names import Manifest
from .userconf import ConfigRefused

Sharing = Literal["", "shard", "mps"]

TASK_PROLOG = "seltzer-gpus"
# Slurm's own unit: percent of a GPU.
_MPS = 100
_SCRIPT = files.files(__package__).joinpath("gpus.sh").read_text()
_HIDE = files.files(__package__).joinpath("hide_gpus.sh").read_text()


@dataclass(frozen=True)
class Promise:
    """The GPUs of each pod."""

    resource: str
    """The resource in the limits; empty if the GPUs come from resource claims."""
    count: int | None
    """None: whatever the claims bring."""
    kind: str
    sharing: Sharing
    parts: int
    """How many parts each GPU has for jobs that share it."""


def is_gpu(resource: str) -> bool:
    """Whether a pod that is given the resource has a GPU, or a MIG instance of one."""
    return resource in ("nvidia.com/gpu", "amd.com/gpu") or resource.startswith("nvidia.com/mig-")


def promised(container: Mapping[str, Any], asked: Gpus | None) -> Promise | None:
    """The GPUs that a slurmd container has by its limits or claims; None if it has none.

    Raises TemplateRefused for limits that Slurm can't represent.
    """
    resources = container.get("resources") or {}
    limits = {
        name: _whole(name, amount) for name, amount in (resources.get("limits") or {}).items() if is_gpu(str(name))
    }
    found = sorted(name for name, count in limits.items() if count)
    if len(found) > 1:
        raise TemplateRefused(
            f"the slurmd container's limits have {' and '.join(found)}: a node has one kind of GPU; "
            "make a NodeSet for each"
        )
    if not found and not resources.get("claims"):
        return None
    asked = asked or Gpus()
    resource = found[0] if found else ""
    if resource and asked.count is not None and asked.count != limits[resource]:
        raise TemplateRefused(
            f"gpus.count is {asked.count}, and the limits have {limits[resource]} of {resource}: remove gpus.count, "
            "which is for GPUs from resource claims"
        )
    sharing, parts = _sharing(asked)
    return Promise(resource, limits.get(resource, asked.count), asked.type or "", sharing, parts)


def wrapped(container: Manifest, promise: Promise | None) -> Manifest:
    """The slurmd container with our script before its command; unchanged without GPUs."""
    if promise is None:
        return container
    count = "" if promise.count is None else str(promise.count)
    settings = {
        "SELTZER_GPU_RESOURCE": promise.resource,
        "SELTZER_GPU_COUNT": count,
        "SELTZER_GPU_TYPE": promise.kind,
        "SELTZER_GPU_SHARING": f"{promise.sharing} {promise.parts}" if promise.sharing else "",
    }
    env = [{"name": name, "value": value} for name, value in settings.items() if value]
    command = ["/bin/bash", "-c", _SCRIPT, "seltzer-gpus", *container.get("command", [])]
    return {**container, "command": command, "env": [*container.get("env", []), *env]}


def settings(nodesets: Iterable[NodeSet]) -> list[tuple[str, str]]:
    """Lines of slurm.conf; none while no NodeSet has GPUs. Raises ConfigRefused for what Slurm can't have at once."""
    having = [each for each in nodesets if has(each)]
    if not having:
        return []
    ways: dict[Sharing, NodeSet] = {_sharing(each.spec.gpus or Gpus())[0]: each for each in having}
    if {"shard", "mps"} <= ways.keys():
        # Seen: with both plugins loaded a job with --gres=shard has no CUDA_VISIBLE_DEVICES.
        shards, mps = ways["shard"].metadata.name, ways["mps"].metadata.name
        raise ConfigRefused(
            f"NodeSet {shards} has gpus.shards and NodeSet {mps} has gpus.mps, and a Slurm cluster can't have both: "
            "change one of them"
        )
    return [("GresTypes", ",".join(["gpu", *sorted(filter(None, ways))])), ("TaskProlog", TASK_PROLOG)]


def config_files(nodesets: Iterable[NodeSet], users: Mapping[str, str]) -> dict[str, str]:
    """Files beside slurm.conf; none while no NodeSet has GPUs. `users` are the user's own."""
    if not any(has(each) for each in nodesets):
        return {}
    own = users.get("gres.conf", "")
    # slurmd would look for GPUs otherwise: the driver shows those of the machine in every pod.
    off = "" if "autodetect" in own.lower() else "AutoDetect=off\n"
    return {"gres.conf": f"{off}{own}", TASK_PROLOG: _HIDE}


def has(nodeset: NodeSet) -> bool:
    """Whether its pods have GPUs by their limits, or may have by their claims."""
    containers: Sequence[Any] = nodeset.spec.pod_template.spec.get("containers") or ()
    found: list[Mapping[str, Any]] = [{"limits": nodeset.spec.resources.limits}]
    if isinstance(containers, list | tuple):  # a user wrote it, and it isn't validated
        found += [
            each["resources"]
            for each in containers
            if isinstance(each, Mapping)
            and each.get("name") == slurmd.NAME
            and isinstance(each.get("resources"), Mapping)
        ]
    return any(each.get("claims") or any(is_gpu(str(name)) for name in each.get("limits") or ()) for each in found)


def _sharing(asked: Gpus) -> tuple[Sharing, int]:
    if asked.shards is not None:
        return "shard", asked.shards
    return ("mps", _MPS) if asked.mps else ("", 0)


def _whole(name: str, amount: Quantity) -> int:
    try:
        value = quantity.parse(amount)
    except quantity.QuantityError as error:
        raise TemplateRefused(f"the slurmd container's {name}: {error}") from None
    if value < 0 or value.denominator != 1:
        raise TemplateRefused(f"the slurmd container's {name} is {amount}: write a whole number of GPUs")
    return int(value)
