"""Makes kubelets sync changed users at once: a kubelet does so when the pod changes, and otherwise within a minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seltzer.api.core import Pod
from seltzer.api.labels import USERS
from seltzer.plan import pod_state
from seltzer.plan.actions import PatchPods, PodPatch


def added(updates: Sequence[PatchPods], pods: Sequence[Pod], users: str) -> tuple[PatchPods, ...]:
    """The patches of these pods, with the digest of the users where a pod has another one."""
    stale = {
        pod.metadata.name: pod
        for pod in pods
        if users and pod.metadata.annotations.get(USERS) != users and not pod_state.finished(pod)
    }
    if not stale:
        return tuple(updates)
    patches: list[PodPatch] = []
    for patch in (each for update in updates for each in update.patches):
        late = stale.pop(patch.name, None)
        patches.append(replace(patch, annotations={**patch.annotations, USERS: users}) if late else patch)
    patches += [PodPatch(name, pod.metadata.uid, {}, {USERS: users}, ()) for name, pod in stale.items()]
    return (PatchPods(tuple(patches)),)
