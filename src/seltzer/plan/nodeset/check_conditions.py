"""Which checks fail on a node, on its pod: a condition for people, annotations for what repairs machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from seltzer.api.checks import Check
from seltzer.api.core import ObjectCondition, Pod
from seltzer.api.labels import CHECKS_PASSED, FAILED_CHECKS, REPLACE_MACHINE
from seltzer.plan import pod_state
from seltzer.plan.actions import CheckChange, PatchPods, PodPatch
from seltzer.plan.nodeset import checks
from seltzer.plan.nodeset.checks import Failure
from seltzer.slurm.models import Node

_LONGEST = 1024


def added(
    updates: Sequence[PatchPods], pods: Sequence[Pod], nodes: Mapping[str, Node], wanted: Sequence[Check], now: str
) -> tuple[PatchPods, ...]:
    """The patches of these pods, with the checks that a pod doesn't show yet. `now` is ours, and is written."""
    changed = {patch.name: patch for pod in pods if (patch := _patch(pod, nodes.get(pod.metadata.name), wanted, now))}
    if not changed:
        return tuple(updates)
    patches: list[PodPatch] = []
    for patch in (each for update in updates for each in update.patches):
        ours = changed.pop(patch.name, None)
        patches.append(_merged(patch, ours) if ours else patch)
    return (PatchPods((*patches, *changed.values())),)


def _merged(patch: PodPatch, ours: PodPatch) -> PodPatch:
    return replace(
        patch,
        annotations={**patch.annotations, **ours.annotations},
        conditions=(*patch.conditions, *ours.conditions),
        checks=ours.checks,
    )


def _patch(pod: Pod, node: Node | None, wanted: Sequence[Check], now: str) -> PodPatch | None:
    failures: tuple[Failure, ...] | None = ()
    if wanted:
        failures = checks.failures(node, wanted) if node else None
    elif FAILED_CHECKS not in pod.metadata.annotations:
        return None
    if failures is None or pod_state.finished(pod):
        return None  # unknown: what the pod says stays
    annotations = {
        FAILED_CHECKS: ",".join(each.check.name for each in failures) or None,
        REPLACE_MACHINE: next((each.words for each in failures if each.check.on_fail == "replace"), None),
    }
    different = {key: value for key, value in annotations.items() if pod.metadata.annotations.get(key) != value}
    if not different:
        return None
    message = "; ".join(each.words for each in failures)[:_LONGEST]
    condition = ObjectCondition(
        type=CHECKS_PASSED,
        status="False" if failures else "True",
        reason="CheckFailed" if failures else "AllPassed",
        message=message,
        last_transition_time=now,
    )
    return PodPatch(pod.metadata.name, pod.metadata.uid, {}, different, (condition,), _changes(pod, failures))


def _changes(pod: Pod, failures: Sequence[Failure]) -> tuple[CheckChange, ...]:
    before = set(filter(None, pod.metadata.annotations.get(FAILED_CHECKS, "").split(",")))
    machine = {each.check.name: pod.spec.node_name for each in failures if each.check.on_fail == "replace"}
    new = [
        CheckChange(each.check.name, False, each.output, machine.get(each.check.name, ""))
        for each in failures
        if each.check.name not in before
    ]
    over = sorted(before - {each.check.name for each in failures})
    return (*new, *(CheckChange(name, True) for name in over))
