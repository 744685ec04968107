"""The parts of Slurm's answers that we read. Other fields are skipped, so newer versions of Slurm may send more.

Some numbers come as `{"set": true, "infinite": false, "number": 7}`; properties return them as `int | None`, where None
means unset or infinite. Never send these objects back: they don't hold everything that Slurm sent.
"""

from __future__ import annotations

from typing import Any

import msgspec

BASE_STATES = frozenset({"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN"})


class Number(msgspec.Struct, frozen=True, gc=False):
    """A number as wrapped by the data parser."""

    set: bool = False
    infinite: bool = False
    number: int | float = 0


Wrapped = Number | int | None


def plain(value: Wrapped) -> int | None:
    """The number, or None if it is unset or infinite."""
    if isinstance(value, Number):
        return int(value.number) if value.set and not value.infinite else None
    return value


class Node(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "booted": "boot_time",
        "busy_until": "last_busy",
        "reasoned": "reason_changed_at",
        "started": "slurmd_start_time",
    },
):
    """One Slurm node. Two are equal if nothing that we look at differs (the load isn't included)."""

    name: str
    state: tuple[str, ...]
    address: str = ""
    hostname: str = ""
    reason: str = ""
    reason_set_by_user: str = ""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    gres: str = ""
    cpus: int = 0
    alloc_cpus: int = 0
    real_memory: int = 0
    reservation: str = ""
    comment: str = ""
    extra: str = ""
    # Where it is, as in `default:root:leaf`. None: this slurmrestd doesn't say.
    topology: str | None = None
    version: str = ""
    booted: Wrapped = None
    busy_until: Wrapped = None
    reasoned: Wrapped = None
    started: Wrapped = None

    @property
    def base(self) -> str:
        """The one state that isn't a flag: IDLE, MIXED, ALLOCATED, DOWN …; UNKNOWN if none of them is known to us."""
        return next((state for state in self.state if state in BASE_STATES), "UNKNOWN")

    @property
    def drained(self) -> bool:
        """No new job starts on it. Its current jobs may still run: see `occupied`."""
        return "DRAIN" in self.state

    @property
    def occupied(self) -> bool:
        """A job is on it, or is still being cleaned up."""
        return self.alloc_cpus > 0 or self.base in ("ALLOCATED", "MIXED") or "COMPLETING" in self.state

    @property
    def boot_time(self) -> int | None:
        """When its machine booted, according to slurmd."""
        return plain(self.booted)

    @property
    def slurmd_started(self) -> int | None:
        """When its slurmd started, by its machine's clock."""
        return plain(self.started)

    @property
    def reason_time(self) -> int | None:
        """When its reason was set, by slurmctld's clock."""
        return plain(self.reasoned)

    @property
    def last_busy(self) -> int | None:
        """When its last job ended."""
        return plain(self.busy_until)


class NodeList(msgspec.Struct, frozen=True):
    """All nodes of a cluster at one moment of slurmctld's clock."""

    nodes: tuple[Node, ...]
    update_time: int


class PartitionNodes(msgspec.Struct, frozen=True, gc=False):
    """The nodes of a partition, as a hostlist."""

    configured: str = ""
    total: int = 0


class PartitionState(msgspec.Struct, frozen=True, gc=False):
    """UP, DOWN, INACTIVE or DRAIN."""

    state: tuple[str, ...] = ()


class Partition(msgspec.Struct, frozen=True, gc=False):
    """One partition."""

    name: str
    nodes: PartitionNodes = PartitionNodes()
    partition: PartitionState = PartitionState()
    node_sets: str = ""

    @property
    def up(self) -> bool:
        """Jobs may be submitted to it and start in it."""
        return "UP" in self.partition.state


class Statistics(msgspec.Struct, frozen=True, gc=False, rename={"asked": "req_time", "counted_from": "req_time_start"}):
    """slurmctld's statistics about itself. The job counts are up to 30 s old: `metrics` has current ones."""

    jobs_submitted: int = 0
    jobs_started: int = 0
    jobs_completed: int = 0
    jobs_pending: int = 0
    jobs_running: int = 0
    server_thread_count: int = 0
    agent_queue_size: int = 0
    dbd_agent_queue_size: int = 0
    asked: Wrapped = None
    counted_from: Wrapped = None

    @property
    def now(self) -> int | None:
        """slurmctld's clock."""
        return plain(self.asked)

    @property
    def since(self) -> int | None:
        """Since when slurmctld counts. Changes with each start and reconfigure, and at midnight UTC.

        It is 0 for a moment after a start. Slurm returns its actual start time only from v0.0.45 on.
        """
        return plain(self.counted_from)


class Ping(msgspec.Struct, frozen=True, gc=False):
    """Whether one slurmctld answers, according to slurmrestd. `latency` is in microseconds."""

    hostname: str
    responding: bool = False
    primary: bool = False
    latency: int = 0
    status: str = ""


class Reservation(msgspec.Struct, frozen=True, gc=False, rename={"starts": "start_time", "ends": "end_time"}):
    """One reservation; `node_list` is a hostlist."""

    name: str
    node_list: str = ""
    node_count: int = 0
    partition: str = ""
    users: str = ""
    accounts: str = ""
    flags: tuple[str, ...] = ()
    starts: Wrapped = None
    ends: Wrapped = None

    @property
    def start_time(self) -> int | None:
        return plain(self.starts)

    @property
    def end_time(self) -> int | None:
        return plain(self.ends)


class Config(msgspec.Struct, frozen=True):
    """The configuration that slurmctld runs with, by the key names of slurm.conf."""

    settings: dict[str, Any]
    boot_time: int
    version: str
