"""What a plan for a NodeSet looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.builders import objects
from tests.builders.objects import NOW, nodeset

from seltzer.api.core import Pod
from seltzer.api.nodeset import NodeSet
from seltzer.plan.actions import Action
from seltzer.plan.nodeset import aging
from seltzer.plan.nodeset.drain_causes import Machine
from seltzer.plan.nodeset.membership import Membership
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.slurm_presence import SlurmState
from seltzer.plan.stages import stages
from seltzer.slurm.models import Node

MEMBER = Membership(True, True, "Accepted", "its nodes belong to SlurmCluster ns/demo")


def part_of(actions: Sequence[Action], order: int, count: int) -> list[Action]:
    """Some of them, in some order that their stages allow."""
    turned = [*actions[order % 7 :], *actions[: order % 7]]
    done = (turned[::-1] if order // 7 % 2 else turned)[:count]
    return [action for stage in stages(done) for action in stage]


def machine(
    ready: str = "True",
    *taints: str,
    name: str = "worker",
    cordoned: bool = False,
    deleting: bool = False,
    calm: float = 1000.0,
    changes: int = 0,
    labels: Mapping[str, str] | None = None,
    **conditions: str,
) -> Machine:
    """A Kubernetes node as a plan sees it. By default it is healthy, and has been for long."""
    item = objects.machine(
        name, ready, taints=taints, cordoned=cordoned, deleting=deleting, labels=labels, **conditions
    )
    return Machine(item, calm, changes)


def slurm(*nodes: Node, now: float | None = NOW) -> SlurmState:
    return SlurmState({each.name: each for each in nodes}, int(now) if now is not None else None)


UNKNOWN = SlurmState(None)
GONE = SlurmState(None, gone=True)


def seen(
    item: NodeSet | None = None,
    *pods: Pod,
    slurm: SlurmState = UNKNOWN,
    membership: Membership = MEMBER,
    template: str | None = "new",
    refusal: str = "",
    closing: bool = False,
    named: frozenset[str] | None = frozenset(),
    queued: int | None = 0,
    ending_partition: str = "cpu",
    deadlines_age: float = 0.0,
    age: float = 1000.0,
    **more: Any,
) -> NodeSetObservation:
    """What a plan for a NodeSet looks at. No job waits, and all has been so for long, unless it is said."""
    observation = NodeSetObservation(
        nodeset=item or nodeset(),
        membership=membership,
        pods=pods,
        template=template,
        slurm=slurm,
        now=NOW,
        refusal=refusal,
        closing=closing,
        named=named,
        queued=queued,
        ending_partition=ending_partition,
        deadlines_age=deadlines_age,
    )
    return aged(replace(observation, **more), age)


def aged(observation: NodeSetObservation, age: float) -> NodeSetObservation:
    """What depends on time has been so for `age` seconds, by the operator's own clock."""
    return replace(observation, ages=dict.fromkeys(aging.things(observation), age))
