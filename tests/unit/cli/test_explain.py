"""`seltzer explain`: which cluster a job is of."""

from __future__ import annotations

import pytest
from tests.builders.objects import cluster

from seltzer.cli import explain
from seltzer.errors import SeltzerError


def test_a_job_needs_to_be_told_of_which_cluster_where_there_are_two() -> None:
    assert explain.the_one([cluster()], "ns") == "demo"
    with pytest.raises(SeltzerError, match=r"2 clusters in namespace 'ns'.*--cluster which one: a, b"):
        explain.the_one([cluster(name="a"), cluster(name="b")], "ns")
    with pytest.raises(SeltzerError, match="no SlurmCluster in namespace 'ns'"):
        explain.the_one([], "ns")
