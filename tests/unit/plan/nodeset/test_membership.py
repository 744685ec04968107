"""Which NodeSets are members of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.builders.objects import NOW, cluster, nodeset

from seltzer.api.nodeset import NodeSet, NodeSetStatus
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.kube.resource import Key
from seltzer.plan.nodeset.membership import Membership, cluster_key, memberships


def judge(where: SlurmCluster | None, *nodesets: NodeSet, max_nodes: int = 10) -> Mapping[Key, Membership]:
    return memberships(where, nodesets, max_nodes)


def elsewhere(name: str = "cpu", created: float = NOW) -> NodeSet:
    return nodeset(name=name, namespace="other", cluster_namespace="ns", created=created)


def test_a_nodeset_refers_to_a_cluster_of_its_own_namespace_unless_it_says_otherwise() -> None:
    assert cluster_key(nodeset()) == Key("ns", "demo")
    assert cluster_key(elsewhere()) == Key("ns", "demo")


def test_a_nodeset_of_the_clusters_namespace_is_accepted() -> None:
    verdict = judge(cluster(), nodeset())[Key("ns", "cpu")]
    assert (verdict.member, verdict.accepted, verdict.reason) == (True, True, "Accepted")


def test_without_its_cluster_a_nodeset_is_told_to_create_it() -> None:
    verdict = judge(None, nodeset())[Key("ns", "cpu")]
    assert (verdict.member, verdict.accepted, verdict.reason) == (False, False, "ClusterNotFound")
    assert "no SlurmCluster ns/demo: create it" in verdict.message


@pytest.mark.parametrize(
    ("allows", "reason"), [((), "NotAllowed"), (("third",), "NotAllowed"), (("other",), "Accepted")]
)
def test_a_cluster_takes_nodesets_of_other_namespaces_only_if_it_says_so(allows: tuple[str, ...], reason: str) -> None:
    verdict = judge(cluster(allows=allows), elsewhere())[Key("other", "cpu")]
    assert verdict.reason == reason
    assert verdict.member == (reason == "Accepted")


def test_of_two_with_the_same_name_the_older_stays_in_whatever_order_they_come() -> None:
    old, young = nodeset(created=NOW - 10), elsewhere(created=NOW)
    for order in ((old, young), (young, old)):
        found = judge(cluster(allows=["other"]), *order)
        assert found[Key("ns", "cpu")].accepted
        assert found[Key("other", "cpu")].reason == "NameTaken"
        assert "NodeSet ns/cpu has the same name" in found[Key("other", "cpu")].message


def test_two_of_the_same_second_are_told_apart_by_their_names() -> None:
    found = judge(cluster(allows=["other"]), elsewhere(), nodeset(created=NOW))
    assert found[Key("ns", "cpu")].accepted
    assert not found[Key("other", "cpu")].member


def test_one_that_isnt_allowed_takes_no_name() -> None:
    found = judge(cluster(), elsewhere(created=NOW - 10), nodeset(created=NOW))
    assert found[Key("ns", "cpu")].accepted


def test_who_would_exceed_the_number_of_nodes_stays_a_member_but_isnt_accepted() -> None:
    found = judge(cluster(), nodeset(8, name="a", created=NOW - 2), nodeset(3, name="b", created=NOW - 1))
    verdict = found[Key("ns", "b")]
    assert (verdict.member, verdict.accepted, verdict.reason) == (True, False, "TooManyNodes")
    assert "the 2 that are left of MaxNodeCount=10" in verdict.message


def test_the_next_one_is_accepted_where_it_fits_beside_the_pods_that_run() -> None:
    crowded = nodeset(30, name="a", created=NOW - 2, status=NodeSetStatus(replicas=4))
    found = judge(cluster(), crowded, nodeset(6, name="b", created=NOW - 1), nodeset(1, name="c", created=NOW))
    assert not found[Key("ns", "a")].accepted
    assert found[Key("ns", "b")].accepted
    assert found[Key("ns", "c")].reason == "TooManyNodes"
