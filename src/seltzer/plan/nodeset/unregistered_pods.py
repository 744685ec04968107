"""Running pods without a record in slurmctld: it lost the record, or somebody deleted it.

A slurmd registers only once: only a new pod brings such a node back.
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
    """Ready pods that Slurm doesn't know."""
    if seen.slurm.nodes is None:
        return []
    return [pod for pod in pods if pod_state.ready(pod) and pod.metadata.name not in seen.slurm.nodes]


def steps(pods: Sequence[Pod], seen: NodeSetObservation) -> list[Action]:
    """Replace pods whose record was lost: slurmctld was killed before it saved it, or somebody deleted it.

    Only pods that Slurm knew, or that were ready before slurmctld started. A pod that can't register for another reason
    isn't replaced again and again.
    """
    started = seen.controller_started
    if started is None or seen.age(_life(started)) < FORGOTTEN_SECONDS:
        return []
    # If the clock of its machine is ahead, every new pod would look older. It started before we first saw it.
    started = min(started, seen.now - seen.age(_life(started)))
    lost = [pod for pod in unregistered(pods, seen) if _is_older(pod, started) or _had_a_record(pod, seen)]
    pods_ = tuple(PodRef(pod.metadata.name, pod.metadata.uid) for pod in lost)
    return [DeletePods(pods_, ask=True)] if pods_ else []


def aging(seen: NodeSetObservation) -> list[Hashable]:
    """This run of slurmctld, and the pods whose conditions say that their record is gone."""
    things = [thing for pod in unregistered(seen.pods, seen) if (thing := _forgotten_since(pod))]
    return things if seen.controller_started is None else [*things, _life(seen.controller_started)]


def _life(started: float) -> Hashable:
    return ("slurmctld", started)


def _forgotten_since(pod: Pod) -> Hashable | None:
    found = pod_conditions.was_forgotten(pod)
    return ("forgotten", pod.metadata.uid, found.last_transition_time) if found else None


def _is_older(pod: Pod, started: float) -> bool:
    """Whether it was ready before slurmctld started. If the clock of its machine is behind it always looks older, but
    the API server knows when it was created."""
    made = pod.metadata.creation_timestamp
    return made is not None and max(_seconds(made), pod_state.ready_since(pod)) < started


def _had_a_record(pod: Pod, seen: NodeSetObservation) -> bool:
    """Whether Slurm had a record of it, and lost it a while ago."""
    return seen.age(_forgotten_since(pod)) >= FORGOTTEN_SECONDS


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
