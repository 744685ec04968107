"""Drains and resumes the nodes of pods that stay, as their pods and machines change."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from seltzer.api.core import Pod
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import Action, DownNodes, DrainNodes, MarkNodes, ResumeNodes, SetAddress
from seltzer.plan.nodeset import checks, drain_causes, node_records, resume_reason
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.wakeup import Wakeup
from seltzer.slurm.models import Node


@dataclass(frozen=True)
class DrainResumeSteps:
    """What to do about nodes whose pods stay."""

    actions: tuple[Action, ...]
    # Why there is more to come: a drain of ours is undone, or gets another reason, after a while.
    wakeups: tuple[Wakeup, ...]


def steps(staying: Sequence[Pod], seen: NodeSetObservation) -> DrainResumeSteps:
    """Drain nodes for what is wrong with them, resume them when it is over, and have slurmctld save all of them."""
    known = _known(staying, seen)
    down: dict[str, list[str]] = {}
    drain: dict[str, list[str]] = {}
    resume: dict[str, str] = {}
    wanted = seen.nodeset.spec.checks
    waits: set[str] = set()
    for pod, node in known:
        over = drain_causes.ended(pod, node)
        cause = drain_causes.of(pod, seen.machine(pod), seen.tolerations, seen.age(drain_causes.unready(pod, node)))
        cause = cause or checks.cause(node, wanted)
        if over:
            if node.base != "DOWN" and slurm_state.may_go_down(node):
                down.setdefault(slurm_state.kept_reason(node, over), []).append(node.name)
        elif cause:
            if slurm_state.down_by_others(node) or (slurm_state.down_by_us(node) and drain_causes.is_of_pod(cause)):
                continue  # it takes no jobs, and its reason says why
            if not node.drained or (slurm_state.drained_by_us(node) and not drain_causes.is_cause(node.reason)):
                drain.setdefault(cause, []).append(node.name)
            elif slurm_state.drained_by_us(node) and not drain_causes.tells(node.reason, cause):
                # The reason has to say what is wrong now: a resume waits for as long as that needs.
                if drain_causes.is_over(node, seen.machine(pod)):
                    drain.setdefault(cause, []).append(node.name)
                else:
                    waits.add("a drain gets another reason when its Kubernetes node is calm")
        elif (slurm_state.drained_by_us(node) or slurm_state.down_by_us(node)) and checks.is_over(node, wanted):
            if _is_over(pod, node, seen):
                resume[node.name] = resume_reason.why(pod, node)
            elif pod_state.ready(pod):  # readiness arrives as an event: no timer needed
                waits.add("a node is resumed when its Kubernetes node is calm")
        elif pod_state.ready(pod) and _is_back(node, seen):
            resume[node.name] = resume_reason.why(pod, node)
        if not over and not cause and drain_causes.turns_unready(pod):
            waits.add("a pod may stay unready, and is then drained")
    actions: list[Action] = [DownNodes(tuple(sorted(names)), why) for why, names in sorted(down.items())]
    actions += [DrainNodes(tuple(sorted(names)), why) for why, names in sorted(drain.items())]
    if resume:
        extras = {node.name: node.extra for _, node in known if node.name in resume}
        actions.append(ResumeNodes(tuple(sorted(resume)), resume, extras))
    actions += _saved([(pod, node) for pod, node in known if pod_state.ready(pod)], seen)
    return DrainResumeSteps(tuple(actions), tuple(map(Wakeup, sorted(waits))))


def aging(seen: NodeSetObservation) -> list[Hashable]:
    """Pods that fail their check if they stay unready."""
    unready = [pod for pod in seen.pods if not pod_state.deleting(pod) and drain_causes.turns_unready(pod)]
    return [drain_causes.unready(pod, node) for pod, node in _known(unready, seen)]


def _known(pods: Sequence[Pod], seen: NodeSetObservation) -> list[tuple[Pod, Node]]:
    return [(pod, node) for pod in pods if (node := (seen.slurm.nodes or {}).get(pod.metadata.name))]


def _saved(ready: Sequence[tuple[Pod, Node]], seen: NodeSetObservation) -> list[Action]:
    """Mark new records, which makes slurmctld save them, and correct addresses."""
    comments: dict[str, list[str]] = {}
    for _, node in ready:
        comment = node_records.comment(node, seen.nodeset)
        if node_records.needs_comment(node, comment):
            comments.setdefault(comment, []).append(node.name)
    actions: list[Action] = [MarkNodes(tuple(sorted(names)), comment) for comment, names in sorted(comments.items())]
    for pod, node in ready:
        if pod.status.pod_ip and _is_elsewhere(node, pod.status.pod_ip):
            actions.append(SetAddress((node.name,), pod.status.pod_ip))
    return actions


def _is_over(pod: Pod, node: Node, seen: NodeSetObservation) -> bool:
    """Its pod must be ready, too: the record may be of an earlier pod, at an address that no longer exists."""
    return drain_causes.is_over(node, seen.machine(pod)) and pod_state.ready(pod)


def _is_back(node: Node, seen: NodeSetObservation) -> bool:
    """Whether slurmctld set it down in an outage, and its slurmd answers again."""
    return slurm_state.down_by_outage(node) and seen.answers.get(node.name) is True


def _is_elsewhere(node: Node, address: str) -> bool:
    """Whether slurmctld has the address of an earlier pod. An address that is the node's name is no address."""
    return node.address not in ("", address, node.name, node.hostname)
