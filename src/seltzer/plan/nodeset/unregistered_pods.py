"""Pods that run and that slurmctld has no record of: it forgot them, or somebody deleted their records.

A slurmd doesn't register twice, so only a new pod brings such a node back.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime

from seltzer.api.core import Pod
from seltzer.plan import pod_state
from seltzer.plan.actions import Action, DeletePods, PodRef
from seltzer.plan.nodeset import pod_conditions
from seltzer.plan.nodeset.observation import NodeSetObservation

# Every slurmd registers with a new slurmctld within a second or two.
FORGOTTEN_SECONDS = 8.0


def unregistered(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Pod]:
    """Pods whose slurmd runs and whom Slurm doesn't know."""
    if seen.slurm.nodes is None:
        return []
    return [pod for pod in pods if pod_state.ready(pod) and pod.metadata.name not in seen.slurm.nodes]


def steps(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Action]:
    """slurmctld was killed before it had saved these nodes' records, or somebody deleted those: start anew.

    Only pods that Slurm knew, or that were ready before slurmctld started: one that it didn't take for another reason
    isn't made again and again.
    """
    started = seen.controller_started
    if started is None or seen.age(_life(started)) < FORGOTTEN_SECONDS:
        return []
    # Its machine's clock may be ahead: then every new pod would be older. It was there when we first saw it.
    started = min(started, seen.now - seen.age(_life(started)))
    lost = [pod for pod in unregistered(pods, seen) if _is_older(pod, started) or _had_a_record(pod, seen)]
    goners = tuple(PodRef(pod.metadata.name, pod.metadata.uid) for pod in lost)
    return [DeletePods(goners, ask=True)] if goners else []


def aging(seen: NodeSetObservation) -> list[Hashable]:
    """This slurmctld, and the pods that tell that it has forgotten them."""
    things = [thing for pod in unregistered(seen.pods, seen) if (thing := _forgotten_since(pod))]
    return things if seen.controller_started is None else [*things, _life(seen.controller_started)]


def _life(started: float) -> Hashable:
    return ("slurmctld", started)


def _forgotten_since(pod: Pod) -> Hashable | None:
    told = pod_conditions.was_forgotten(pod)
    return ("forgotten", pod.metadata.uid, told.last_transition_time) if told else None


def _is_older(pod: Pod, started: float) -> bool:
    """Whether it was ready before slurmctld started. Its machine's clock may be behind: then it would be so in every
    life, but the API server knows that it hadn't been made yet."""
    made = pod.metadata.creation_timestamp
    return made is not None and max(_seconds(made), pod_state.ready_since(pod)) < started


def _had_a_record(pod: Pod, seen: NodeSetObservation) -> bool:
    """Whether Slurm knew it until a while ago."""
    return seen.age(_forgotten_since(pod)) >= FORGOTTEN_SECONDS


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
