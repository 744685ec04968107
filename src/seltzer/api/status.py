"""What is told about a SlurmCluster. A field that isn't there isn't known."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from .common import Conditions, NodeCounts, Report, Time


def _by(key: str) -> Meta:
    """A list whose items are known by this field."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})


class JobCounts(Report, frozen=True, kw_only=True):
    """How many jobs there are."""

    running: int = 0
    """Jobs that run."""

    pending: int = 0
    """Jobs that wait."""


class Standby(Report, frozen=True, kw_only=True):
    """A pod that stands by."""

    pod: str
    """Its name."""

    node: str = ""
    """The Kubernetes node that it is on."""


class ControllerStatus(Report, frozen=True, kw_only=True):
    """The controller, as its guard tells."""

    pod: str = ""
    """The pod that is in charge."""

    node: str = ""
    """The Kubernetes node that it is on."""

    phase: str = ""
    """What slurmctld is doing there: starting, running, stopping, crashed, blocked or held."""

    epoch: int = 0
    """How often the state has changed hands."""

    restarts: int = 0
    """How often slurmctld ended by itself in this pod."""

    failovers: int = 0
    """How often another pod took over."""

    standbys: Annotated[tuple[Standby, ...], Meta(max_length=16), _by("pod")] = ()
    """The pods that are ready to take over."""


class VolumeStatus(Report, frozen=True, kw_only=True):
    """The volume with slurmctld's state."""

    free: int = 0
    """Bytes that are left."""

    size: int = 0
    """Bytes in all."""

    low: bool = False
    """Whether so little is left that saves may soon fail."""

    files: int | UnsetType = UNSET
    """How many more files it takes, where that is what runs short."""


class Crash(Report, frozen=True, kw_only=True):
    """An end of slurmctld that nobody asked for."""

    time: Time
    """When."""

    how: str = ""
    """How it ended, such as by which signal."""

    lines: str = ""
    """The last that it said."""

    backtrace: str = ""
    """Where it was, the innermost frame first."""

    core: str = ""
    """Where its core is in the slurmctld container, if there is one."""


class RecoveredJobs(Report, frozen=True, kw_only=True):
    """Jobs that Slurm had acknowledged and not saved, and that had the same fate."""

    jobs: str
    """Their IDs, such as 12-40,51,60_[1-3]."""

    outcome: str = ""
    """What became of them: put-back (into the queue), held (in the queue, for a person to decide), kept (script and
    environment are on the state volume), lost (nothing of them is left), ran or cancelled (nothing to do)."""

    why: str = ""
    """Why, in a sentence: whether they had started, ended or been cancelled."""

    count: int = 0
    """How many they are."""

    users: str = ""
    """The IDs of the users whose they are, likewise, where that is known."""


Groups = Annotated[tuple[RecoveredJobs, ...], Meta(max_length=512), _by("jobs")]


class Recovery(Report, frozen=True, kw_only=True):
    """What was found again at one start of slurmctld."""

    time: Time
    """When."""

    epoch: int = 0
    """In which epoch."""

    groups: Groups = ()
    """The jobs, those first that a person has to look at."""

    more: int = 0
    """How many there were beside them; seltzer.recoveries on the state volume names them all."""


class Recovered(Report, frozen=True, kw_only=True):
    """What was found again at the last start that found anything."""

    time: Time
    """When."""

    epoch: int = 0
    """In which epoch."""

    groups: Groups = ()
    """The jobs, those first that a person has to look at."""

    more: int = 0
    """How many there were beside them; seltzer.recoveries on the state volume names them all."""

    earlier: Annotated[tuple[Recovery, ...], Meta(max_length=8), _by("time")] = ()
    """What was found before that, the oldest first."""

    @property
    def recoveries(self) -> tuple[Recovery, ...]:
        """All of it, the oldest first."""
        return (*self.earlier, Recovery(time=self.time, epoch=self.epoch, groups=self.groups, more=self.more))


class SlurmClusterStatus(Report, frozen=True, kw_only=True):
    """What the cluster is, as last seen."""

    observed_generation: int = 0
    """The metadata.generation that this status is about; older than the object's: not up to date."""

    conditions: Conditions = ()
    """What is true about the cluster. Ready says whether jobs can be submitted; beside it is one per component."""

    slurm_version: str | UnsetType = UNSET
    """The version of the slurmctld that is running."""

    nodes: NodeCounts = NodeCounts()

    jobs: JobCounts = JobCounts()

    last_failover_time: Time | UnsetType = UNSET
    """When another pod last took over as the controller."""

    controller: ControllerStatus | UnsetType = UNSET

    volume: VolumeStatus | UnsetType = UNSET

    crash: Crash | UnsetType = UNSET
    """The last time that slurmctld ended by itself."""

    recovered: Recovered | UnsetType = UNSET
    """Jobs that a crash made Slurm forget, and what became of them."""

    last_news_time: Time | UnsetType = UNSET
    """The time of the newest of what the guard has told as news. All up to that has been made Events."""
