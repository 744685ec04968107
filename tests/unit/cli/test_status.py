"""`seltzer status`: NodeSets without a cluster."""

from __future__ import annotations

from tests.builders.objects import cluster, nodeset

from seltzer.cli import status


def test_a_nodeset_whose_cluster_is_missing_is_noticed_where_it_can_be_known() -> None:
    lost, fine = nodeset(name="lost", cluster="nowhere"), nodeset()
    elsewhere = nodeset(name="guest", cluster_namespace="there")
    assert status.orphans([lost, fine, elsewhere], [cluster()], "ns") == [lost]
    assert status.orphans([lost, fine, elsewhere], [cluster()], "") == [lost, elsewhere]
