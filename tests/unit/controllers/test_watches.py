"""Who looks again when something changes: nobody at a heartbeat, and at a dead node those who have a pod on it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.builders.objects import nodeset

from seltzer.api.core import (
    Lease,
    LeaseSpec,
    Node,
    NodeCondition,
    NodeMeta,
    NodeStatus,
    ObjectCondition,
    ObjectMeta,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    PodStatus,
)
from seltzer.api.labels import CLUSTER, CLUSTER_NAMESPACE, COMPONENT, NODESET
from seltzer.api.slurmcluster import SlurmCluster, SlurmClusterSpec
from seltzer.api.volumes import Home
from seltzer.build import operator as build_operator
from seltzer.build.images import Images
from seltzer.controllers import operator as operators
from seltzer.controllers import watches
from seltzer.controllers.caches import Caches, Selection
from seltzer.controllers.operator import CONTROLLERS, Operator
from seltzer.controllers.registration import Registration, Watch
from seltzer.controllers.slurm_connection import Route
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.controller import Controller, Done, Outcome
from seltzer.kube.resource import Key
from seltzer.slurm.nodes import Change


class Told:
    """A controller that only notes its keys."""

    def __init__(self, told: list[str], name: str, soon: str = "") -> None:
        self._told, self._name, self._soon = told, name, soon

    def changed(self, key: Key) -> None:
        self._told.append(f"{self._name}{key}")

    def hurry(self, key: Key) -> None:
        self._told.append(f"{self._soon}{key}")


class Rig:
    """Caches that a test fills by hand, and who has been told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        client = cast(Client, object())
        self.caches = Caches(client, (each.selection for one in CONTROLLERS for each in one.all_watches()))
        watches.CLUSTER.wire(self.caches, cast(Controller, Told(self.told, "")))
        watches.NODESET.wire(self.caches, cast(Controller, Told(self.told, "set ", "soon ")))
        self._version = 0

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def meta(self, name: str, **more: Any) -> ObjectMeta:
        return ObjectMeta(name=name, namespace="ns", resource_version=self._next(), **more)

    def pod(self, name: str, node: str, component: str, **labels: str) -> Pod:
        marked = {COMPONENT: component, CLUSTER: name.partition("-")[0], **labels}
        made = Pod(metadata=self.meta(name, labels=marked), spec=PodSpec(node_name=node))
        self.caches.pods.put(made)
        self.told.clear()
        return made

    def node(self, name: str, ready: str) -> Node:
        status = NodeStatus(conditions=(NodeCondition(type="Ready", status=ready),))
        return Node(metadata=NodeMeta(name=name, resource_version=self._next()), status=status)

    def lease(self, holder: str, renewed: str, **annotations: str) -> None:
        metadata = self.meta("demo-slurmctld", labels={CLUSTER: "demo"}, annotations=annotations)
        self.told.clear()
        spec = LeaseSpec(holder_identity=holder, renew_time=renewed)
        self.caches.leases.put(Lease(metadata=metadata, spec=spec))

    def cluster(self, generation: int = 1, deleted: str | None = None) -> None:
        self.told.clear()
        metadata = self.meta("demo", generation=generation, deletion_timestamp=deleted)
        self.caches.clusters.put(SlurmCluster(metadata=metadata))

    def nodeset(self, name: str, generation: int = 1) -> None:
        self.told.clear()
        self.caches.nodesets.put(replace(nodeset(name=name), metadata=self.meta(name, generation=generation)))


@pytest.fixture
def rig() -> Rig:
    found = Rig()
    found.caches.nodes.put(found.node("n1", "True"))
    found.pod("demo-slurmctld-x", "n1", "slurmctld")
    found.pod("other-slurmctld-x", "n2", "slurmctld")
    found.pod("third-0", "n1", "slurmd", **{NODESET: "third"})
    return found


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


def test_a_clusters_nodesets_look_again_when_its_spec_changes_and_not_its_status(rig: Rig) -> None:
    rig.nodeset("cpu")
    rig.cluster()
    assert sorted(rig.told) == ["ns/demo", "set ns/cpu"]
    rig.cluster()
    assert rig.told == ["ns/demo"]
    rig.cluster(generation=2)
    assert sorted(rig.told) == ["ns/demo", "set ns/cpu"]
    rig.cluster(generation=2, deleted="2026-01-01T00:00:00Z")
    assert sorted(rig.told) == ["ns/demo", "set ns/cpu"]


def test_a_nodesets_spec_concerns_its_cluster_and_its_neighbours_and_its_status_nobody_else(rig: Rig) -> None:
    rig.nodeset("cpu")
    rig.nodeset("gpu")
    assert sorted(set(rig.told)) == ["ns/demo", "set ns/cpu", "set ns/gpu"]
    rig.nodeset("gpu")
    assert rig.told == ["set ns/gpu"]
    rig.nodeset("gpu", generation=2)
    assert sorted(set(rig.told)) == ["ns/demo", "set ns/cpu", "set ns/gpu"]


def test_a_nodes_pod_concerns_its_nodeset_and_its_cluster_only_when_that_ends(rig: Rig) -> None:
    rig.cluster()
    first = rig.pod("demo-0", "n2", "slurmd", **{NODESET: "cpu"})
    rig.caches.pods.remove(first)
    assert rig.told == ["set ns/cpu"]
    second = rig.pod("demo-1", "n2", "slurmd", **{NODESET: "cpu"})
    rig.cluster(deleted="2026-01-01T00:00:00Z")
    rig.told.clear()
    rig.caches.pods.remove(second)
    assert sorted(rig.told) == ["ns/demo", "set ns/cpu"]


