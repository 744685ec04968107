"""Which pods go: the cheapest ones of a surplus, and as many outdated ones as an update may replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seltzer.api.core import Pod
from seltzer.api.labels import TEMPLATE
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.slurm_state import OURS
from seltzer.slurm.models import Node

# Which of the busy nodes go is decided by deadlines that were asked for at most so long ago.
DEADLINES_FRESH = 5.0
SCALE_IN = "scale-in"
UPDATE = "update"
UNSELECTED = "its Kubernetes node is not selected"


@dataclass(frozen=True)
class Candidates:
    """Pods of a NodeSet to choose from, and what is known of their nodes."""

    pods: Sequence[Pod]
    # Empty also if Slurm can't be asked: then no node is drained, and only pods that never started can go.
    nodes: Mapping[str, Node]
    # When the last job on a node reaches its limit; None where it has none.
    free_at: Mapping[str, float | None]

    def available(self, pod: Pod) -> bool:
        node = self.nodes.get(pod.metadata.name)
        return pod_state.ready(pod) and node is not None and slurm_state.is_available(node)


def ordinal(pod_name: str) -> int:
    """0 for a pod that is named after its machine."""
    number = pod_name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def template_of(pod: Pod) -> str:
    return pod.metadata.labels.get(TEMPLATE, "")


def surplus(pool: Candidates, count: int, template: str | None) -> list[Pod]:
    """The cheapest `count` pods to lose: not ready, then idle, then those whose jobs end first.

    Pods that were chosen before are chosen again: a decision stays for as long as it is needed.
    """
    if count <= 0:
        return []
    return sorted(pool.pods, key=lambda pod: _cost(pod, pool, template))[:count]


def undecided(chosen: Sequence[Pod], pool: Candidates, deadlines_age: float) -> list[Pod]:
    """Those of the chosen pods that take jobs and have some, while the deadlines of jobs aren't known.

    Once a node is drained the choice stays: which jobs end first has to be known before.
    """
    if deadlines_age <= DEADLINES_FRESH:
        return []
    nodes = ((pod, pool.nodes.get(pod.metadata.name)) for pod in chosen)
    return [pod for pod, node in nodes if node is not None and node.occupied and not node.drained]


def _cost(pod: Pod, pool: Candidates, template: str | None) -> tuple[int, float, bool, int]:
    name = pod.metadata.name
    node = pool.nodes.get(name)
    current = template is not None and template_of(pod) == template
    free_at = pool.free_at.get(name)
    return (_rank(pod, node), float("inf") if free_at is None else free_at, current, -ordinal(name))


def _rank(pod: Pod, node: Node | None) -> int:
    if _is_unused(pod, node):
        return 0
    if node is not None and node.drained and node.reason.startswith(f"{OURS}{SCALE_IN}"):
        return 1
    if node is None:
        return 2
    if node.occupied:
        return 7
    if slurm_state.held_by_others(node):
        return 6  # a person may be working on it
    if not pod_state.ready(pod):
        return 3
    return 4 if node.drained else 5


def outdated(pool: Candidates, template: str | None, budget: int, missing: int) -> list[Pod]:
    """The pods from an old template that may be replaced now.

    `missing` is how many pods are missing. At most `budget` pods are replaced at once, and an available one is taken
    only if at most `budget` pods are then unavailable. Pods that never started are replaced at once: it costs nothing,
    and a wrong image could not be corrected otherwise. Nodes that people drained are left alone.
    """
    if template is None:
        return []
    old = [pod for pod in pool.pods if template_of(pod) != template]
    fresh_unavailable = sum(not pool.available(pod) for pod in pool.pods if template_of(pod) == template)
    taken = [pod for pod in old if _is_unused(pod, pool.nodes.get(pod.metadata.name))]
    unused = {pod.metadata.name for pod in taken}
    candidates = [pod for pod in old if pod.metadata.name not in unused and not _held(pod, pool)]
    candidates.sort(key=lambda pod: (not _under_way(pod, pool), pool.available(pod), *_cost(pod, pool, template)))
    room = budget - missing - fresh_unavailable - len(taken)
    unavailable = missing + sum(not pool.available(pod) for pod in pool.pods)
    for pod in candidates:
        under_way = _under_way(pod, pool)
        if room <= 0 and not (under_way and len(taken) < budget):
            break
        if pool.available(pod):
            if unavailable >= budget:
                break
            unavailable += 1
        taken.append(pod)
        room -= 1
    return taken


def _is_unused(pod: Pod, node: Node | None) -> bool:
    """Whether it never started and Slurm doesn't disagree: its status may be late, and a job may run already."""
    return pod_state.never_started(pod) and (node is None or slurm_state.is_empty(node))


def _under_way(pod: Pod, pool: Candidates) -> bool:
    node = pool.nodes.get(pod.metadata.name)
    return node is not None and node.drained and node.reason.startswith(f"{OURS}{UPDATE}")


def _held(pod: Pod, pool: Candidates) -> bool:
    """Whether a person or a health check has drained it or set it down: it stays until they resume it."""
    node = pool.nodes.get(pod.metadata.name)
    return node is not None and slurm_state.held_by_others(node)


def held(pool: Candidates, template: str | None) -> list[str]:
    """The names of the outdated pods that an update skips."""
    return [pod.metadata.name for pod in pool.pods if template_of(pod) != template and _held(pod, pool)]


def max_unavailable(setting: int | str, replicas: int) -> int:
    """A number, or a percentage of replicas. At least one: an update could never begin otherwise."""
    count = replicas * int(setting.removesuffix("%")) // 100 if isinstance(setting, str) else setting
    return max(1, count)
