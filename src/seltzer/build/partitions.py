"""NodeSets in slurm.conf: a node set for each, defined by a feature of its nodes, and the partitions that they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from seltzer.api.nodeset import NodeSet, oldest_first
from seltzer.slurm.conf import Line, Pair

from . import names
from .userconf import ConfigRefused, check_owned

_PREFIX = "set_"
_NOT_OPTIONS = frozenset({"partitionname", "nodes"})


@dataclass
class _Partition:
    """A PartitionName line under construction."""

    sets: list[str] = field(default_factory=list)
    options: dict[str, Pair] = field(default_factory=dict)
    # All its NodeSets are being deleted.
    ending: bool = True


def sets(nodesets: Sequence[NodeSet]) -> list[Line]:
    """`NodeSet=set_cpu Feature=set_cpu` for each: a node with the feature belongs to the set."""
    known = dict.fromkeys(names.slurm_set(nodeset) for nodeset in oldest_first(nodesets))
    return [Line((("NodeSet", name), ("Feature", name))) for name in known]


def lines(nodesets: Sequence[NodeSet], users: Iterable[Line]) -> list[Line]:
    """The partitions that NodeSets name, beside those of the user.

    NodeSets with the same partition share its line, and the oldest one's options win. One partition is the default.
    """
    partitions: dict[str, _Partition] = {}
    for nodeset in oldest_first(nodesets):
        if nodeset.spec.partition.enabled:
            partition = partitions.setdefault(_name(nodeset), _Partition())
            if names.slurm_set(nodeset) not in partition.sets:
                partition.sets.append(names.slurm_set(nodeset))
            for pair in _options(nodeset):
                partition.options.setdefault(pair[0].lower(), pair)
            partition.ending = partition.ending and nodeset.metadata.deletion_timestamp is not None
    users = list(users)
    _check(users, nodesets)
    _choose_default(partitions, users)
    for partition in partitions.values():
        if partition.ending:
            # It takes no new jobs. It stays until no job waits in it: without it those jobs would be lost.
            partition.options["state"] = ("State", "DRAIN")
    return [
        Line((("PartitionName", name), ("Nodes", ",".join(one.sets)), *one.options.values()))
        for name, one in partitions.items()
    ]


def _name(nodeset: NodeSet) -> str:
    return nodeset.spec.partition.name or nodeset.metadata.name


def _options(nodeset: NodeSet) -> list[Pair]:
    """The last one counts if a key is given twice, as in Slurm."""
    where = f"NodeSet {nodeset.metadata.namespace}/{nodeset.metadata.name}: partition.options"
    found: dict[str, Pair] = {}
    for word in (nodeset.spec.partition.options or "").split():
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise ConfigRefused(f"{where} has {word[:60]!r}: write Key=Value, as in a PartitionName line")
        if key.lower() in _NOT_OPTIONS:
            raise ConfigRefused(f"{where} sets {key}, which Seltzer sets: remove it, and set partition.name instead")
        check_owned([(key, value)], where)
        found[key.lower()] = (key, value)
    return list(found.values())


def _check(users: Sequence[Line], nodesets: Sequence[NodeSet]) -> None:
    """Refuse lines of the user that conflict with a NodeSet's."""
    partitions = {_name(nodeset): nodeset for nodeset in nodesets if nodeset.spec.partition.enabled}
    pods = [re.compile(rf"{re.escape(nodeset.metadata.name)}-(-.*|[0-9]+)") for nodeset in nodesets]
    for line in users:
        kind, name = line.key.lower(), line.value
        if kind == "nodeset" and name.lower().startswith(_PREFIX):
            raise ConfigRefused(
                f"slurm.conf has NodeSet={name}, but Seltzer makes those: choose a name without {_PREFIX}"
            )
        # Wherever Slurm expects a node, the name of a set stands for all its nodes: deleting one node would delete all.
        if kind == "nodeset" and any(pod.fullmatch(name) for pod in pods):
            raise ConfigRefused(f"slurm.conf has NodeSet={name}, which is a node's name too: choose another name")
        if kind == "partitionname" and name in partitions:
            owner = partitions[name].metadata.name
            raise ConfigRefused(
                f"slurm.conf has PartitionName={name}, which NodeSet {owner} has too: remove the line and set "
                f"partition.options of the NodeSet, or set its partition.enabled to false"
            )


def _choose_default(partitions: dict[str, _Partition], users: Sequence[Line]) -> None:
    """The oldest partition is the default for jobs that name none, unless the user or a NodeSet sets another."""
    options = [pair for line in users if line.key.lower() == "partitionname" for pair in line.pairs]
    options += [pair for one in partitions.values() for pair in one.options.values()]
    if any(key.lower() == "default" and value.lower() == "yes" for key, value in options):
        return
    for one in partitions.values():
        if "default" not in one.options and not one.ending:
            one.options["default"] = ("Default", "YES")
            return
