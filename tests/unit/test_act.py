"""What is looked at once more before something is done that can't be taken back."""

from __future__ import annotations

from typing import Any, cast

import pytest

from seltzer.api.core import Lease, LeaseSpec, ObjectMeta
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.controllers import resources
from seltzer.controllers.act import Actor, Subject
from seltzer.controllers.children import Children
from seltzer.kube.client import Client
from seltzer.plan.actions import RemoveStuckPod


def lease(version: str) -> Lease:
    metadata = ObjectMeta(name="demo-slurmctld", namespace="ns", resource_version=version)
    return Lease(metadata=metadata, spec=LeaseSpec(holder_identity="c-a"))


class Api:
    """An API server with this Lease."""

    def __init__(self, version: str) -> None:
        self._lease = lease(version)
        self.deleted: list[tuple[str, dict[str, Any]]] = []

    async def get(self, resource: object, name: str, namespace: str) -> Lease:
        assert (resource, name, namespace) == (resources.LEASES, "demo-slurmctld", "ns")
        return self._lease

    async def delete(self, resource: object, name: str, namespace: str, **how: Any) -> None:
        assert (resource, namespace) == (resources.PODS, "ns")
        self.deleted.append((name, how))


@pytest.mark.parametrize(
    ("why", "seen", "removed"),
    [
        ("its guard is as silent as it was", lease("7"), True),
        ("its guard has spoken since", lease("6"), False),
        ("its time is over, whatever its guard says", None, True),
    ],
)
async def test_a_silent_pod_is_removed_only_if_it_is_silent_still(why: str, seen: Lease | None, removed: bool) -> None:
    api = Api("7")
    subject = Subject(resources.CLUSTERS, SlurmCluster(metadata=ObjectMeta(name="demo", namespace="ns")))
    actor = Actor(cast(Client, api), cast(Children, None), subject, None)
    done = await actor.act((RemoveStuckPod("ns", "c-a", "uid-a", "n1", "not heard of", seen),))
    assert not done.failures
    assert api.deleted == ([("c-a", {"uid": "uid-a", "grace_seconds": 0})] if removed else []), why
