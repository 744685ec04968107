"""Who is told when something changes: nobody of a heartbeat, and of a dead node those whose controller is on it."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from tests.builders import objects

from seltzer.api.core import Node
from seltzer.api.labels import CLUSTER, COMPONENT, NODESET
from seltzer.api.slurmcluster import SlurmClusterStatus
from seltzer.api.status import ControllerStatus, Standby, VolumeStatus
from seltzer.build.images import Images
from seltzer.controllers import metrics
from seltzer.controllers.caches import Caches
from seltzer.controllers.operator import Operator
from seltzer.controllers.slurm_connection import Route
from seltzer.kube.client import Client
from seltzer.kube.resource import Key
from seltzer.slurm.nodes import Change


class Rig:
    """A caches that a test fills by hand, and who has been told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        client = cast(Client, object())
        self.caches = Caches(client, *(partial(self._tell, what) for what in ("", "set ", "soon ")))
        self._version = 0

    def _tell(self, what: str, key: Key) -> None:
        self.told.append(f"{what}{key}")

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def pod(self, name: str, node: str, component: str, **labels: str) -> None:
        marked = {COMPONENT: component, CLUSTER: name.partition("-")[0], **labels}
        self.caches.pods.put(objects.pod(name, machine=node, version=self._next(), labels=marked))
        self.told.clear()

    def node(self, name: str, ready: str) -> Node:
        return objects.machine(name, ready, version=self._next())

    def lease(self, holder: str, renewed: str, **annotations: str) -> None:
        self.told.clear()
        names: dict[str, Any] = annotations
        found = objects.lease(holder, renewed=renewed, version=self._next(), labels={CLUSTER: "demo"}, **names)
        self.caches.leases.put(found)


@pytest.fixture
def rig() -> Rig:
    found = Rig()
    found.caches.nodes.put(found.node("n1", "True"))
    found.pod("demo-slurmctld-x", "n1", "slurmctld")
    found.pod("other-slurmctld-x", "n2", "slurmctld")
    found.pod("third-0", "n1", "slurmd", **{NODESET: "third"})
    return found


def test_a_lease_is_silent_since_its_last_change_by_our_own_clock(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, following = 100.0, 60.0
    monkeypatch.setattr("seltzer.controllers.caches.time.monotonic", lambda: clock)
    monkeypatch.setattr(rig.caches.reflectors["Lease"], "following_for", lambda: following)
    key = Key("ns", "demo-slurmctld")
    assert rig.caches.silence(key) == 0, "nobody knows"
    rig.lease("c-a", "in an hour, by the guard's clock")
    clock = 104.0
    assert rig.caches.silence(key) == 4
    following = 2.0
    assert rig.caches.silence(key) == 2, "before that we may not have heard it"
    following = 60.0
    rig.lease("c-a", "an hour ago")
    clock = 105.0
    assert rig.caches.silence(key) == 1
    found = rig.caches.leases.get(key)
    assert found is not None
    rig.caches.leases.remove(found)
    assert rig.caches.silence(key) == 0


def test_a_nodes_death_is_told_to_those_who_have_a_pod_on_it(rig: Rig) -> None:
    rig.caches.nodes.put(rig.node("n1", "True"))
    assert rig.told == [], "a heartbeat"
    rig.caches.nodes.put(rig.node("n1", "Unknown"))
    assert sorted(rig.told) == ["ns/demo", "soon ns/third"]
    rig.told.clear()
    rig.caches.nodes.remove(rig.node("n1", "Unknown"))
    assert sorted(rig.told) == ["ns/demo", "soon ns/third"]


def test_a_renewed_lease_is_told_to_nobody_and_what_it_says_is(rig: Rig) -> None:
    rig.lease("x", "1")
    assert rig.told == ["ns/demo"]
    rig.lease("x", "2")
    assert rig.told == []
    rig.lease("x", "3", phase="held")
    assert rig.told == ["ns/demo"]
    rig.lease("y", "4", phase="held")
    assert rig.told == ["ns/demo"]


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
    metrics.tell_cluster(*key, SlurmClusterStatus())
    assert [number(name) for name in told] == [None] * 5, "unknown isn't 0"
    controller = ControllerStatus(pod="x", restarts=5, failovers=6, standbys=(Standby(pod="y"),))
    metrics.tell_cluster(*key, SlurmClusterStatus(volume=VolumeStatus(free=3, size=4), controller=controller))
    assert {name: number(name) for name in told} == told
    metrics.forget_cluster(*key)
    metrics.forget_cluster(*key)
    assert [number(name) for name in told] == [None] * 5


async def test_nodesets_are_told_when_slurm_can_be_asked_again_even_if_it_has_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Key] = []
    monkeypatch.setattr(Caches, "tell_nodesets", lambda _, key: told.append(key))
    operator = Operator(cast(Client, object()), Route(fixed={}), lambda: None, Images())
    operator._slurm_changed(Key("ns", "demo"), None)
    assert told == [], "only the numbers of jobs have changed"
    operator._slurm_changed(Key("ns", "demo"), Change(known=True))
    assert told == [Key("ns", "demo")]
