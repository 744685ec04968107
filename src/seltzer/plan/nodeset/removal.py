"""How a pod goes without taking a job with it: drain its node, wait until no job is on it, only then delete.

Everything here is about pods that have to go (they leave); who has to go is decided elsewhere. Those that somebody
else deletes can only be drained.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from seltzer.api.common import seconds
from seltzer.api.core import Pod
from seltzer.api.nodeset import Drain
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import Action, DeletePods, DownNodes, DrainNodes, KillJobs, PodRef
from seltzer.plan.nodeset.drain_causes import is_cause
from seltzer.plan.slurm_presence import SlurmState
from seltzer.plan.slurm_state import OURS
from seltzer.slurm.models import Node

# A slurmd that runs registers within a second. One that hasn't for so long isn't about to: no job can come to it.
UNREGISTERED_SECONDS = 15.0
# Kubernetes takes up to 50 s to see that a kubelet isn't there any more. What it told long before that is true.
UNTOLD_SECONDS = 120.0


@dataclass(frozen=True)
class RemovalSteps:
    """What to do about those that leave, and whom that waits for."""

    actions: tuple[Action, ...] = ()
    # Nodes whose jobs are waited for, and of those the ones over their time.
    busy: tuple[str, ...] = ()
    overdue: tuple[str, ...] = ()
    # Nothing can be done about these, because Slurm can't be asked.
    unknown: tuple[str, ...] = ()


def steps(
    leaving: Sequence[Pod],
    slurm: SlurmState,
    drain: Drain,
    reason: str,
    now: float,
    *,
    consent: bool,
    unheard: Collection[str] = frozenset(),
    seen_for: Mapping[str, float] | None = None,
) -> RemovalSteps:
    """The next step for each pod that leaves.

    `reason` is what Slurm is told. `consent` is the user's word that jobs may be killed although Slurm can't be asked.
    `unheard` are the pods whose kubelets aren't known to be there, so that nobody tells how they are. `seen_for` tells
    for how many seconds we have seen those that Slurm doesn't know as they are: a kubelet's clock may be behind.
    """
    sorting = _Sorting(slurm, drain, now, consent, unheard, seen_for or {})
    for pod in sorted(leaving, key=lambda pod: pod.metadata.name):
        sorting.sort(pod)
    actions: list[Action] = []
    if sorting.free:
        actions.append(DeletePods(tuple(sorting.free), ask=False))
    if sorting.emptied:
        actions.append(DeletePods(tuple(sorting.emptied), ask=True))
    ours = f"{OURS}{reason}"
    for why in sorted({why or ours for why in sorting.open.values()}):
        actions.append(DrainNodes(tuple(name for name, each in sorting.open.items() if (each or ours) == why), why))
    up = [name for name in sorting.overdue if (slurm.nodes or {})[name].base != "DOWN"]
    if up and drain.on_timeout == "requeue":
        actions.append(DownNodes(tuple(up), f"{OURS}{reason}"))
    if sorting.overdue and drain.on_timeout == "kill":
        actions.append(KillJobs(tuple(sorting.overdue)))
    return RemovalSteps(tuple(actions), tuple(sorting.busy), tuple(sorting.overdue), tuple(sorting.unknown))


def unasked(pods: Sequence[Pod], slurm: SlurmState) -> list[Action]:
    """Pods that somebody deletes without asking: no new job may come for as long as their grace lasts."""
    nodes = slurm.nodes or {}
    names = tuple(
        sorted(
            pod.metadata.name
            for pod in pods
            if pod_state.deleting(pod) and not pod_state.finished(pod)
            if (node := nodes.get(pod.metadata.name)) and not node.drained and node.base != "DOWN"
        )
    )
    return [DrainNodes(names, f"{OURS}its pod is being deleted")] if names else []


def aging(pods: Sequence[Pod], slurm: SlurmState) -> list[Hashable]:
    """Pods that Slurm doesn't know, each as it is."""
    return [pod_state.settled(pod) for pod in pods if pod.metadata.name not in (slurm.nodes or {})]


class _Sorting:
    """Sorts pods by what can be done about them."""

    def __init__(
        self,
        slurm: SlurmState,
        drain: Drain,
        now: float,
        consent: bool,
        unheard: Collection[str],
        seen_for: Mapping[str, float],
    ) -> None:
        self._slurm, self._drain, self._now, self._consent = slurm, drain, now, consent
        self._unheard, self._seen_for = unheard, seen_for
        self.free: list[PodRef] = []  # no job can be on them, whatever Slurm says
        self.emptied: list[PodRef] = []  # Slurm says that no job is on them
        self.open: dict[str, str] = {}  # jobs may still come; with the reason that somebody gave for setting it down
        self.busy: list[str] = []
        self.overdue: list[str] = []
        self.unknown: list[str] = []

    def sort(self, pod: Pod) -> None:
        name, uid = pod.metadata.name, pod.metadata.uid
        if pod_state.deleting(pod):
            return
        if pod_state.finished(pod) or self._slurm.gone:
            self.free.append(PodRef(name, uid))
        elif self._slurm.nodes is None:
            if self._consent:
                self.free.append(PodRef(name, uid))
            elif pod_state.never_started(pod) and self._is_certain(pod):
                self.free.append(PodRef(name, uid, pod.metadata.resource_version))
            else:
                self.unknown.append(name)
        else:
            self._sort_known(pod, self._slurm.nodes.get(name))

    def _is_certain(self, pod: Pod) -> bool:
        """Whether its status is true: without a Kubernetes node it can't run, and a kubelet may be late to tell, or cut
        off right after it started it."""
        if not pod.spec.node_name:
            return True
        return pod.metadata.name not in self._unheard and self._settled_for(pod) >= UNTOLD_SECONDS

    def _settled_for(self, pod: Pod) -> float:
        """By its kubelet's clock and by ours, whichever is less."""
        return min(pod_state.settled_for(pod, self._now), self._seen_for.get(pod.metadata.name, 0.0))

    def _sort_known(self, pod: Pod, node: Node | None) -> None:
        name, uid = pod.metadata.name, pod.metadata.uid
        if node is None and pod_state.never_started(pod):
            # A kubelet may be late to tell that it has: its node is asked for once more.
            self.emptied.append(PodRef(name, uid, pod.metadata.resource_version))
        elif node is None:
            # It may be about to register, and then jobs come.
            if self._settled_for(pod) >= UNREGISTERED_SECONDS:
                self.emptied.append(PodRef(name, uid))
            else:
                self.unknown.append(name)
        elif not node.drained or (slurm_state.drained_by_us(node) and is_cause(node.reason)):
            # Also if it is drained for another reason of ours: its time begins now, and who looks sees why it goes.
            self.open[name] = node.reason if slurm_state.down_by_others(node) else ""
        elif not slurm_state.is_empty(node):
            self.busy.append(name)
            if self._is_overdue(node):
                self.overdue.append(name)
        else:
            self.emptied.append(PodRef(name, uid))

    def _is_overdue(self, node: Node) -> bool:
        """Its jobs took longer than the user allowed, counted by slurmctld's clock from when we drained it.

        Who else drained it has decided nothing about when its jobs end: those are waited for.
        """
        if not self._drain.timeout or self._slurm.now is None or not slurm_state.drained_by_us(node):
            return False
        since = node.reason_time
        return since is not None and self._slurm.now - since >= seconds(self._drain.timeout)
