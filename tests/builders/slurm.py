"""What Slurm knows: nodes, jobs, snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.builders.objects import NOW, nodeset

from seltzer.plan.nodeset.node_records import mark
from seltzer.slurm.models import Node, Number
from seltzer.slurm.snapshot import Job, Partition, Snapshot

CLOCK = 1_000_000_060
"""slurmctld's clock in a snapshot; ours is another."""


def node(
    name: str = "cpu-0", state: str = "IDLE", *, reason: str = "", since: int = int(NOW) - 60, **more: Any
) -> Node:
    """A record. `state` is as sinfo shows it, such as `MIXED DRAIN`; `comment` is by default its NodeSet's mark."""
    more.setdefault("comment", mark(nodeset(name=name.rpartition("-")[0])))
    more.setdefault("partitions", (name.rpartition("-")[0],))
    base = state.split()[0]
    more.setdefault("alloc_cpus", 1 if base in ("MIXED", "ALLOCATED") else 0)
    more.setdefault("reasoned", Number(set=True, number=since) if reason else None)
    return Node(name=name, state=(*state.split(), "DYNAMIC_NORM"), reason=reason, **more)


def job(id_: str = "7", state: str = "RUNNING", *on: str, end: int | None = CLOCK + 300, **more: Any) -> Job:
    """A job on these nodes."""
    number = more.pop("number", int("".join(each for each in id_ if each.isdigit())[:4]))
    fields = {"user": "ann", "name": "train", "reason": "", "partition": "cpu", "start": CLOCK - 60, **more}
    return Job(id=id_, number=number, state=state, nodes=on, end=end, **fields)


def snapshot(*told: Node | Job, partitions: Sequence[Partition] = ()) -> Snapshot:
    """A snapshot of these nodes and jobs."""
    return Snapshot(
        CLOCK,
        {each.name: each for each in told if isinstance(each, Node)},
        tuple(each for each in told if isinstance(each, Job)),
        {each.name: each for each in partitions},
    )
