"""How a pod is removed without losing a job: drain its node, wait until no job is on it, then delete the pod.

`pod_selection` decides which pods leave. A pod that somebody else deletes can only be drained.
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

# A slurmd registers within a second. One that hasn't for so long won't, and gets no job.
UNREGISTERED_SECONDS = 15.0
# Kubernetes takes up to 50 s to notice a dead kubelet. A status that is much older than that is true.
UNTOLD_SECONDS = 120.0


@dataclass(frozen=True)
class RemovalSteps:
    """What to do about pods that leave, and what that waits for."""

    actions: tuple[Action, ...] = ()
    # Nodes whose jobs still run, and those among them whose drain timeout is over.
    busy: tuple[str, ...] = ()
    overdue: tuple[str, ...] = ()
    # Nothing can be done about these yet: their state isn't known.
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

    `reason` is the reason of the drain. `consent` is the user's permission to kill jobs although Slurm can't be asked.
    `unheard` are the pods whose kubelets aren't known to be alive, so that their status may be old. `seen_for` is for
    how many seconds we have seen the status of pods that Slurm doesn't know: a kubelet's clock may be behind.
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
    """Drain the nodes of pods that somebody else deletes: they get no new job during their grace period."""
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
    """The status of each pod that Slurm doesn't know."""
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
        self.open: dict[str, str] = {}  # jobs may still come; with the reason of whoever else set the node down
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
        """Whether its status is certainly true. Without a Kubernetes node it can't run; on one, the kubelet may report
        late, or be cut off right after it started the pod."""
        if not pod.spec.node_name:
            return True
        return pod.metadata.name not in self._unheard and self._settled_for(pod) >= UNTOLD_SECONDS

    def _settled_for(self, pod: Pod) -> float:
        """By its kubelet's clock and by ours, whichever is less."""
        return min(pod_state.settled_for(pod, self._now), self._seen_for.get(pod.metadata.name, 0.0))

    def _sort_known(self, pod: Pod, node: Node | None) -> None:
        name, uid = pod.metadata.name, pod.metadata.uid
        if node is None and pod_state.never_started(pod):
            # The kubelet may report the start late: Slurm is asked for its node again.
            self.emptied.append(PodRef(name, uid, pod.metadata.resource_version))
        elif node is None:
            # It may be about to register and get jobs.
            if self._settled_for(pod) >= UNREGISTERED_SECONDS:
                self.emptied.append(PodRef(name, uid))
            else:
                self.unknown.append(name)
        elif not node.drained or (slurm_state.drained_by_us(node) and is_cause(node.reason)):
            # Also if it is drained for another reason of ours: its timeout begins now, and the reason says why it goes.
            self.open[name] = node.reason if slurm_state.down_by_others(node) else ""
        elif not slurm_state.is_empty(node):
            self.busy.append(name)
            if self._is_overdue(node):
                self.overdue.append(name)
        else:
            self.emptied.append(PodRef(name, uid))

    def _is_overdue(self, node: Node) -> bool:
        """Whether its drain timeout is over, by slurmctld's clock, counted from our drain.

        A drain by somebody else has no timeout: its jobs are waited for.
        """
        if not self._drain.timeout or self._slurm.now is None or not slurm_state.drained_by_us(node):
            return False
        since = node.reason_time
        return since is not None and self._slurm.now - since >= seconds(self._drain.timeout)
