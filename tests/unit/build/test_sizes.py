"""How large nodes are for Slurm, and what a job gets that asks for no memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.objects import cluster, nodeset

from seltzer.api.core import Allocatable
from seltzer.api.nodeset import NodeSet
from seltzer.build import sizes
from seltzer.build.config import render
from seltzer.build.sizes import Size
from seltzer.slurm import conf

MACHINE = Allocatable(cpu="3920m", memory="16000000Ki")  # 4 CPUs and 15,625 MiB: 3,906 for each


def sized(name: str = "cpu", cpu: Any = 4, memory: Any = "4Gi", **more: Any) -> NodeSet:
    return nodeset({"resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}, name=name)


def figures(*nodesets: NodeSet, text: str = "", machines: tuple[Allocatable, ...] = (MACHINE,)) -> dict[str, str]:
    """DefMemPerCPU of the cluster, as "", and of each partition that has its own."""
    found = conf.parse(render(cluster({"config": {"slurm.conf": text}}), nodesets, machines).files["slurm.conf"])
    partitions = {line.value: dict(line.pairs).get("DefMemPerCPU") for line in found.about("PartitionName")}
    return {name: value for name, value in {"": found.get("DefMemPerCPU"), **partitions}.items() if value}


def test_a_cpus_share_is_the_default_of_a_partition() -> None:
    assert figures(sized("a", 4, "4Gi"), sized("b", 2, "4Gi")) == {"": "1024", "b": "2048"}


def test_nodesets_that_share_a_partition_have_the_scarcest_ones_default() -> None:
    shared = {"partition": {"name": "both"}}
    assert figures(sized("a", 4, "4Gi", **shared), sized("b", 2, "4Gi", **shared), sized("c", 8, "1Gi")) == {
        "": "128",
        "both": "1024",
    }


def test_a_node_with_all_of_its_machine_has_the_default_of_the_scarcest_machine() -> None:
    small = Allocatable(cpu="8", memory="8Gi")
    assert figures(nodeset({}), machines=(MACHINE,)) == {"": "3840"}
    assert (
        figures(nodeset({}), machines=(MACHINE, small))
        == figures(nodeset({}), machines=(small, MACHINE))
        == {"": "1024"}
    )


def test_what_is_given_of_a_size_counts_with_what_the_machine_has() -> None:
    assert figures(nodeset({"resources": {"requests": {"cpu": 2}}})) == {"": "7680"}
    assert figures(nodeset({"resources": {"requests": {"memory": "4Gi"}}})) == {"": "1024"}


@pytest.mark.parametrize("machines", [(), (Allocatable(),), (MACHINE, Allocatable(cpu="lots", memory="1Gi"))])
def test_without_a_known_size_jobs_get_the_nodes_whole_memory(machines: tuple[Allocatable, ...]) -> None:
    """Which is what Slurm does without a default. A partition of known size has its own all the same."""
    assert figures(nodeset({}), machines=machines) == {}
    assert figures(nodeset({}), sized("b"), machines=machines) == {"b": "1024"}


@pytest.mark.parametrize(
    "text",
    ["DefMemPerCPU=7", "defmempernode=7", "PartitionName=DEFAULT DefMemPerCPU=7", "SelectTypeParameters=CR_Core"],
)
def test_a_default_of_the_users_is_the_only_one(text: str) -> None:
    assert set(figures(sized("a"), sized("b", 2), text=text).values()) <= {"7"}


def test_options_of_a_partition_have_precedence() -> None:
    own = {"partition": {"options": "DefMemPerNode=7"}}
    assert figures(sized("a", 2), sized("b", 4, **own)) == {"": "1024", "a": "2048"}


def test_a_default_is_never_above_the_maximum() -> None:
    assert figures(sized("a"), sized("b", 2), text="MaxMemPerCPU=100") == {"": "100"}
    capped = {"partition": {"options": "MaxMemPerCPU=100"}}
    assert figures(sized("a", **capped), sized("b", 4)) == {"": "1024", "a": "100"}


def test_the_template_of_a_pod_has_precedence_and_one_that_cannot_be_merged_is_of_unknown_size() -> None:
    def changed(container: Any) -> NodeSet:
        return sized("a", podTemplate={"spec": {"containers": container}})

    assert figures(changed([{"name": "slurmd", "resources": {"limits": {"cpu": 1}}}])) == {"": "4096"}
    assert figures(changed([{"name": "slurmd", "resources": {"limits": {"cpu": "x"}}}])) == {}


def test_the_limits_of_a_pod_count_for_a_container_without_its_own() -> None:
    pod = {"limits": {"memory": "4Gi"}, "requests": {"cpu": 2}}
    assert sizes.size_for_slurm("memory", {"requests": {"memory": "1Gi"}}, pod) == sizes.of_jobs(4096)
    assert sizes.size_for_slurm("memory", {"limits": {"memory": "1Gi"}}, pod) == sizes.of_jobs(1024)
    assert sizes.size_for_slurm("cpu", {}, pod) == 2
    assert sizes.size_for_slurm("cpu", {}, {}) is None


@given(st.integers(1, 1 << 24))
def test_jobs_have_most_of_a_pods_memory_and_never_all_of_it(memory: int) -> None:
    assert memory * 3 // 4 <= sizes.of_jobs(memory) <= memory
    assert sizes.of_jobs(memory) < memory or memory < 4


@given(st.lists(st.tuples(st.integers(1, 512), st.integers(1, 1 << 20)), min_size=1))
def test_a_job_on_all_cpus_of_any_machine_fits_with_the_default(machines: list[tuple[int, int]]) -> None:
    size = sizes.of_machines(Allocatable(cpu=cpus, memory=f"{memory}Mi") for cpus, memory in machines)
    assert size is not None
    assert all(size.memory * cpus <= memory for cpus, memory in machines) or size.memory == 0
    assert sizes.per_cpu([size]) == max(1, size.memory)


def test_the_share_of_the_scarcest_node_is_unknown_while_one_size_is() -> None:
    assert sizes.per_cpu([Size(2, 100), Size(1, 10)]) == 10
    assert sizes.per_cpu([Size(2, 100), None]) is None
    assert sizes.per_cpu([]) is None
