"""What is cached: how long a Lease is silent, and a store for each selection. And what is measured."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from tests.builders import objects

from seltzer.api.slurmcluster import SlurmClusterStatus
from seltzer.api.status import ControllerStatus, Standby, VolumeStatus
from seltzer.controllers import metrics
from seltzer.controllers.caches import LEASES, PODS, Caches, Selection, managed
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.resource import Key


def lease(caches: Caches, version: int, renewed: str) -> None:
    caches.leases.put(objects.lease("c-a", version=str(version), renewed=renewed))


def nothing() -> Client:
    """A client for stores that a test fills by hand."""
    return cast(Client, object())


def test_a_lease_is_silent_since_its_last_change_by_our_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = Caches(nothing(), ())
    clock, following = 100.0, 60.0
    monkeypatch.setattr("seltzer.controllers.caches.time.monotonic", lambda: clock)
    monkeypatch.setattr(caches.reflectors[LEASES], "following_for", lambda: following)
    key = Key("ns", "demo-slurmctld")
    assert caches.silence(key) == 0, "nobody knows"
    lease(caches, 1, "in an hour, by the guard's clock")
    clock = 104.0
    assert caches.silence(key) == 4
    following = 2.0
    assert caches.silence(key) == 2, "before that we may not have heard it"
    following = 60.0
    lease(caches, 2, "an hour ago")
    clock = 105.0
    assert caches.silence(key) == 1
    found = caches.leases.get(key)
    assert found is not None
    caches.leases.remove(found)
    assert caches.silence(key) == 0


def test_selections_of_one_kind_have_stores_of_their_own_and_equal_ones_share_one() -> None:
    theirs = Selection(kinds.PODS, "app=theirs")
    caches = Caches(nothing(), [theirs, managed(kinds.PODS, name=lambda pod: (pod.metadata.name,))])
    caches.store(theirs).put(objects.pod("a"))
    assert len(caches.store(theirs)) == 1 and len(caches.pods) == 0
    assert caches.pods is caches.store(PODS) is caches.owned("Pod")
    caches.pods.put(objects.pod("b"))
    assert len(caches.pods.by("name", "b")) == 1, "it has the indices of all who name it"
    assert caches.pods.by("cluster", "ns/demo") == []
    assert [str(each) for each in caches.reflectors if each.resource is kinds.PODS] == ["Pod", "Pod app=theirs"]


def number(name: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"namespace": "ns", "cluster": "measured"})


def test_a_clusters_numbers_are_there_while_they_are_known_and_it_is() -> None:
    key = Key("ns", "measured")
    told: dict[str, Any] = {
        "seltzer_state_volume_free_bytes": 3,
        "seltzer_state_volume_size_bytes": 4,
        "seltzer_slurmctld_restarts": 5,
        "seltzer_failovers": 6,
        "seltzer_standbys": 1,
    }
    metrics.show_cluster(*key, SlurmClusterStatus())
    assert [number(name) for name in told] == [None] * 5, "unknown isn't 0"
    controller = ControllerStatus(pod="x", restarts=5, failovers=6, standbys=(Standby(pod="y"),))
    metrics.show_cluster(*key, SlurmClusterStatus(volume=VolumeStatus(free=3, size=4), controller=controller))
    assert {name: number(name) for name in told} == told
    metrics.forget_cluster(*key)
    metrics.forget_cluster(*key)
    assert [number(name) for name in told] == [None] * 5
