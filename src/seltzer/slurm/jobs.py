"""The answers of slurmctld's guard about jobs: what squeue printed beside slurmctld."""

from __future__ import annotations

import msgspec

from seltzer.slurm import hostlist
from seltzer.slurm.errors import Unavailable
from seltzer.wire import squeue


class JobOnNodes(msgspec.Struct, frozen=True, gc=False):
    """One job, or one task of an array."""

    id: str
    """As Slurm writes it: 42, 42_7 for a task of an array, 42_[8-99] for its pending tasks, 42+1 for a component."""
    user: str
    state: str
    partition: str
    nodes: tuple[str, ...]
    seconds_left: int | None
    """Until its time limit; None where it has none, or hasn't started."""
    requeue: bool
    """Whether Slurm requeues it when its node fails."""
    reason: str


def parse(output: str) -> list[JobOnNodes]:
    """The jobs on some nodes. Raises Unavailable for any other text: half a list is no list."""
    try:
        return [_job(each) for each in squeue.parse_jobs(output)]
    except squeue.SqueueError as error:
        raise Unavailable(str(error)) from None


def parse_named(output: str) -> frozenset[str]:
    """The nodes that pending jobs ask for by name. Raises Unavailable for any other text."""
    return frozenset(name for each in squeue.parse_named(output) for name in hosts(each))


def hosts(text: str) -> tuple[str, ...]:
    """The nodes of a hostlist that squeue printed. Raises Unavailable if it is none."""
    try:
        return tuple(hostlist.expand(text))
    except hostlist.HostlistError as error:
        raise Unavailable(f"squeue printed nodes that make no sense: {error}") from None


def _job(fields: squeue.Fields) -> JobOnNodes:
    return JobOnNodes(
        id=fields["JobArrayID"],
        user=fields["UserName"],
        state=fields["State"],
        partition=fields["Partition"],
        nodes=hosts(fields["NodeList"]) if fields["NodeList"] else (),
        seconds_left=squeue.seconds(fields["TimeLeft"]),
        requeue=fields["Requeue"] == "1",
        reason=fields["Reason"],
    )
