"""The configuration of a cluster: ours, the user's on top, and the NodeSets'."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seltzer.api.common import PodTemplate
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.slurm import conf
from seltzer.slurm.conf import Conf, Line, Pair

from . import journal, names, partitions, userconf
from .components import slurmctld, slurmd
from .userconf import MAIN, ConfigRefused

__all__ = ["RESTART_KEYS", "ConfigRefused", "Rendered", "identity", "render", "restart_keys"]

DIGEST = "seltzer.digest"
RESTART = "seltzer.restart"
_MOST_BYTES = 900_000
_COMMENT = "Written by Seltzer: what spec.config of the SlurmCluster says is in here too. Changes are overwritten."
# An unprivileged container can't make cgroups.
_CGROUP = {"cgroup.conf": "CgroupPlugin=disabled\n"}

# Lists of flags of which some are ours: the user's are added.
_JOINED = frozenset({"debugflags", "reconfigflags", "slurmctldparameters", "slurmdparameters"})

# On a reconfigure slurmctld starts itself anew and reads everything again (tried with MaxNodeCount, GresTypes,
# SelectTypeParameters, SchedulerType …), but it keeps its listening sockets and its way to authenticate.
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
"""Keys of slurm.conf whose change needs a new slurmctld; a reconfigure takes over all others."""


@dataclass(frozen=True)
class Rendered:
    """A configuration as it is mounted into slurmctld's pod."""

    files: Mapping[str, str]
    digest: str
    """The sha256 of all files, so what this configuration is known by."""
    trusted: bool
    """Nothing in it is the user's, nor is anything of the pod that reads it: no need to try it."""


def identity(cluster: SlurmCluster) -> list[Pair]:
    """How Slurm's daemons find and trust each other. All of it is Seltzer's alone, so that it never changes."""
    address = names.controller_address(cluster)
    return [
        ("ClusterName", names.slurm_name(cluster)),
        # The pods of the controller are all called so, and slurmctld starts under no other name.
        ("SlurmctldHost", f"{names.controller(cluster)}({address})"),
        ("SlurmctldPort", str(slurmctld.PORT)),
        ("SlurmUser", "slurm"),
        ("AuthType", "auth/slurm"),
        ("AuthAltTypes", "auth/jwt"),
        ("AuthAltParameters", f"jwt_key=/etc/slurm/{names.JWT_KEY}"),
        ("CredType", "cred/slurm"),
    ]


def render(cluster: SlurmCluster, nodesets: Sequence[NodeSet]) -> Rendered:
    """All files of the cluster's configuration; the order of the NodeSets makes no difference.

    Raises ConfigRefused for what the user can't have. Whether Slurm takes the rest is for a trial to find out.
    """
    user = userconf.read(cluster.spec.config)
    if cluster.spec.controller.keep_jobs:
        user = journal.keep(user)
    lines = [
        *_settings([*identity(cluster), *_ours()], user.settings),
        *user.things,
        *partitions.sets(nodesets),
        # Last, so that they heed a PartitionName=DEFAULT of the user.
        *partitions.lines(nodesets, user.things),
    ]
    try:
        text = conf.render(Conf(tuple(lines)), _COMMENT)
    except conf.ConfError as error:
        raise ConfigRefused(f"{error}") from None
    files = {**_CGROUP, **user.files, MAIN: text}
    size = sum(len(name) + len(content.encode()) for name, content in files.items())
    if size >= _MOST_BYTES:
        raise ConfigRefused(f"all files of config together have {size:,} bytes: remove some, below {_MOST_BYTES:,}")
    digest = _digest(files)
    values = {key: found for key, found in _restart_values(text).items() if found is not None}
    return Rendered(
        files={**files, DIGEST: digest, RESTART: _digest(values)},
        digest=digest,
        trusted=_trusted(cluster, nodesets),
    )


def restart_keys(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of slurm.conf that differ between two configurations' files and that a reconfigure doesn't change."""
    old, new = (_restart_values(files.get(MAIN, "")) for files in (before, after))
    return tuple(key for key in sorted(RESTART_KEYS) if old[key] != new[key])


def _ours() -> list[Pair]:
    return [
        # slurmds and clients get their configuration from slurmctld, also when it has changed while it was away.
        ("SlurmctldParameters", "enable_configless"),
        # A node has what its pod may use, not what slurmd sees of the machine.
        ("SlurmdParameters", "config_overrides"),
        ("SlurmdPort", str(slurmd.PORT)),
        ("SlurmdSpoolDir", "/var/spool/slurmd"),
        ("SlurmctldPidFile", "/run/slurmctld/slurmctld.pid"),
        ("SlurmdPidFile", "/run/slurmd.pid"),
        # An unprivileged container can't make cgroups.
        ("ProctrackType", "proctrack/linuxproc"),
        ("TaskPlugin", "task/none"),
        ("SelectType", "select/cons_tres"),
        ("SelectTypeParameters", "CR_Core"),
        ("MetricsType", "metrics/openmetrics"),
        ("MpiDefault", "none"),
        # slurmds come and go, join by themselves, and know nothing of each other.
        ("MaxNodeCount", "10000"),
        ("TreeWidth", "65533"),
        ("ReturnToService", "2"),
        # A partition that a person has set DOWN stays so through every start and reconfigure; the guard sees to it
        # that a state that is declared counts all the same (guard/slurmctld/partitions.py).
        ("ReconfigFlags", "KeepPartState"),
        ("JobRequeue", "1"),
        # Slurm lets a batch job wait for 3 s before it looks for a node, also after a failover.
        ("SchedulerParameters", "batch_sched_delay=1"),
        # So that slurmctld's log tells of every start: those of the backfill scheduler it tells with this flag only.
        ("DebugFlags", "HetJob"),
        # Accounting can miss what is purged sooner.
        ("MinJobAge", "300"),
        # Jobs live through a short break of the network; those on a dead node don't wait for long.
        ("SlurmdTimeout", "120"),
    ]


def _settings(ours: Sequence[Pair], users: Mapping[str, Pair]) -> list[Line]:
    """Our settings, without those that the user has too, and then the user's."""
    theirs = dict(users)
    kept: list[Pair] = []
    for key, value in ours:
        if key.lower() not in theirs:
            kept.append((key, value))
        elif key.lower() in _JOINED:
            flags = [flag.strip() for flag in f"{value},{theirs.pop(key.lower())[1]}".split(",")]
            kept.append((key, ",".join(dict.fromkeys(flag for flag in flags if flag))))
    return [Line((pair,)) for pair in (*kept, *theirs.values())]


@functools.lru_cache(maxsize=256)
def _restart_values(text: str) -> Mapping[str, str | None]:
    """What a slurm.conf says of these keys; a file that can't be read says nothing."""
    try:
        parsed = conf.parse(text)
    except conf.ConfError:
        parsed = Conf()
    return {key: parsed.get(key) for key in RESTART_KEYS}


def _digest(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _trusted(cluster: SlurmCluster, nodesets: Sequence[NodeSet]) -> bool:
    spec = cluster.spec
    untouched = PodTemplate()
    return (
        not spec.config
        and not any(nodeset.spec.partition.options for nodeset in nodesets)
        and spec.controller.image is None
        and spec.pod_template == untouched
        and spec.controller.pod_template == untouched
    )
