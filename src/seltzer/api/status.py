"""The status of a SlurmCluster. A missing field means unknown."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from .common import Conditions, NodeCounts, Report, Time
from .users import UsersStatus


def _by(key: str) -> Meta:
    """A list whose items are identified by this field."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})


class JobCounts(Report, frozen=True, kw_only=True):
    """The number of jobs."""

    running: int = 0
    """Running jobs."""

    pending: int = 0
    """Pending jobs."""


class Standby(Report, frozen=True, kw_only=True):
    """A standby pod."""

    pod: str
    """Its name."""

    node: str = ""
    """The Kubernetes node that it runs on."""


class ControllerStatus(Report, frozen=True, kw_only=True):
    """The state of the controller, as reported by its guard."""

    pod: str = ""
    """The active pod."""

    node: str = ""
    """The Kubernetes node that it runs on."""

    phase: str = ""
    """The phase of slurmctld: starting, running, stopping, crashed, blocked or held."""

    epoch: int = 0
    """How often the state has been taken over, by another pod or a restarted one."""

    restarts: int = 0
    """How often slurmctld crashed in this pod."""

    failovers: int = 0
    """How often another pod took over."""

    standbys: Annotated[tuple[Standby, ...], Meta(max_length=16), _by("pod")] = ()
    """The pods that are ready to take over."""


class VolumeStatus(Report, frozen=True, kw_only=True):
    """The volume with slurmctld's state."""

    free: int = 0
    """Free bytes."""

    size: int = 0
    """Total bytes."""

    low: bool = False
    """Whether there is so little space that saves may soon fail."""

    files: int | UnsetType = UNSET
    """How many more files fit, if files are what runs out."""


class Crash(Report, frozen=True, kw_only=True):
    """An unexpected end of slurmctld."""

    time: Time
    """When it happened."""

    how: str = ""
    """How it ended, such as the signal."""

    lines: str = ""
    """Its last lines of output."""

    backtrace: str = ""
    """The backtrace, innermost frame first."""

    core: str = ""
    """The path of the core in the slurmctld container, if there is one."""


class RecoveredJobs(Report, frozen=True, kw_only=True):
    """Jobs that Slurm acknowledged but did not save, with the same outcome."""

    jobs: str
    """Their IDs, such as 12-40,51,60_[1-3]."""

    outcome: str = ""
    """What became of them: put-back (into the queue), held (in the queue, for a person to decide), kept (script and
    environment are on the state volume), lost (nothing is left of them), ran or cancelled (nothing to do)."""

    why: str = ""
    """The reason, in a sentence: whether they had started, ended or been cancelled."""

    count: int = 0
    """How many jobs there are."""

    users: str = ""
    """The IDs of their users in the same form, if known."""


Groups = Annotated[tuple[RecoveredJobs, ...], Meta(max_length=512), _by("jobs")]


class Recovery(Report, frozen=True, kw_only=True):
    """The jobs recovered at one start of slurmctld."""

    time: Time
    """When it happened."""

    epoch: int = 0
    """The epoch in which it happened."""

    groups: Groups = ()
    """The jobs. Those that need a person come first."""

    more: int = 0
    """How many more jobs there are; seltzer.recoveries on the state volume names all of them."""


class Recovered(Report, frozen=True, kw_only=True):
    """The jobs recovered at the last start that recovered any."""

    time: Time
    """When it happened."""

    epoch: int = 0
    """The epoch in which it happened."""

    groups: Groups = ()
    """The jobs. Those that need a person come first."""

    more: int = 0
    """How many more jobs there are; seltzer.recoveries on the state volume names all of them."""

    earlier: Annotated[tuple[Recovery, ...], Meta(max_length=8), _by("time")] = ()
    """Earlier recoveries, the oldest first."""

    @property
    def recoveries(self) -> tuple[Recovery, ...]:
        """All recoveries, the oldest first."""
        return (*self.earlier, Recovery(time=self.time, epoch=self.epoch, groups=self.groups, more=self.more))


class SlurmClusterStatus(Report, frozen=True, kw_only=True):
    """The observed state of the cluster."""

    observed_generation: int = 0
    """The metadata.generation that this status is based on. If the object's is newer, the status is outdated."""

    conditions: Conditions = ()
    """The conditions of the cluster. Ready says whether jobs can be submitted; there is one more per component."""

    slurm_version: str | UnsetType = UNSET
    """The version of the running slurmctld."""

    nodes: NodeCounts = NodeCounts()

    jobs: JobCounts = JobCounts()

    users: UsersStatus = UsersStatus()

    last_failover_time: Time | UnsetType = UNSET
    """When another pod last took over as the controller."""

    controller: ControllerStatus | UnsetType = UNSET

    volume: VolumeStatus | UnsetType = UNSET

    crash: Crash | UnsetType = UNSET
    """The last crash of slurmctld."""

    recovered: Recovered | UnsetType = UNSET
    """Jobs that Slurm forgot in a crash, and what became of them."""

    last_news_time: Time | UnsetType = UNSET
    """The time of the guard's newest event. All events up to then have been recorded as Kubernetes Events."""
