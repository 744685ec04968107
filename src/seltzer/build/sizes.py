"""How large a node is for Slurm: the CPUs and the memory that the slurmd container may use."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from seltzer.api.core import Allocatable
from seltzer.api.nodeset import NodeSet

from . import pods, quantity
from .components import slurmd
from .merge import TemplateRefused, merge
from .names import Manifest

# slurmd takes 4 MiB, and each slurmstepd 2 MiB of its own; programs that slurmd runs take more, for a short time.
_DAEMONS = 48


@dataclass(frozen=True)
class Size:
    """A node: CPUs, and memory in MiB."""

    cpus: int
    memory: int


def of_jobs(memory: int) -> int:
    """How much of a pod's memory limit jobs may ask for, in MiB.

    The rest is for slurmd and slurmstepds, and for the margin below which the pod counts as out of memory
    (images/slurm/memory.c): jobs that stay within what they asked for must not reach it.
    """
    margin = min(max(memory // 16, 32), 512)
    return max(1, memory - min(memory // 4, margin + _DAEMONS))


def amount_of(name: str, container: Manifest, pod: Manifest) -> tuple[Any, bool]:
    """How much of a resource the container may use, and whether that is a limit. None: all that its machine has.

    Both are `resources` as in Kubernetes. A pod's limit is for all of its containers.
    """
    for source in (container, pod):
        if (amount := (source.get("limits") or {}).get(name)) is not None:
            return amount, True
    for source in (container, pod):
        if (amount := (source.get("requests") or {}).get(name)) is not None:
            return amount, False
    return None, False


def whole_units(name: str, amount: Any) -> int:
    """CPUs or MiB, as Slurm counts them."""
    try:
        return quantity.cpus(amount) if name == "cpu" else quantity.mebibytes(amount)
    except quantity.QuantityError as error:
        raise TemplateRefused(f"the slurmd container's {name}: {error}") from None


def size_for_slurm(name: str, container: Manifest, pod: Manifest) -> int | None:
    """The same in whole units, for jobs. None: the machine's."""
    amount, is_limit = amount_of(name, container, pod)
    if amount is None:
        return None
    units = whole_units(name, amount)
    return of_jobs(units) if name == "memory" and is_limit else units


def of_nodeset(nodeset: NodeSet, machines: Collection[Allocatable]) -> Size | None:
    """The size of its nodes, of those with the least memory per CPU if they differ. None if it isn't known."""
    bare = {"containers": [{"name": slurmd.NAME, "resources": pods.resources(nodeset.spec.resources)}]}
    try:
        spec = merge(bare, nodeset.spec.pod_template.spec)
        container: Manifest = next((each for each in spec["containers"] if each.get("name") == slurmd.NAME), {})
        parts = [container.get("resources") or {}, spec.get("resources") or {}]
        cpus, memory = (size_for_slurm(name, *parts) for name in ("cpu", "memory"))
    except TemplateRefused:
        return None
    return Size(cpus, memory) if cpus and memory else of_machines(machines, cpus, memory)


def per_cpu(sizes: Iterable[Size | None]) -> int | None:
    """The memory in MiB that a job gets for each CPU if it asks for none: what the scarcest of these nodes has.

    None if any size is unknown: then such a job gets a node's whole memory, which is a figure too.
    """
    found = [None if size is None else max(1, size.memory // size.cpus) for size in sizes]
    known = [each for each in found if each is not None]
    return min(known) if known and len(known) == len(found) else None


def of_machines(machines: Iterable[Allocatable], cpus: int | None = None, memory: int | None = None) -> Size | None:
    """The scarcest of what nodes are that have the size of their machine, or the given part of it.

    Any machine may have one of the pods. Memory per CPU is rounded down by up to an eighth: machines of one kind differ
    by a little, and each new figure is a reconfigure.
    """
    scarcest: Size | None = None
    for machine in machines:
        try:
            size = Size(cpus or quantity.whole_cpus(machine.cpu), memory or quantity.mebibytes(machine.memory))
        except quantity.QuantityError:
            return None
        if scarcest is None or size.memory * scarcest.cpus < scarcest.memory * size.cpus:
            scarcest = size
    return None if scarcest is None else Size(1, _rounded(scarcest.memory // scarcest.cpus))


def _rounded(number: int) -> int:
    """Its four highest bits."""
    low = max(0, number.bit_length() - 4)
    return number >> low << low
