"""When a Slurm that doesn't answer certainly isn't there: only then may its nodes' pods go without being asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from seltzer.api.core import Lease, LeaseSpec, ObjectMeta, Pod
from seltzer.api.labels import EPOCH
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names
from seltzer.controllers import members
from seltzer.controllers.world import World
from seltzer.kube.resource import Key
from seltzer.kube.store import Store

KEY = Key("lab", "demo")
CLUSTER = SlurmCluster(metadata=ObjectMeta(namespace="lab", resource_version="1", name="demo", uid="1"))


def lease(holder: str = "", **annotations: str) -> Lease:
    metadata = ObjectMeta(
        namespace="lab", resource_version="1", name=names.controller(CLUSTER), annotations=annotations
    )
    return Lease(metadata=metadata, spec=LeaseSpec(holder_identity=holder))


def world(found: Lease | None, *, controller: bool) -> World:
    stores: dict[str, Any] = {"clusters": Store(), "leases": Store(), "deployments": Store()}
    stores["pods"] = Store({"cluster": lambda _: (str(KEY),)})
    stores["clusters"].put(CLUSTER)
    if found:
        stores["leases"].put(found)
    if controller:
        labels = names.labels(CLUSTER, "slurmctld")
        stores["pods"].put(
            Pod(metadata=ObjectMeta(namespace="lab", resource_version="1", name="demo-slurmctld-x", labels=labels))
        )
    return cast(World, SimpleNamespace(**stores))


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
    assert members.slurm(world(found, controller=controller), KEY, None).gone is gone
