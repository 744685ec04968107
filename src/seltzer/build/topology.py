"""topology.yaml of a cluster whose topology is that of its machines' labels.

It never changes: it has an empty tree, and each node's record says where in it the node is (`plan.nodeset`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.plan.nodeset import machine_labels
from seltzer.slurm.models import Node

from .userconf import ConfigRefused

FILE: Final = "topology.yaml"
_FILES: Final = (FILE, "topology.conf")
_TEXT: Final = f"""---
# Written by Seltzer: spec.topology of the SlurmCluster. Nodes are added to it at run time.
- topology: {machine_labels.TREE}
  cluster_default: true
  tree:
    switches:
    - switch: "{machine_labels.ROOT}"
"""


def files(cluster: SlurmCluster) -> dict[str, str]:
    """The file, if the spec asks for a topology. Raises ConfigRefused if the user has one, too."""
    if cluster.spec.topology is None:
        return {}
    for name in _theirs(cluster.spec.config):
        raise ConfigRefused(f"config has {name}, and spec.topology makes one: remove one of the two")
    return {FILE: _TEXT}


def check(cluster: SlurmCluster, active: Mapping[str, str], nodes: Mapping[str, Node] | None) -> None:
    """Raise ConfigRefused for a topology of the user's while nodes may have the place that we gave them: slurmctld
    doesn't start with such a node. `active` are the files that are rolled out."""
    theirs = _theirs(cluster.spec.config)
    ours = active.get(FILE) == _TEXT
    if cluster.spec.topology is not None or not theirs or (_theirs(active) and not ours):
        return
    known = (nodes or {}).values()
    if (nodes is None and ours) or any((node.topology or "").startswith(machine_labels.OURS) for node in known):
        raise ConfigRefused(
            f"config has {theirs[0]}, and nodes may still have their place in the topology of spec.topology, which is "
            f"fatal to slurmctld: remove {theirs[0]}, and add it again when no node has one (scontrol show nodes)"
        )


def labels(cluster: SlurmCluster, active: Mapping[str, str] | None) -> tuple[str, ...] | None:
    """The labels that say where nodes are; none: nodes have no place; None: what they have stays.

    `active` are the files that are rolled out. Nodes get a place before, and lose it after the tree is.
    """
    found = _theirs(active or {})
    ours = (active or {}).get(FILE) == _TEXT
    wanted = cluster.spec.topology
    if found and not ours:
        return None
    if wanted is not None:
        return wanted.labels
    return None if ours else ()


def _theirs(config: Mapping[str, str]) -> list[str]:
    return [name for name in _FILES if name in config]
