"""Paths, timeouts and identity of the guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seltzer.wire import environment, guard_api

SHORTEST_LEASE, LONGEST_LEASE = 2, 300


@dataclass(frozen=True)
class Places:
    """Folders, programs and ports in the container."""

    config: Path = Path("/etc/seltzer/config")
    keys: Path = Path("/etc/seltzer/keys")
    state: Path = Path("/var/spool/slurmctld")
    link: Path = Path("/run/slurmctld-state")
    etc: Path = Path("/etc/slurm")
    cores: Path = Path("/run/cores")
    termination_log: Path = Path("/dev/termination-log")
    slurmctld: tuple[str, ...] = ("slurmctld",)
    squeue: str = "squeue"
    sinfo: str = "sinfo"
    sdiag: str = "sdiag"
    scontrol: str = "scontrol"
    scancel: str = "scancel"
    scrontab: str = "scrontab"
    slurmrestd: str = "slurmrestd"
    gdb: str = "gdb"
    port: int = 6817
    trial_port: int = 6917
    http_port: int = guard_api.PORT


@dataclass(frozen=True)
class Times:
    """All values are in seconds."""

    tick: float = 0.2  # how often the fence and the configuration are checked
    probe: float = 0.05  # how often slurmctld is asked whether it is ready
    api: float = 3.0  # deadline for one call to the API server
    lease: float = 3.0
    announce: float = 10.0  # how often the EndpointSlice is checked for our address
    blocked: float = 1.0  # how often a blocked guard checks whether the cause was fixed
    volume: float = 2.0  # how often the free space is checked
    names: float = 10.0  # how often the name servers are asked
    name_server: float = 1.0  # how long one may take to answer
    backoff: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
    steady: float = 60.0  # after this uptime the back-off starts over
    probation: float = 5.0  # a configuration is good once slurmctld has run with it for this long
    reconfigure: float = 60.0  # slurmctld is restarted if it hasn't begun to reconfigure by then
    grace: float = 50.0  # from SIGTERM to SIGKILL
    lost_grace: float = 5.0  # the same when another guard leads: anything saved now is lost anyway
    trial: float = 20.0
    squeue: float = 10.0
    partitions: float = 30.0  # for setting partition states in slurmctld, and for slurmctld to save them
    gdb: float = 30.0
    repair: float = 20.0  # for repairing jobs before anything is scheduled
    # After a crash: a job whose start was saved but never reached a node goes unnoticed until that node registers
    # later than BatchStartTimeout (10 s) after the start. Left alone, that takes a quarter of an hour.
    reregister_after: float = 20.0
    launch: float = 20.0  # a job whose start is longer ago has reached its node, or slurmctld has noticed
    reregister_retry: float = 5.0  # how often to check whether all nodes answer
    node_reply: float = 1.0  # the longest that slurmctld talks to a node that answers
    reregister_latest: float = 120.0
    # When requeued jobs may start after a start of slurmctld: after the re-registration, and after the 15 s for which a
    # slurmstepd waits before it reports the end of a job again.
    settle_after: float = 38.0
    settle: float = 30.0
    rotate: float = 5.0  # how often the size of the logs is checked


@dataclass(frozen=True)
class Settings:
    """The guard's identity, and the Kubernetes objects that belong to it."""

    namespace: str
    lease: str
    endpointslice: str
    identity: str
    address: str
    places: Places = field(default_factory=Places)
    times: Times = field(default_factory=Times)
    reserve: int = 64 << 20  # bytes of the state volume that are reserved for when it is full
    keep_jobs: bool = True
    """Whether jobs that were acknowledged but not saved are put back."""
    resolv_conf: Path | None = None
    """It names the name servers to watch."""


def from_environment(env: Mapping[str, str]) -> Settings:
    """Reads the pod's environment. Raises KeyError or ValueError naming the variable that is missing or wrong."""
    lease = _lease(env)
    return Settings(
        namespace=env[environment.NAMESPACE],
        lease=env[environment.LEASE],
        endpointslice=env[environment.ENDPOINTSLICE],
        identity=env[environment.IDENTITY],
        address=env[environment.ADDRESS],
        times=Times(
            # A renewal that is stuck on a dead connection is sent again while the Lease is still ours.
            api=min(3.0, lease / 3),
            lease=lease,
        ),
        keep_jobs=_yes(env, environment.KEEP_JOBS, True),
        resolv_conf=Path("/etc/resolv.conf"),
    )


def _lease(env: Mapping[str, str]) -> float:
    name = environment.LEASE_DURATION
    lease = _seconds(env, name, 3)
    if not SHORTEST_LEASE <= lease <= LONGEST_LEASE:
        raise ValueError(
            f"{name} is {lease:g}, but a Lease has to last from {SHORTEST_LEASE} to {LONGEST_LEASE} seconds: "
            "a shorter one is lost whenever the API server is slow"
        )
    return lease


def _yes(env: Mapping[str, str], name: str, default: bool) -> bool:
    said = env.get(name) or str(default).lower()
    if said not in ("true", "false"):
        raise ValueError(f"{name} has to be true or false")
    return said == "true"


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(env.get(name) or default)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise ValueError(f"{name} has to be a number of seconds, more than 0 and less than a day")
    return seconds
