"""How long Slurm has been silent, as the caches and the connection show it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fakes.plan_model.things import cluster

from seltzer.api.core import Lease, LeaseSpec, ObjectMeta
from seltzer.build import names
from seltzer.controllers import members
from seltzer.controllers.caches import Caches
from seltzer.controllers.slurm_connection import PACE, SlurmConnection
from seltzer.kube.resource import Key
from seltzer.kube.store import Store

NOW = 10_000.0
KEY = Key("ns", "demo")
CLUSTER = cluster()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: NOW)


def caches(looking_for: float) -> Caches:
    stores: dict[str, Any] = {"clusters": {KEY: CLUSTER}, "deployments": {}, "leases": {}}
    metadata = ObjectMeta(namespace="ns", name=names.controller(CLUSTER))
    stores["leases"][Key("ns", metadata.name)] = Lease(metadata=metadata, spec=LeaseSpec(holder_identity="x"))
    pods: Store[Any] = Store({"cluster": lambda _: ()})
    return cast(Caches, SimpleNamespace(**stores, pods=pods, began=NOW - looking_for))


def silent_for(seconds: float) -> SlurmConnection:
    return cast(SlurmConnection, SimpleNamespace(view=None, unknown_for=seconds, cache=SimpleNamespace(pace=PACE)))


@pytest.mark.parametrize(
    ("why", "connection", "looking_for", "unreachable"),
    [
        ("a new leader waits for the first answer", None, PACE.stale / 2, False),
        ("nor does it wait for ever for a connection", None, PACE.stale * 2, True),
        ("the connection is new, or we have just written", silent_for(PACE.stale / 2), PACE.stale * 2, False),
        ("it hasn't answered for too long", silent_for(PACE.stale * 2), PACE.stale * 3, True),
    ],
)
def test_slurm_is_unreachable_after_a_minute_of_silence(
    why: str, connection: SlurmConnection | None, looking_for: float, unreachable: bool
) -> None:
    found = members.slurm(caches(looking_for), KEY, connection)
    assert (found.nodes, found.gone, found.unreachable) == (None, False, unreachable), why
