"""The configuration of a cluster: ours, the user's on top, and the NodeSets'."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources as files

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.slurm import conf
from seltzer.slurm.conf import Conf, Line, Pair

from . import journal, names, partitions, topology, userconf
from .components import slurmctld, slurmd
from .userconf import MAIN, ConfigRefused

__all__ = ["RESTART_KEYS", "ConfigRefused", "Rendered", "identity", "render", "restart_keys"]

DIGEST = "seltzer.digest"
RESTART = "seltzer.restart"
_MOST_BYTES = 900_000
_COMMENT = "Written by Seltzer: what spec.config of the SlurmCluster says is in here too. Changes are overwritten."
# An unprivileged container can't make cgroups.
_CGROUP = {"cgroup.conf": "CgroupPlugin=disabled\n"}

# Daemons accept no more than 150 connections by default: a job that holds more, idle, keeps everybody else waiting.
_CONNECTIONS = "conmgr_max_connections=16384"

# Lists of flags. The user's flags are added to ours.
_JOINED = frozenset({"debugflags", "reconfigflags", "slurmctldparameters", "slurmdparameters"})

# Slurm runs all of them, ours first.
_REPEATED = frozenset({"prolog"})
_HOME_PROLOG = "seltzer-home"

# On a reconfigure slurmctld executes itself again and reads everything (tried with MaxNodeCount, GresTypes,
# SelectTypeParameters, SchedulerType …), but it keeps its listening sockets and its authentication.
RESTART_KEYS: tuple[str, ...] = (
    "AuthAltParameters",
    "AuthAltTypes",
    "AuthInfo",
    "AuthType",
    "ClusterName",
    "CommunicationParameters",
    "CredType",
    "SlurmUser",
    "SlurmctldHost",
    "SlurmctldPort",
    "TLSType",
)
"""Keys of slurm.conf whose change needs a restart of slurmctld. For all others a reconfigure is enough."""


@dataclass(frozen=True)
class Rendered:
    """The configuration that is mounted into slurmctld's pod."""

    files: Mapping[str, str]
    digest: str
    """The sha256 of all files. It identifies the configuration."""


def identity(cluster: SlurmCluster) -> list[Pair]:
    """How Slurm's daemons find and trust each other. Only Seltzer sets these keys, and they never change."""
    address = names.controller_address(cluster)
    return [
        ("ClusterName", names.slurm_name(cluster)),
        # All pods of the controller have this hostname: slurmctld doesn't start under another.
        ("SlurmctldHost", f"{names.controller(cluster)}({address})"),
        ("SlurmctldPort", str(slurmctld.PORT)),
        ("SlurmUser", "slurm"),
        ("AuthType", "auth/slurm"),
        ("AuthAltTypes", "auth/jwt"),
        ("AuthAltParameters", f"jwt_key=/etc/slurm/{names.JWT_KEY}"),
        ("CredType", "cred/slurm"),
    ]


def render(cluster: SlurmCluster, nodesets: Sequence[NodeSet]) -> Rendered:
    """All files of the cluster's configuration, whatever the order of the NodeSets.

    Raises ConfigRefused for settings that the user can't have. A trial finds out whether Slurm accepts the others.
    """
    user = userconf.read(cluster.spec.config)
    if cluster.spec.controller.keep_jobs:
        user = journal.keep(user)
    homes = _home_files() if cluster.spec.home or any(each.spec.home for each in nodesets) else {}
    # Without a path slurmctld sends the file to the nodes: any image can be a node.
    prologs = [("Prolog", name) for name in homes]
    lines = [
        *_settings([*identity(cluster), *_defaults(), *prologs], user.settings),
        *user.definitions,
        *partitions.sets(nodesets),
        # Last: a PartitionName=DEFAULT of the user applies to the lines after it.
        *partitions.lines(nodesets, user.definitions),
    ]
    try:
        text = conf.render(Conf(tuple(lines)), _COMMENT)
    except conf.ConfError as error:
        raise ConfigRefused(f"{error}") from None
    all_files = {**_CGROUP, **user.files, **homes, **topology.files(cluster), MAIN: text}
    size = sum(len(name) + len(content.encode()) for name, content in all_files.items())
    if size >= _MOST_BYTES:
        raise ConfigRefused(f"all files of config together have {size:,} bytes: remove some, below {_MOST_BYTES:,}")
    digest = _digest(all_files)
    values = {key: found for key, found in _restart_values(text).items() if found is not None}
    return Rendered({**all_files, DIGEST: digest, RESTART: _digest(values)}, digest)


