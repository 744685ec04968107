"""A node that can't limit its jobs takes none, and its NodeSet says which lines to set.

The pod here has no RuntimeClass: with cgroup v2 its container may not write its cgroups, and with v1 it has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness import Cluster, Sandbox

UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers").exists()


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "refused", "demo")
    cluster.create({"cgroups": "v2"}, cpu={"replicas": 1})
    cluster.wait("slurmcluster/demo", "Ready")
    yield cluster
    cluster.delete_later()


def test_a_node_that_cannot_limit_its_jobs_takes_none(cluster: Cluster) -> None:
    cluster.wait("nodeset/cpu", "LimitsEnforced", "False")
    found = cluster.condition("nodeset/cpu", "LimitsEnforced")
    reason, lines = ("ReadOnly", "cgroup_writable = true") if UNIFIED else ("Version1", "unified_cgroup_hierarchy=1")
    assert found["reason"] == reason, found
    assert lines in found["message"], found
    assert found["message"].startswith("cpu-0 can't limit jobs and takes none"), found
    ready = cluster.condition("nodeset/cpu", "Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason), ready
    assert "cpu-0" not in cluster.slurm_nodes()
    assert cluster.told("NodeSet", "cpu").get(reason) == found["message"]
