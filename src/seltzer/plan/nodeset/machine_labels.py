"""What Slurm learns from the labels of machines: where nodes are, and features.

Both are written into the records of running nodes; their jobs go on. A record keeps both when slurmctld restarts.

A node's topology is `default:/:za/:za/b1/:za/b1/r1`: Slurm makes the switches by itself. Their names hold the whole
path, since a switch has one parent only, and end with a slash except for leaves, since a switch has either nodes or
switches: whatever changes, no name gets another meaning. That would be fatal to slurmctld. A node without a topology
takes no jobs while others have one, and one whose machine lacks a label is in a switch called `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from seltzer.api.core import Node as KubeNode
from seltzer.api.core import Pod
from seltzer.plan import pod_state
from seltzer.plan.actions import Action, SetFeatures, SetTopology
from seltzer.plan.conditions import Finding
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.slurm import hostlist
from seltzer.slurm.models import Node

TREE: Final = "default"
"""The only name that slurmctld also takes while it has no topology.yaml: nodes get theirs before it is rolled out."""
ROOT: Final = "/"
UNKNOWN: Final = "unknown"
OURS: Final = f"{TREE}:{ROOT}"
# A feature of this kind puts a node into the partition of a NodeSet.
_SET = "set_"


def steps(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Action]:
    """Correct records whose machines have other labels: one call per leaf, and one per set of features."""
    topologies: dict[str, list[str]] = {}
    features: dict[tuple[str, ...], list[str]] = {}
    for node, machine in _known(pods, seen):
        wanted = _topology(node, machine, seen)
        if wanted is not None and node.topology not in (None, wanted):
            topologies.setdefault(wanted, []).append(node.name)
        found = features_of(machine, seen)
        if seen.nodeset.spec.features_from_labels and set(found) != set(node.features):
            features.setdefault(found, []).append(node.name)
    return [
        *(SetTopology(tuple(sorted(names)), wanted) for wanted, names in sorted(topologies.items())),
        *(SetFeatures(tuple(sorted(names)), found) for found, names in sorted(features.items())),
    ]


def unplaced(seen: NodeSetObservation) -> frozenset[str]:
    """Nodes that have no place yet, so that slurmctld gives them no jobs."""
    if not seen.topology:
        return frozenset()
    return frozenset(name for name, node in (seen.slurm.nodes or {}).items() if node.topology == "")


def finding(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Finding]:
    """Whether the machines of the nodes have all labels of the topology."""
    if not seen.topology:
        return []
    lacking: dict[str, list[str]] = {}
    for pod in pods:
        machine = seen.machine(pod)
        if machine and machine.node:
            for label in _missing(machine.node, seen.topology):
                lacking.setdefault(label, []).append(machine.node.metadata.name)
    if not lacking:
        return [Finding("TopologyKnown", "True", "Labelled", "all Kubernetes nodes have the labels of spec.topology")]
    label, names = next(iter(sorted(lacking.items())))
    message = (
        f"{hostlist.fold(names)} lacks label {label}, so Slurm sees its nodes at a switch called {UNKNOWN}: "
        "label it, or change spec.topology.labels of the SlurmCluster"
    )
    return [Finding("TopologyKnown", "False", "LabelsMissing", message)]


def path(machine: KubeNode, labels: Sequence[str]) -> str:
    """A node's topology, for Slurm."""
    values = [machine.metadata.labels.get(label) or UNKNOWN for label in labels]
    switches = [f"{'/'.join(values[: depth + 1])}/" for depth in range(len(values) - 1)]
    return ":".join((TREE, ROOT, *switches, "/".join(values)))


def features_of(machine: KubeNode, seen: NodeSetObservation) -> tuple[str, ...]:
    """The features that a node should have: the NodeSet's own, and one for each listed label that its machine has.

    A label stands for its value; one that is true or empty for its name. One that is false is none.
    """
    spec, found = seen.nodeset.spec, []
    for label in spec.features_from_labels:
        value = machine.metadata.labels.get(label)
        if value is None or value.lower() == "false":
            continue
        feature = label.rpartition("/")[2] if value.lower() in ("", "true") else value
        if not feature.startswith(_SET):
            found.append(feature)
    name = seen.nodeset.metadata.name
    return tuple(dict.fromkeys((name, f"{_SET}{name}", *spec.features, *found)))


def _topology(node: Node, machine: KubeNode, seen: NodeSetObservation) -> str | None:
    """The topology that a node should have; None: the one that it has."""
    if seen.topology:
        return path(machine, seen.topology)
    ours = seen.topology is not None and (node.topology or "").startswith(OURS)
    return "" if ours else None


def _missing(machine: KubeNode, labels: Sequence[str]) -> list[str]:
    return [label for label in labels if not machine.metadata.labels.get(label)]


def _known(pods: Sequence[Pod], seen: NodeSetObservation) -> list[tuple[Node, KubeNode]]:
    """The records of ready pods, with their machines."""
    found = []
    for pod in pods:
        node, machine = (seen.slurm.nodes or {}).get(pod.metadata.name), seen.machine(pod)
        if node and machine and machine.node and pod_state.ready(pod):
            found.append((node, machine.node))
    return found