def test_nodesets_look_again_when_a_part_of_the_control_plane_is_gone(rig: Rig) -> None:
    rig.nodeset("cpu")
    controller = rig.pod("demo-slurmctld-y", "n2", "slurmctld")
    rig.caches.pods.remove(controller)
    assert sorted(rig.told) == ["ns/demo", "set ns/cpu"]
    rig.lease("x", "1")
    found = rig.caches.leases.get(Key("ns", "demo-slurmctld"))
    assert found
    rig.told.clear()
    rig.caches.leases.remove(found)
    assert sorted(rig.told) == ["ns/demo", "set ns/cpu"]


def test_an_object_that_is_nobodys_concerns_nobody(rig: Rig) -> None:
    for store in (rig.caches.pods, rig.caches.secrets):
        store.put(cast(Any, Pod(metadata=rig.meta("stray"))))
    assert rig.told == []


async def test_nodesets_are_told_when_slurm_can_be_asked_again_even_if_it_has_no_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Controller, "changed", lambda self, key: told.append(f"{self.name} {key}"))
    operator = Operator(cast(Client, object()), Route(fixed={}), lambda: None, Images())
    metadata = ObjectMeta(name="cpu", namespace="ns", resource_version="1")
    operator.caches.nodesets.put(replace(nodeset(name="cpu"), metadata=metadata))
    told.clear()
    operator._slurm_changed(Key("ns", "demo"), None)
    assert told == ["slurmcluster ns/demo"], "only the numbers of jobs have changed"
    told.clear()
    operator._slurm_changed(Key("ns", "demo"), Change(known=True))
    assert told == ["slurmcluster ns/demo", "nodeset ns/cpu"]


async def test_a_third_controller_is_one_row_and_its_pods_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    theirs = Selection(kinds.PODS, "scheduler=slurm")

    class Bridge:
        def __init__(self, *parts: object) -> None: ...

        async def reconcile(self, key: Key) -> Outcome:
            return Done()

    bridge = Registration(
        name="bridge",
        kind=Selection(kinds.SERVICES),
        make=Bridge,
        owns=(),
        owner=lambda caches, before, after: (),
        watches=(Watch(theirs, lambda caches, before, after: (Key("ns", "bridge"),)),),
    )
    monkeypatch.setattr(operators, "CONTROLLERS", (*CONTROLLERS, bridge))
    monkeypatch.setattr(Controller, "changed", lambda self, key: told.append(f"{self.name} {key}"))
    operator = Operator(cast(Client, object()), Route(fixed={}), lambda: None, Images())
    operator.caches.store(theirs).put(Pod(metadata=ObjectMeta(name="a", namespace="ns", resource_version="1")))
    assert told == ["bridge ns/bridge"]
    assert len(operator.caches.pods) == 0


def test_the_operator_may_watch_whatever_a_controller_is_registered_with() -> None:
    (role,) = (each for each in build_operator.manifests("x", "image", Images()) if each["kind"] == "ClusterRole")
    for registration in CONTROLLERS:
        for each in registration.all_watches():
            resource = each.selection.resource
            allowed = {
                verb
                for rule in role["rules"]
                if resource.group in rule["apiGroups"] and resource.plural in rule["resources"]
                for verb in rule["verbs"]
            }
            assert allowed >= {"get", "list", "watch"}, resource.kind


def test_a_claim_concerns_those_whose_home_it_is() -> None:
    rig = Rig()

    def put(name: str) -> list[str]:
        rig.told.clear()
        rig.caches.all_claims.put(PersistentVolumeClaim(metadata=rig.meta(name)))
        return sorted(rig.told)

    for name, home in (("ours", Home()), ("theirs", Home(claim="files")), ("none", None)):
        rig.caches.clusters.put(SlurmCluster(metadata=rig.meta(name), spec=SlurmClusterSpec(home=home)))
    for name, of in (("a", "ours"), ("b", "theirs")):
        rig.caches.nodesets.put(replace(nodeset(name=name, cluster=of), metadata=rig.meta(name)))
    own = nodeset({"home": {"claim": "own"}}, name="c", cluster="none")
    rig.caches.nodesets.put(replace(own, metadata=rig.meta("c")))
    assert put("ours-home") == ["ns/ours", "set ns/a"]
    assert put("files") == ["ns/theirs", "set ns/b"]
    assert put("own") == ["set ns/c"]
    assert put("somebody-elses") == []


def test_a_change_of_a_clusters_users_concerns_the_cluster_and_its_nodesets_only_when_the_files_change() -> None:
    key = Key("ns", "demo")
    assert {one.name: list(one.users(key)) for one in CONTROLLERS} == {"slurmcluster": [key], "nodeset": []}


@pytest.mark.parametrize(
    ("component", "before", "after", "asked"),
    [
        ("slurmd", "False", "True", True),
        ("slurmd", None, "True", True),
        ("slurmd", "True", "True", False),
        ("slurmd", "False", "False", False),
        ("slurmd", "True", None, False),
        ("login", "False", "True", False),
    ],
)
def test_slurm_is_asked_at_once_when_a_slurmd_becomes_ready(
    component: str, before: str | None, after: str | None, asked: bool
) -> None:
    def pod(ready: str | None) -> Pod | None:
        labels = {COMPONENT: component, CLUSTER: "demo", CLUSTER_NAMESPACE: "home"}
        status = PodStatus(conditions=(ObjectCondition(type="Ready", status=ready or ""),))
        return Pod(metadata=ObjectMeta(name="a", namespace="ns", labels=labels), status=status) if ready else None

    found = {one.slurm_news(pod(before), pod(after)) for one in CONTROLLERS} - {None}
    assert found == ({Key("home", "demo")} if asked else set())
