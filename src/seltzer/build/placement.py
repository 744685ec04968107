"""On which machines slurmd's pods may be: what `spec.placement` adds to a pod, whatever the user's podTemplate says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from seltzer.api.labels import MACHINE, WHOLE_MACHINE
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import names
from .components import slurmd
from .merge import TemplateRefused
from .names import Manifest

MACHINES_OWN: Final = ("SELTZER_CPUS", "SELTZER_MEMORY")
"""The environment variables by which slurmd gets its machine's CPUs and memory."""
_HOST: Final = "kubernetes.io/hostname"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
# The pod has no other machine to go to. It stays while its machine is cordoned or not heard of, and may come back.
_STAYS: Final = (
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
)


def tolerated(spec: Manifest, nodeset: NodeSet) -> Manifest:
    """The spec with what pods of placement perNode tolerate, beside what the user says."""
    if not nodeset.per_node:
        return spec
    return {**spec, "tolerations": [*spec.get("tolerations", []), *(dict(each) for each in _STAYS)]}


def reports_machine(spec: Mapping[str, Any]) -> bool:
    """Whether slurmd reports all CPUs or all memory of its machine: its container has neither limit nor request."""
    container = next(each for each in spec["containers"] if each["name"] == slurmd.NAME)
    return any(variable["name"] in MACHINES_OWN for variable in container.get("env", []))


def placed(built: Manifest, nodeset: NodeSet, cluster: SlurmCluster) -> Manifest:
    """A pod that shares no machine with those with which it must not."""
    labels, terms = dict(built["metadata"]["labels"]), []
    if nodeset.spec.placement == "onePerNode":
        terms.append(_apart({"matchLabels": names.nodeset_selector(nodeset, cluster)}))
    if reports_machine(built["spec"]):
        labels[WHOLE_MACHINE] = "true"
        # Pods of all clusters: there is only one machine to report.
        terms.append({**_apart({"matchLabels": {WHOLE_MACHINE: "true"}}), "namespaceSelector": {}})
    metadata = {**built["metadata"], "labels": labels}
    return {**built, "metadata": metadata, "spec": _with_terms(built["spec"], terms) if terms else built["spec"]}


def pinned(metadata: Manifest, spec: Manifest, machine: str) -> tuple[Manifest, Manifest]:
    """Metadata and spec of a pod for this machine, as DaemonSets do it: the scheduler sees to its resources."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [machine]}]}
    affinity = spec.get("affinity", {})
    there = {**affinity.get("nodeAffinity", {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
    annotations = {**metadata.get("annotations", {}), MACHINE: machine}
    return {**metadata, "annotations": annotations}, {**spec, "affinity": {**affinity, "nodeAffinity": there}}


def _apart(selector: Manifest) -> Manifest:
    return {"topologyKey": _HOST, "labelSelector": selector}


def _with_terms(spec: Manifest, terms: Sequence[Manifest]) -> Manifest:
    affinity = spec.get("affinity", {})
    apart = affinity.get("podAntiAffinity", {})
    theirs = apart.get(_REQUIRED, [])
    if not isinstance(theirs, list):
        raise TemplateRefused(
            f"podTemplate.spec.affinity.podAntiAffinity.{_REQUIRED}: isn't a list; see 'kubectl explain pod.spec'"
        )
    return {**spec, "affinity": {**affinity, "podAntiAffinity": {**apart, _REQUIRED: [*theirs, *terms]}}}
