"""When a Slurm that doesn't answer certainly isn't there: only then may its nodes' pods go without being asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from seltzer.api.core import Lease, LeaseSpec, ObjectMeta, Pod
from seltzer.api.labels import EPOCH
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names
from seltzer.controllers import members
from seltzer.controllers.caches import Caches
from seltzer.controllers.slurm_connection import PACE, SlurmConnection
from seltzer.kube.resource import Key
from seltzer.kube.store import Store

NOW = 10_000.0
KEY = Key("lab", "demo")
CLUSTER = SlurmCluster(metadata=ObjectMeta(namespace="lab", resource_version="1", name="demo", uid="1"))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: NOW)


def lease(holder: str = "", **annotations: str) -> Lease:
    metadata = ObjectMeta(
        namespace="lab", resource_version="1", name=names.controller(CLUSTER), annotations=annotations
    )
    return Lease(metadata=metadata, spec=LeaseSpec(holder_identity=holder))


def caches(found: Lease | None, *, controller: bool, lasting: float = 0.0, cluster: SlurmCluster = CLUSTER) -> Caches:
    stores: dict[str, Any] = {"clusters": Store(), "leases": Store(), "deployments": Store()}
    stores["pods"] = Store({"cluster": lambda _: (str(KEY),)})
    stores["clusters"].put(cluster)
    if found:
        stores["leases"].put(found)
    if controller:
        labels = names.labels(CLUSTER, "slurmctld")
        stores["pods"].put(
            Pod(metadata=ObjectMeta(namespace="lab", resource_version="1", name="demo-slurmctld-x", labels=labels))
        )
    return cast(Caches, SimpleNamespace(**stores, began=NOW - lasting))


def silent_for(seconds: float) -> SlurmConnection:
    return cast(SlurmConnection, SimpleNamespace(view=None, unknown_for=seconds, cache=SimpleNamespace(pace=PACE)))


@pytest.mark.parametrize(
    ("found", "controller", "gone"),
    [
        pytest.param(None, False, True, id="nothing has been made yet"),
        pytest.param(lease(), True, True, id="its first pod hasn't begun"),
        pytest.param(lease("demo-slurmctld-x"), False, False, id="its pod is away, its jobs may not be"),
        pytest.param(lease("", **{EPOCH: "3"}), False, False, id="it has run"),
        pytest.param(None, True, False, id="somebody deleted the Lease beside a controller"),
    ],
)
def test_who_does_not_answer_is_gone_only_when_that_is_certain(
    found: Lease | None, controller: bool, gone: bool
) -> None:
    assert members.slurm(caches(found, controller=controller), KEY, None).gone is gone


@pytest.mark.parametrize(
    ("why", "connection", "lasting", "unreachable"),
    [
        ("a new leader waits for the first answer", None, 59.0, False),
        ("who can't even ask doesn't wait for ever", None, 61.0, True),
        ("it is asked for the first time, or we have just written", silent_for(59.0), 900.0, False),
        ("it hasn't answered for too long", silent_for(61.0), 900.0, True),
    ],
)
def test_who_does_not_answer_is_unreachable_after_a_minute(
    why: str, connection: SlurmConnection | None, lasting: float, unreachable: bool
) -> None:
    seen = members.slurm(caches(lease("demo-slurmctld-x"), controller=True, lasting=lasting), KEY, connection)
    assert (seen.nodes, seen.gone, seen.unreachable) == (None, False, unreachable), why


@pytest.mark.parametrize(
    ("why", "connection", "lasting", "gone"),
    [
        ("a new leader has asked nobody yet", None, 299.0, False),
        ("nobody could be asked for long", None, 301.0, True),
        ("it answered a while ago", silent_for(299.0), 900.0, False),
        ("it hasn't answered for long", silent_for(301.0), 900.0, True),
    ],
)
def test_a_deleted_cluster_that_does_not_answer_is_gone_after_we_have_asked_for_long(
    why: str, connection: SlurmConnection | None, lasting: float, gone: bool
) -> None:
    metadata = msgspec.structs.replace(CLUSTER.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    deleted = msgspec.structs.replace(CLUSTER, metadata=metadata)
    found = caches(lease("demo-slurmctld-x"), controller=True, lasting=lasting, cluster=deleted)
    assert members.slurm(found, KEY, connection).gone is gone, why


def test_who_is_gone_is_not_waited_for() -> None:
    assert not members.slurm(caches(None, controller=False, lasting=900.0), KEY, None).unreachable