def restart_keys(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of slurm.conf that differ between two configurations and need a restart."""
    old, new = (_restart_values(files.get(MAIN, "")) for files in (before, after))
    return tuple(key for key in sorted(RESTART_KEYS) if old[key] != new[key])


def _defaults() -> list[Pair]:
    return [
        # slurmds and clients fetch their configuration from slurmctld, also one that changed while it was down.
        ("SlurmctldParameters", f"enable_configless,{_CONNECTIONS}"),
        # A node has the resources of its pod, not those that slurmd detects on the machine.
        ("SlurmdParameters", f"config_overrides,{_CONNECTIONS}"),
        ("SlurmdPort", str(slurmd.PORT)),
        ("SlurmdSpoolDir", "/var/spool/slurmd"),
        ("SlurmctldPidFile", "/run/slurmctld/slurmctld.pid"),
        ("SlurmdPidFile", "/run/slurmd.pid"),
        # An unprivileged container can't make cgroups.
        ("ProctrackType", "proctrack/linuxproc"),
        ("TaskPlugin", "task/none"),
        # Measures jobs, for sstat, seff and accounting. A cgroup would be exact; see above.
        ("JobAcctGatherType", "jobacct_gather/linux"),
        ("SelectType", "select/cons_tres"),
        ("SelectTypeParameters", "CR_Core"),
        ("MetricsType", "metrics/openmetrics"),
        # MPICH and its relatives form one world with a plain srun; Open MPI, which needs PMIx, warns (docs/mpi.md).
        ("MpiDefault", "pmi2"),
        # Nodes are dynamic: slurmds register themselves, come and go, and don't know of each other.
        ("MaxNodeCount", "10000"),
        ("TreeWidth", "65533"),
        ("ReturnToService", "2"),
        # A partition that a person sets DOWN stays DOWN through restarts and reconfigures. The guard still applies
        # states that are declared (guard/slurmctld/partitions.py).
        ("ReconfigFlags", "KeepPartState"),
        ("JobRequeue", "1"),
        # The groups of users in jobs and of AllowGroups follow the published users, not ten minutes later.
        ("GroupUpdateTime", "10"),
        # By default a batch job waits 3 s before Slurm looks for a node, also after a failover.
        ("SchedulerParameters", "batch_sched_delay=1"),
        # Makes slurmctld log every job start: those of the backfill scheduler are logged only with this flag.
        ("DebugFlags", "HetJob"),
        # Accounting can miss jobs that are purged sooner.
        ("MinJobAge", "300"),
        # A job gets the limits of its node. Those of the shell that submits it are the login pod's.
        ("PropagateResourceLimits", "NONE"),
        ("ScronParameters", "enable"),
        # Jobs survive a short network outage, and those on a dead node don't wait long.
        ("SlurmdTimeout", "120"),
    ]


def _home_files() -> dict[str, str]:
    """The Prolog that makes the home directory of a job's user, on nodes that have the volume."""
    return {_HOME_PROLOG: files.files(__package__).joinpath("make_home.sh").read_text()}


def _settings(ours: Sequence[Pair], users: Mapping[str, Pair]) -> list[Line]:
    """Our settings except those that the user sets, then the user's."""
    remaining = dict(users)
    kept: list[Pair] = []
    for key, value in ours:
        if key.lower() not in remaining or key.lower() in _REPEATED:
            kept.append((key, value))
        elif key.lower() in _JOINED:
            flags = [flag.strip() for flag in f"{value},{remaining.pop(key.lower())[1]}".split(",")]
            kept.append((key, ",".join(dict.fromkeys(flag for flag in flags if flag))))
    return [Line((pair,)) for pair in (*kept, *remaining.values())]


@functools.lru_cache(maxsize=256)
def _restart_values(text: str) -> Mapping[str, str | None]:
    """The values of RESTART_KEYS in a slurm.conf; none if it can't be parsed."""
    try:
        parsed = conf.parse(text)
    except conf.ConfError:
        parsed = Conf()
    return {key: parsed.get(key) for key in RESTART_KEYS}


def _digest(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
