"""How Slurm measures and limits what jobs use: the settings of `spec.cgroups`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.slurm.conf import Line, Pair

from .names import Manifest
from .sizes import Size, per_cpu
from .userconf import ConfigRefused, UserConf, parse

CGROUP_CONF: Final = "cgroup.conf"
SAMPLING: Final = "SELTZER_MEMORY_SAMPLING"
Key = tuple[str, str]
# A default of the user's, and what a default can't exceed.
_THEIRS = frozenset({"defmempercpu", "defmempernode"})
_MOST = ("maxmempercpu", "maxmempernode")


_BOTH: Final[tuple[Pair, ...]] = (
    ("SelectType", "select/cons_tres"),
    ("SelectTypeParameters", "CR_Core_Memory"),
)
# An unprivileged container can't make cgroups. A program beside slurmd keeps jobs to their memory. OverMemoryKill would
# end jobs whose processes share memory, which Slurm can't measure without privileges (decision 30).
_DISABLED: Final[tuple[Pair, ...]] = (
    ("ProctrackType", "proctrack/linuxproc"),
    ("TaskPlugin", "task/none"),
    # Measures jobs, for sstat, seff and accounting. A cgroup would be exact.
    ("JobAcctGatherType", "jobacct_gather/linux"),
    *_BOTH,
)
_V2: Final[tuple[Pair, ...]] = (
    ("ProctrackType", "proctrack/cgroup"),
    # Not task/affinity, which needs CAP_SYS_NICE.
    ("TaskPlugin", "task/cgroup"),
    ("JobAcctGatherType", "jobacct_gather/cgroup"),
    *_BOTH,
)
_CGROUP_CONF: Final = {
    "disabled": "CgroupPlugin=disabled\n",
    # There is no systemd in the container. ConstrainDevices loads BPF programs, which needs more capabilities.
    "v2": (
        "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainRAMSpace=yes\nConstrainCores=yes\nConstrainDevices=no\n"
    ),
}


def settings(cluster: SlurmCluster) -> tuple[Pair, ...]:
    """What slurm.conf says about it. They are settings of the whole cluster: Slurm has none of a node."""
    return _V2 if cluster.spec.cgroups == "v2" else _DISABLED


def files(cluster: SlurmCluster) -> Mapping[str, str]:
    """The files beside slurm.conf; the user's own have precedence."""
    return {CGROUP_CONF: _CGROUP_CONF[cluster.spec.cgroups]}


def environment(cluster: SlurmCluster) -> list[Manifest]:
    """For the slurmd container: where the kernel keeps jobs to their memory, nobody else has to."""
    return [{"name": SAMPLING, "value": "0"}] if cluster.spec.cgroups == "v2" else []


def check(users: UserConf, all_files: Mapping[str, str]) -> None:
    """Refuse what Slurm's daemons would refuse, which no slurmd would survive."""
    parameters = users.settings.get("jobacctgatherparams", ("", ""))[1].lower()
    if "overmemorykill" not in parameters:
        return
    for line in parse(all_files[CGROUP_CONF], CGROUP_CONF):
        if any(key.lower() == "constrainramspace" and value.lower() == "yes" for key, value in line.pairs):
            raise ConfigRefused(
                "slurm.conf has JobAcctGatherParams=OverMemoryKill and cgroup.conf ConstrainRAMSpace=yes, which is "
                "fatal to Slurm's daemons: remove OverMemoryKill"
            )


@dataclass(frozen=True)
class Defaults:
    """The memory of jobs that ask for none, in MiB per CPU."""

    everywhere: int | None = None
    of: Mapping[Key, int | None] = field(default_factory=dict)
    """By NodeSet."""

    def settings(self) -> list[Pair]:
        """For jobs in partitions of the user."""
        return [("DefMemPerCPU", str(self.everywhere))] if self.everywhere else []

    def of_partition(self, nodesets: Iterable[NodeSet], options: Mapping[str, Pair]) -> list[Pair]:
        """For a partition of these NodeSets, unless its options say something else."""
        values = [self.of.get(_key(each)) for each in nodesets]
        known = [each for each in values if each]
        if not known or len(known) < len(values) or _THEIRS & options.keys():
            return []
        least = min(known)
        for limit in _MOST:
            if limit in options and options[limit][1].isdecimal():
                least = min(least, max(1, int(options[limit][1])))
        return [] if least == self.everywhere else [("DefMemPerCPU", str(least))]


def defaults(user: UserConf, sizes: Mapping[Key, Size | None]) -> Defaults:
    """None where the user has chosen: memory that isn't scheduled, or a default of their own."""
    of_all = [pair for line in user.definitions if _is_default(line) for pair in line.pairs]
    chosen = {key.lower() for key, _ in of_all} | user.settings.keys()
    plugins = user.settings.get("selecttypeparameters", dict(_lower(_BOTH))["selecttypeparameters"])[1]
    if _THEIRS & chosen or "memory" not in plugins.lower():
        return Defaults()
    most = [user.settings[key][1] for key in _MOST if key in user.settings]
    caps = [max(1, int(each)) for each in most if each.isdecimal()]
    per = {key: per_cpu([size]) for key, size in sizes.items()}
    capped = {key: None if value is None else min([value, *caps]) for key, value in per.items()}
    return Defaults(per_cpu(None if value is None else Size(1, value) for value in capped.values()), capped)


def _is_default(line: Line) -> bool:
    return line.key.lower() == "partitionname" and line.value.lower() == "default"


def _lower(pairs: Iterable[Pair]) -> dict[str, Pair]:
    return {key.lower(): (key, value) for key, value in pairs}


def _key(nodeset: NodeSet) -> Key:
    return nodeset.metadata.namespace, nodeset.metadata.name
