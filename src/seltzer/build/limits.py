"""How Slurm measures and limits what jobs use: the settings of `spec.cgroups`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.slurm.conf import Pair

CGROUP_CONF: Final = "cgroup.conf"

# An unprivileged container can't make cgroups.
_DISABLED: Final[tuple[Pair, ...]] = (
    ("ProctrackType", "proctrack/linuxproc"),
    ("TaskPlugin", "task/none"),
    # Measures jobs, for sstat, seff and accounting. A cgroup would be exact.
    ("JobAcctGatherType", "jobacct_gather/linux"),
    ("SelectType", "select/cons_tres"),
    ("SelectTypeParameters", "CR_Core"),
)
_V2: Final[tuple[Pair, ...]] = (
    ("ProctrackType", "proctrack/cgroup"),
    # Not task/affinity, which needs CAP_SYS_NICE.
    ("TaskPlugin", "task/cgroup"),
    ("JobAcctGatherType", "jobacct_gather/cgroup"),
    ("SelectType", "select/cons_tres"),
    ("SelectTypeParameters", "CR_Core_Memory"),
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
