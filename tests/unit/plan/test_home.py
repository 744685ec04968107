"""No pod waits for home directories that can't be mounted, and the condition says what is missing."""

from __future__ import annotations

from datetime import datetime

import pytest
from tests.builders import objects
from tests.builders.objects import CREATED, cluster, nodeset

from seltzer.api.core import ClaimSpec, ClaimStatus, ObjectMeta, PersistentVolumeClaim
from seltzer.plan import home
from seltzer.plan.actions import Create, Delete

BORN = datetime.fromisoformat(CREATED).timestamp()
LATER = BORN + 3600
BINDER = {"kind": "Pod", "metadata": {"name": "demo-home"}}


def claim(phase: str = "Bound", class_name: str = "nfs", *modes: str, deleted: str = "") -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name="demo-home", namespace="ns", uid="claim", deletion_timestamp=deleted or None),
        spec=ClaimSpec(access_modes=modes or ("ReadWriteMany",), storage_class_name=class_name, volume_name="pv"),
        status=ClaimStatus(phase=phase),
    )


@pytest.mark.parametrize("found", [None, claim("Pending"), claim("")])
def test_a_running_cluster_gets_no_home_before_the_claim_is_bound(found: PersistentVolumeClaim | None) -> None:
    assert home.mountable(cluster({"home": {}}), found, LATER).spec.home is None


@pytest.mark.parametrize("phase", ["Bound", "Lost"])
def test_a_home_stays_mounted_once_it_was(phase: str) -> None:
    assert home.mountable(cluster({"home": {}}), claim(phase), LATER).spec.home is not None


def test_the_pods_of_a_new_cluster_wait_for_the_claim_but_not_for_long() -> None:
    young = cluster({"home": {}})
    assert home.mountable(young, claim("Pending"), BORN + 5).spec.home is not None
    waits = home.awaited(young, claim("Pending"), BORN + 5)
    assert waits and home.mountable(young, claim("Pending"), BORN + 5 + waits.after).spec.home is None
    # A clock that is behind must not make them wait for ever.
    assert home.awaited(young, claim("Pending"), BORN - 1000) is None


def test_a_cluster_without_a_home_has_no_condition_and_no_wait() -> None:
    assert home.of_cluster(cluster(), None, "", LATER) is None
    assert home.awaited(cluster(), None, BORN + 1) is None


@pytest.mark.parametrize(
    ("found", "spec", "reason", "says"),
    [
        (claim(), {}, "Bound", "home directories are in claim demo-home"),
        (None, {"claim": "mine"}, "ClaimMissing", "create it with access mode ReadWriteMany"),
        (claim("Pending", ""), {}, "NoStorageClass", "set spec.home.className to a class that can make ReadWriteMany"),
        (claim("Pending"), {}, "NoVolume", "'kubectl describe pvc demo-home' says why"),
        (claim("Lost"), {}, "VolumeLost", "restore PersistentVolume pv"),
        (claim(deleted=CREATED), {}, "ClaimDeleted", "'kubectl patch pv pv"),
        (claim("Bound", "ebs", "ReadWriteOnce"), {"claim": "demo-home"}, "NotShared", "is ReadWriteOnce"),
    ],
)
def test_the_condition_says_what_is_missing(
    found: PersistentVolumeClaim | None, spec: dict[str, str], reason: str, says: str
) -> None:
    finding = home.of_cluster(cluster({"home": spec}), found, "demo-home", LATER)
    assert finding is not None
    assert (finding.reason, finding.holds) == (reason, reason == "Bound")
    assert says in finding.message


def test_a_new_clusters_claim_is_no_problem_yet() -> None:
    finding = home.of_cluster(cluster({"home": {}}), claim("Pending"), "demo-home", BORN + 1)
    assert finding and finding.status == "Unknown"


def test_the_binder_is_there_while_the_claim_waits_and_goes_afterwards() -> None:
    wanted, pod = cluster({"home": {}}), objects.pod("demo-home")
    assert home.binding(wanted, claim("Pending"), (), BINDER) == [Create(BINDER)]
    assert home.binding(wanted, claim("Pending"), (pod,), BINDER) == []
    (gone,) = home.binding(wanted, claim(), (pod,), BINDER)
    assert isinstance(gone, Delete) and gone.name == "demo-home"
    assert home.binding(wanted, None, (), BINDER) == [], "without a claim it would only wait"
    assert home.binding(cluster(), None, (pod,), None) == [gone]


def test_a_claim_without_a_volume_is_made_again_for_another_class() -> None:
    wanted = cluster({"home": {"className": "nfs"}})
    actions = home.binding(wanted, claim("Pending", "disk"), (), BINDER)
    assert actions == [Delete("PersistentVolumeClaim", "ns", "demo-home", "claim")]
    assert home.binding(wanted, claim("Bound", "disk"), (), BINDER) == [], "files are never deleted"
    mine = cluster({"home": {"claim": "demo-home"}})
    assert home.binding(mine, claim("Pending", "disk"), (), BINDER) == [Create(BINDER)]


def test_a_nodeset_in_another_namespace_is_told_to_name_a_claim() -> None:
    of, guest = cluster({"home": {}}), nodeset({"clusterRef": {"name": "demo", "namespace": "ns"}}, namespace="there")
    finding = home.of_nodeset(guest, of, None)
    assert finding and finding.reason == "NoClaim" and "spec.home.claim" in finding.message
    assert home.of_nodeset(guest, cluster(), None) is None
    assert home.of_nodeset(nodeset(), of, None) is None, "the cluster's own condition is about it"


def test_a_nodeset_without_its_own_claim_starts_without_a_home() -> None:
    guest = nodeset({"clusterRef": {"name": "demo"}, "home": {"claim": "files"}}, namespace="there")
    assert home.mountable_by(guest, None).spec.home is None
    assert home.mountable_by(guest, claim("Pending")).spec.home is not None
    finding = home.of_nodeset(guest, None, None)
    assert finding and finding.reason == "ClaimMissing" and "namespace there" in finding.message
