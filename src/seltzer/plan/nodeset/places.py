"""Placement perNode: which machines have a node of a NodeSet, and what the nodes are called.

A node is called `<NodeSet>--<machine>`, where a machine counts with its host name, without its domain. Two hyphens
separate the two, so that no node has the name of another NodeSet's (`membership` sees to that). The name depends on the
machine's name alone: it is the same whenever the machine comes back.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from seltzer.api.core import Node, Pod
from seltzer.api.labels import MACHINE
from seltzer.api.nodeset import NodeSet
from seltzer.plan import pod_state
from seltzer.plan.nodeset import machine_selection
from seltzer.slurm.hostlist import DIGITS_THAT_ALWAYS_FIT

SEPARATOR: Final = "--"
# It is a host name.
LONGEST: Final = 63
_DIGEST = 8


@dataclass(frozen=True)
class Places:
    """Where the nodes of a NodeSet of placement perNode are, by the nodes' names."""

    # The machines that should have a node.
    wanted: Mapping[str, str]
    # All machines that exist, whether or not they should.
    existing: Mapping[str, str]
    # Machines that get no node, since another one with the same host name has it.
    clashing: tuple[str, ...] = ()

    def wants(self, pod: Pod) -> bool:
        """Whether a pod is where a node should be."""
        return self.wanted.get(pod.metadata.name) == machine_of(pod)


def find(nodeset: NodeSet, spec: Mapping[str, Any], machines: Iterable[Node], pods: Iterable[Pod]) -> Places:
    """The places of a NodeSet with these pods, whose spec selects some of the machines. Raises SelectionRefused.

    A selected machine that a new pod couldn't run on counts only while it has one.
    """
    taken = {pod.metadata.name: machine_of(pod) for pod in pods}
    alive = {pod.metadata.name for pod in pods if not pod_state.deleting(pod) and not pod_state.finished(pod)}
    ordered = sorted(machines, key=lambda each: each.metadata.name)
    existing: dict[str, str] = {}
    for machine in ordered:
        name = node_name(nodeset.metadata.name, machine.metadata.name)
        if name not in existing or taken.get(name) == machine.metadata.name:
            existing[name] = machine.metadata.name
    wanted: dict[str, str] = {}
    clashing: list[str] = []
    for machine in ordered:
        where = machine.metadata.name
        name = node_name(nodeset.metadata.name, where)
        if not machine_selection.matches(spec, machine):
            continue
        if existing[name] != where:
            clashing.append(where)
        elif (name in alive and taken[name] == where) or machine_selection.takes(spec, machine):
            wanted[name] = where
    return Places(wanted, existing, tuple(clashing))


def machine_of(pod: Pod) -> str:
    """The machine that a pod is on, or that it is for."""
    return pod.spec.node_name or pod.metadata.annotations.get(MACHINE, "")


@functools.lru_cache(maxsize=65_536)
def node_name(nodeset: str, machine: str) -> str:
    """The name of the node on a machine. One that Slurm or DNS couldn't take is cut, and ends with a digest."""
    name = f"{nodeset}{SEPARATOR}{machine.partition('.')[0]}"
    number = len(name) - len(name.rstrip("0123456789"))
    if len(name) <= LONGEST and number <= DIGITS_THAT_ALWAYS_FIT:
        return name
    digest = hashlib.sha256(machine.encode()).hexdigest()[:_DIGEST]
    return f"{name[: LONGEST - _DIGEST - 2].rstrip('-')}-x{digest}"


def names_of(nodeset: NodeSet) -> re.Pattern[str]:
    """The names of a NodeSet's nodes."""
    return _names(nodeset.metadata.name, nodeset.per_node)


@functools.lru_cache(maxsize=4096)
def _names(nodeset: str, per_node: bool) -> re.Pattern[str]:
    rest = rf"{SEPARATOR}[a-z0-9]([-a-z0-9]*[a-z0-9])?" if per_node else "-(0|[1-9][0-9]*)"
    return re.compile(rf"{re.escape(nodeset)}{rest}")
