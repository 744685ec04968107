"""What a NodeSet says about the health checks of its nodes: a condition, and Events when checks fail and pass."""

from __future__ import annotations

from collections.abc import Sequence

from seltzer.plan.actions import CheckChange, PlannedEvent, PodPatch
from seltzer.plan.conditions import Finding
from seltzer.plan.nodeset import checks, node_records
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.slurm import hostlist

_TYPE = "ChecksPassed"
_MOST_CHECKS = 10


def finding(seen: NodeSetObservation) -> list[Finding]:
    """Whether a check fails on any node; nothing without checks."""
    wanted = seen.nodeset.spec.checks
    if not wanted:
        return []
    if seen.slurm.nodes is None:
        return [Finding(_TYPE, "Unknown", "SlurmUnreachable", "Slurm can't be asked, which knows what fails")]
    failing: dict[str, list[str]] = {}
    outputs: dict[str, str] = {}
    for node in node_records.of(seen):
        for failure in checks.failures(node, wanted) or ():
            failing.setdefault(failure.check.name, []).append(node.name)
            outputs.setdefault(failure.check.name, failure.output)
    if not failing:
        return [Finding(_TYPE, "True", "AllPassed", "no check fails on any node")]
    parts = [f"{name} fails on {hostlist.fold(nodes)} ({outputs[name]})" for name, nodes in failing.items()]
    return [Finding(_TYPE, "False", "CheckFailed", "; ".join(parts[:_MOST_CHECKS]))]


def events(patches: Sequence[PodPatch]) -> list[PlannedEvent]:
    """One for each check that failed or passed on any number of nodes, and one for each machine to replace."""
    groups: dict[tuple[str, bool], list[tuple[str, CheckChange]]] = {}
    for patch in patches:
        for change in patch.checks:
            groups.setdefault((change.check, change.passed), []).append((patch.name, change))
    found = []
    for (check, passed), group in groups.items():
        where = hostlist.fold([name for name, _ in group])
        if passed:
            found.append(PlannedEvent("Normal", "CheckPassed", f"check {check} passes again on {where}"))
        else:
            found.append(
                PlannedEvent("Warning", "CheckFailed", f"check {check} fails on {where}: {group[0][1].output}")
            )
        machines = sorted({change.machine for _, change in group if change.machine})
        for machine in machines:
            nodes = hostlist.fold([name for name, change in group if change.machine == machine])
            words = f"check {check} asks for another Kubernetes node than {machine}, where {nodes} is"
            found.append(PlannedEvent("Warning", "ReplaceMachine", words))
    return found
