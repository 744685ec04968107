"""What slurm.conf and cgroup.conf say about the limits of jobs, for each value of spec.cgroups."""

from __future__ import annotations

import pytest
from tests.builders.objects import cluster

from seltzer.build.config import ConfigRefused, render
from seltzer.build.limits import environment
from seltzer.slurm import conf


def settings(spec: dict[str, object]) -> dict[str, str]:
    lines = conf.parse(render(cluster(spec), []).files["slurm.conf"]).lines
    return {line.key: line.value for line in lines if isinstance(line, conf.Line)}


def test_cgroups_are_off_unless_they_are_asked_for() -> None:
    assert settings({}) == settings({"cgroups": "disabled"})
    assert render(cluster(), []).files["cgroup.conf"] == "CgroupPlugin=disabled\n"


@pytest.mark.parametrize(
    ("cgroups", "proctrack", "task", "gather"),
    [
        ("disabled", "proctrack/linuxproc", "task/none", "jobacct_gather/linux"),
        ("v2", "proctrack/cgroup", "task/cgroup", "jobacct_gather/cgroup"),
    ],
)
def test_all_plugins_agree_on_whether_there_are_cgroups(cgroups: str, proctrack: str, task: str, gather: str) -> None:
    found = settings({"cgroups": cgroups})
    assert (found["ProctrackType"], found["TaskPlugin"], found["JobAcctGatherType"]) == (proctrack, task, gather)


def test_with_v2_the_kernel_limits_memory_and_cores() -> None:
    found = conf.parse(render(cluster({"cgroups": "v2"}), []).files["cgroup.conf"])
    assert (found.get("CgroupPlugin"), found.get("IgnoreSystemd")) == ("cgroup/v2", "yes")
    assert (found.get("ConstrainRAMSpace"), found.get("ConstrainCores")) == ("yes", "yes")
    assert found.get("ConstrainDevices") == "no", "it needs more capabilities than an unprivileged pod has"
    assert settings({"cgroups": "v2"})["SelectTypeParameters"] == "CR_Core_Memory"


def test_the_users_own_files_and_settings_have_precedence() -> None:
    config = {"slurm.conf": "TaskPlugin=task/affinity,task/cgroup", "cgroup.conf": "ConstrainCores=no\n"}
    spec: dict[str, object] = {"cgroups": "v2", "config": config}
    assert settings(spec)["TaskPlugin"] == "task/affinity,task/cgroup"
    assert render(cluster(spec), []).files["cgroup.conf"] == "ConstrainCores=no\n"


@pytest.mark.parametrize(
    ("cgroup", "parameters", "refused"),
    [
        ("ConstrainRAMSpace=yes", "OverMemoryKill,NoShared", True),
        ("constrainramspace=Yes", "overmemorykill", True),
        ("ConstrainRAMSpace=no", "OverMemoryKill", False),
        ("ConstrainRAMSpace=yes", "NoShared", False),
        (None, "OverMemoryKill", False),
    ],
)
def test_two_ways_to_limit_memory_are_refused_before_slurmds_die_of_them(
    cgroup: str | None, parameters: str, refused: bool
) -> None:
    files = {} if cgroup is None else {"cgroup.conf": cgroup}
    spec = {"config": {"slurm.conf": f"JobAcctGatherParams={parameters}", **files}}
    if not refused:
        assert render(cluster(spec), [])
        return
    with pytest.raises(ConfigRefused, match="remove OverMemoryKill"):
        render(cluster(spec), [])


def test_where_the_kernel_limits_memory_nothing_else_looks_at_it() -> None:
    assert environment(cluster()) == []
    assert environment(cluster({"cgroups": "v2"})) == [{"name": "SELTZER_MEMORY_SAMPLING", "value": "0"}]
