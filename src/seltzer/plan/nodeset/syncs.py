"""Makes kubelets sync changed users and checks at once: they do so when their pod changes, else within a minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from seltzer.api.core import Pod
from seltzer.plan import pod_state
from seltzer.plan.actions import PatchPods, PodPatch


def added(updates: Sequence[PatchPods], pods: Sequence[Pod], digests: Mapping[str, str]) -> tuple[PatchPods, ...]:
    """The patches of these pods, with the digests (by annotation) where a pod has another one. An empty digest is
    unknown."""
    known = {key: digest for key, digest in digests.items() if digest}
    stale = {
        pod.metadata.name: (pod, late)
        for pod in pods
        if not pod_state.finished(pod)
        and (late := {key: value for key, value in known.items() if pod.metadata.annotations.get(key) != value})
    }
    if not stale:
        return tuple(updates)
    patches: list[PodPatch] = []
    for patch in (each for update in updates for each in update.patches):
        _, late = stale.pop(patch.name, (None, {}))
        patches.append(replace(patch, annotations={**patch.annotations, **late}) if late else patch)
    patches += [PodPatch(name, pod.metadata.uid, {}, late, ()) for name, (pod, late) in stale.items()]
    return (PatchPods(tuple(patches)),)
