"""The API server does what our operator relies on, and our fake does the same: each test runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.fakes.apiserver.server import FakeApiServer
from tests.fakes.apiserver.things import (
    DEADLINE,
    DEPLOYMENTS,
    MAPS,
    NAMESPACES,
    NODESETS,
    PODS,
    QUOTAS,
    SECRETS,
    Item,
    until,
)
from tests.fakes.kubelet.cluster import FakeCluster
from tests.harness import Sandbox, pod

from seltzer.api import crd
from seltzer.kube.client import Client
from seltzer.kube.config import Config, from_kubeconfig
from seltzer.kube.crds import install
from seltzer.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from seltzer.kube.resource import Resource

IMAGE = "seltzer.dev/slurmctld:dev"


@dataclass(frozen=True)
class Rig:
    """An API server with our CRDs, real or not, and a namespace of one's own."""

    client: Client
    namespace: str

    def named(self, name: str, **metadata: Any) -> dict[str, Any]:
        return {"name": name, "namespace": self.namespace, **metadata}

    async def get(self, resource: Resource[Item], name: str) -> Item:
        return await self.client.get(resource, name, self.namespace)

    async def create(self, resource: Resource[Item], name: str, **parts: Any) -> Item:
        metadata = self.named(name, **parts.pop("metadata", {}))
        manifest = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **parts}
        return await self.client.create(resource, manifest, self.namespace)

    async def apply(
        self, resource: Resource[Item], name: str, *, manager: str = "seltzer", subresource: str = "", **parts: Any
    ) -> Item:
        metadata = self.named(name, **parts.pop("metadata", {}))
        manifest = {"metadata": metadata, **parts}
        return await self.client.apply(resource, manifest, manager=manager, subresource=subresource)

    async def patch(
        self, resource: Resource[Item], name: str, patch: Any, subresource: str = "", *, strategic: bool = False
    ) -> Item:
        return await self.client.patch(
            resource, name, self.namespace, patch=patch, subresource=subresource, strategic=strategic
        )

    async def delete(self, resource: Resource[Item], name: str, **options: Any) -> None:
        await self.client.delete(resource, name, self.namespace, **options)

    async def gone(self, resource: Resource[Item], name: str) -> None:
        async def missing() -> bool:
            try:
                await self.get(resource, name)
            except NotFound:
                return True
            return False

        await until(f"{resource.kind} {name} is gone", missing)


@pytest.fixture(scope="module")
def real(unattended: Sandbox) -> Config:
    return from_kubeconfig([Path(unattended.kubeconfig)])


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.e2e)])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    if request.param == "fake":
        async with FakeApiServer() as server, FakeCluster(server.state), Client(server.config()) as client:
            await install(client, crd.manifests())
            yield Rig(client, "mine")
        return
    async with Client(request.getfixturevalue("real")) as client:
        await install(client, crd.manifests())
        namespace = f"contract-{uuid4().hex[:8]}"
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})

        async def furnished() -> bool:
            return bool((await client.list_all(MAPS, namespace)).items)

        # Kubernetes puts a ConfigMap into every namespace, a moment later: to a watch it would be one event too many.
        await until("the namespace has what Kubernetes puts into it", furnished)
        try:
            yield Rig(client, namespace)
        finally:
            for each in (await client.list_all(MAPS, namespace)).items:
                await client.patch(MAPS, each.metadata.name, namespace, patch={"metadata": {"finalizers": None}})
            await client.delete(NAMESPACES, namespace)


NODESET = {"clusterRef": {"name": "demo"}, "replicas": 2}
SLEEPER = pod("sleeper", "trap 'exit 0' TERM; sleep 1000 & wait")["spec"] | {"terminationGracePeriodSeconds": 20}
NOWHERE = SLEEPER | {"nodeSelector": {"no": "where"}}


# --- create, get, errors ------------------------------------------------------------------------------------------


async def test_a_name_is_given_once(rig: Rig) -> None:
    first = await rig.create(MAPS, "one", data={"a": "1"})
    assert first.metadata.uid and first.metadata.creation_timestamp and int(first.metadata.resource_version)
    with pytest.raises(AlreadyExists) as refused:
        await rig.create(MAPS, "one", data={"a": "2"})
    assert (refused.value.status, refused.value.reason) == (409, "AlreadyExists")
    assert str(refused.value) == 'configmaps "one" already exists'
    assert (await rig.get(MAPS, "one")).data == {"a": "1"}
    await rig.delete(MAPS, "one")
    again = await rig.create(MAPS, "one")
    assert again.metadata.uid != first.metadata.uid


async def test_what_is_not_there_is_not_found(rig: Rig) -> None:
    for call in (
        lambda: rig.get(MAPS, "none"),
        lambda: rig.patch(MAPS, "none", {"data": {"a": "1"}}),
        lambda: rig.delete(MAPS, "none"),
        lambda: rig.apply(NODESETS, "none", subresource="status", status={"replicas": 1}),
    ):
        with pytest.raises(NotFound) as refused:
            await call()
        assert (refused.value.status, refused.value.reason) == (404, "NotFound")
        assert str(refused.value).endswith('"none" not found')


async def test_versions_grow_over_all_kinds(rig: Rig) -> None:
    items = [
        await rig.create(MAPS, "one"),
        await rig.create(NODESETS, "one", spec=NODESET),
        await rig.apply(MAPS, "one", data={"a": "1"}),
        await rig.create(MAPS, "two"),
    ]
    versions = [int(item.metadata.resource_version) for item in items]
    assert versions == sorted(set(versions))


# --- server-side apply --------------------------------------------------------------------------------------------


async def test_an_apply_creates_changes_and_takes_away_what_it_no_longer_names(rig: Rig) -> None:
    made = await rig.apply(MAPS, "one", metadata={"labels": {"x": "1", "y": "1"}}, data={"a": "1", "b": "1"})
    assert (made.data, made.metadata.labels) == ({"a": "1", "b": "1"}, {"x": "1", "y": "1"})
    changed = await rig.apply(MAPS, "one", metadata={"labels": {"x": "2"}}, data={"a": "2"})
    assert (changed.data, changed.metadata.labels) == ({"a": "2"}, {"x": "2"})
    assert changed.metadata.uid == made.metadata.uid
    emptied = await rig.apply(MAPS, "one")
    assert (emptied.data, emptied.metadata.labels) == ({}, {})


async def test_the_same_apply_again_changes_nothing(rig: Rig) -> None:
    cases: list[tuple[Resource[Item], dict[str, Any]]] = [
        (MAPS, {"data": {"a": "1"}, "metadata": {"labels": {"x": "1"}, "finalizers": ["test.dev/x"]}}),
        (NODESETS, {"spec": NODESET}),
        (DEPLOYMENTS, {"spec": deployment()}),
    ]
    for resource, parts in cases:
        first = await rig.apply(resource, "one", **parts)
        if resource is DEPLOYMENTS:
            first = await until("its status is written", lambda: _observed(rig))
        again = await rig.apply(resource, "one", **parts)
        assert again.metadata.resource_version == first.metadata.resource_version, resource.kind


async def _observed(rig: Rig) -> Item | None:
    item = await rig.get(DEPLOYMENTS, "one")
    conditions = item.status.get("conditions") or ()
    return item if item.status.get("observedGeneration") and conditions else None


async def test_what_two_apply_stays_until_both_drop_it(rig: Rig) -> None:
    await rig.apply(MAPS, "one", data={"both": "1", "mine": "1"})
    await rig.apply(MAPS, "one", manager="other", data={"both": "1", "theirs": "1"})
    assert (await rig.apply(MAPS, "one", data={"mine": "1"})).data == {"both": "1", "mine": "1", "theirs": "1"}
    assert (await rig.apply(MAPS, "one", manager="other", data={})).data == {"mine": "1"}


async def test_whoever_forces_another_value_owns_it_alone(rig: Rig) -> None:
    await rig.apply(MAPS, "one", data={"a": "1"})
    await rig.apply(MAPS, "one", manager="other", data={"a": "2"})
    assert (await rig.apply(MAPS, "one", data={})).data == {"a": "2"}, "it was no longer ours to take away"
    assert (await rig.apply(MAPS, "one", manager="other", data={})).data == {}


async def test_without_force_anothers_value_is_a_conflict(rig: Rig) -> None:
    await rig.apply(MAPS, "one", data={"a": "1"})
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": rig.named("one"), "data": {"a": "2"}}
    path, kind = MAPS.path(rig.namespace, "one"), "application/apply-patch+yaml"
    with pytest.raises(Conflict) as refused:
        await rig.client.call("PATCH", path, params={"fieldManager": "other"}, content=manifest, kind=kind)
    assert refused.value.reason == "Conflict" and 'conflict with "seltzer"' in str(refused.value)


async def test_what_was_created_or_patched_is_not_taken_away_by_an_apply(rig: Rig) -> None:
    await rig.create(MAPS, "one", data={"created": "1", "a": "1"})
    await rig.patch(MAPS, "one", {"data": {"patched": "1"}})
    await rig.apply(MAPS, "one", data={"a": "1"})
    assert (await rig.apply(MAPS, "one", data={})).data == {"created": "1", "patched": "1", "a": "1"}


async def test_what_a_patch_changes_is_no_longer_the_appliers(rig: Rig) -> None:
    await rig.apply(MAPS, "one", data={"a": "1", "b": "1"})
    await rig.patch(MAPS, "one", {"data": {"a": "2"}})
    assert (await rig.apply(MAPS, "one", data={})).data == {"a": "2"}


def deployment(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"]}
    return {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "one"}},
        "template": {
            "metadata": {"labels": {"app": "one"}},
            "spec": {"containers": list(containers) or [main], **spec},
        },
    }


def container(name: str, env: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, "env": [{"name": k, "value": v} for k, v in env.items()], **more}


async def test_lists_of_named_things_are_merged_by_name(rig: Rig) -> None:
    ports = [{"containerPort": 1, "name": "one"}, {"containerPort": 2, "name": "two"}]
    ours = deployment(container("main", {"A": "1", "B": "1"}, ports=ports, args=["x", "y"]), container("side", {}))
    await rig.apply(DEPLOYMENTS, "one", spec=ours)
    theirs = {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "C", "value": "1"}]}]}}}
    await rig.apply(DEPLOYMENTS, "one", manager="other", spec=theirs)
    ours = deployment(container("main", {"B": "2"}, ports=ports[1:], args=["z"]))
    after = await rig.apply(DEPLOYMENTS, "one", spec=ours)
    (main,) = after.spec["template"]["spec"]["containers"]
    assert {each["name"]: each["value"] for each in main["env"]} == {"B": "2", "C": "1"}
    assert [each["containerPort"] for each in main["ports"]] == [2]
    assert main["args"] == ["z"]


async def test_owners_and_finalizers_are_merged_one_by_one(rig: Rig) -> None:
    owners = [await rig.create(MAPS, name) for name in ("a", "b")]
    first, second = [reference(MAPS, each) for each in owners]
    await rig.apply(MAPS, "one", metadata={"finalizers": ["test.dev/a"], "ownerReferences": [first]})
    other = {"finalizers": ["test.dev/b"], "ownerReferences": [second]}
    both = (await rig.apply(MAPS, "one", manager="other", metadata=other)).metadata
    assert set(both.finalizers) == {"test.dev/a", "test.dev/b"}
    assert {each["name"] for each in both.owner_references} == {"a", "b"}
    one = (await rig.apply(MAPS, "one")).metadata
    assert (one.finalizers, [each["name"] for each in one.owner_references]) == (["test.dev/b"], ["b"])


async def test_an_apply_can_insist_on_a_uid_or_a_version(rig: Rig) -> None:
    with pytest.raises(Conflict):
        await rig.apply(MAPS, "one", metadata={"uid": "11111111-1111-1111-1111-111111111111"})
    made = await rig.apply(MAPS, "one", data={"a": "1"})
    with pytest.raises(Invalid):
        await rig.apply(MAPS, "one", metadata={"uid": "11111111-1111-1111-1111-111111111111"}, data={"a": "2"})
    with pytest.raises(Conflict):
        await rig.apply(MAPS, "one", metadata={"resourceVersion": "1"}, data={"a": "2"})
    kept = await rig.apply(MAPS, "one", metadata={"uid": made.metadata.uid}, data={"a": "3"})
    assert kept.data == {"a": "3"}


async def test_what_is_dropped_from_a_custom_resource_goes(rig: Rig) -> None:
    template = {"metadata": {"labels": {"a": "1", "b": "1"}}, "spec": {"nodeSelector": {"b": "1"}}}
    await rig.apply(NODESETS, "one", spec={**NODESET, "features": ["x", "y"], "podTemplate": template})
    await rig.apply(NODESETS, "one", manager="other", spec={"features": ["z"]})
    kept = {"metadata": {"labels": {"b": "1"}}}
    less = await rig.apply(NODESETS, "one", spec={**NODESET, "features": ["y"], "podTemplate": kept})
    assert set(less.spec["features"]) == {"y", "z"}
    assert less.spec["podTemplate"] == kept
    none = await rig.apply(NODESETS, "one", spec=NODESET)
    assert none.spec["features"] == ["z"]
    assert "podTemplate" not in none.spec


async def test_what_is_fixed_for_good_is_not_changed_by_an_apply(rig: Rig) -> None:
    await rig.apply(PODS, "one", spec=NOWHERE)
    with pytest.raises(Invalid) as refused:
        await rig.apply(PODS, "one", spec=NOWHERE | {"hostname": "another"})
    assert "pod updates may not change fields" in str(refused.value)
    labelled = await rig.apply(PODS, "one", metadata={"labels": {"a": "b"}}, spec=NOWHERE)
    assert labelled.metadata.labels == {"a": "b"}
    await rig.apply(DEPLOYMENTS, "one", spec=deployment())
    other = {"selector": {"matchLabels": {"app": "one", "more": "yes"}}}
    with pytest.raises(Invalid) as refused:
        await rig.apply(DEPLOYMENTS, "one", spec=deployment() | other)
    assert refused.value.status == 422


async def test_the_plain_text_of_a_secret_is_encoded(rig: Rig) -> None:
    made = await rig.create(SECRETS, "one", stringData={"a": "x"}, data={"b": "eQ=="})
    assert made.data == {"a": "eA==", "b": "eQ=="}


# --- patches ------------------------------------------------------------------------------------------------------


async def test_a_patch_onto_an_old_version_is_a_conflict(rig: Rig) -> None:
    old = (await rig.create(MAPS, "one")).metadata.resource_version
    new = (await rig.patch(MAPS, "one", {"metadata": {"resourceVersion": old}, "data": {"a": "1"}})).metadata
    assert new.resource_version != old
    with pytest.raises(Conflict) as refused:
        await rig.patch(MAPS, "one", {"metadata": {"resourceVersion": old}, "data": {"a": "2"}})
    assert refused.value.reason == "Conflict" and "the object has been modified" in str(refused.value)


async def test_a_patch_that_changes_nothing_is_no_write(rig: Rig) -> None:
    made = await rig.create(MAPS, "one", data={"a": "1"})
    same = await rig.patch(MAPS, "one", {"data": {"a": "1"}})
    assert same.metadata.resource_version == made.metadata.resource_version


async def test_a_json_patch_tests_before_it_changes(rig: Rig) -> None:
    await rig.create(MAPS, "one", metadata={"annotations": {"a/b": "1"}}, data={"a": "1"})
    is_so = {"op": "test", "path": "/metadata/annotations/a~1b", "value": "1"}
    await rig.patch(MAPS, "one", [is_so, put("/data/c", "1")])
    with pytest.raises(Invalid) as refused:
        await rig.patch(MAPS, "one", [{"op": "test", "path": "/data/c", "value": "2"}, put("/data/d", "1")])
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")
    with pytest.raises(Invalid):
        await rig.patch(MAPS, "one", [{"op": "remove", "path": "/data/none"}])
    assert (await rig.get(MAPS, "one")).data == {"a": "1", "c": "1"}


def put(path: str, value: str) -> dict[str, str]:
    return {"op": "add", "path": path, "value": value}


# --- generation and subresources ----------------------------------------------------------------------------------


async def test_the_generation_counts_changes_of_what_is_wanted_only(rig: Rig) -> None:
    assert (await rig.create(NODESETS, "one", spec=NODESET)).metadata.generation == 1
    labelled = await rig.patch(NODESETS, "one", {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})
    assert labelled.metadata.generation == 1
    reported = await rig.apply(NODESETS, "one", subresource="status", status={"replicas": 1})
    assert (reported.metadata.generation, reported.status["replicas"]) == (1, 1)
    assert (await rig.patch(NODESETS, "one", {"spec": {"replicas": 3}})).metadata.generation == 2
    assert (await rig.apply(NODESETS, "one", spec={**NODESET, "replicas": 3})).metadata.generation == 2
    assert (await rig.create(MAPS, "one")).metadata.generation is None


async def test_spec_and_status_are_written_each_in_its_place(rig: Rig) -> None:
    made = await rig.apply(NODESETS, "one", spec=NODESET, status={"replicas": 5})
    assert made.status.get("replicas") is None
    told = await rig.apply(NODESETS, "one", subresource="status", spec={"replicas": 9}, status={"replicas": 1})
    assert (told.spec["replicas"], told.status["replicas"]) == (2, 1)
    told = await rig.patch(NODESETS, "one", {"spec": {"replicas": 9}, "status": {"replicas": 4}}, "status")
    assert (told.spec["replicas"], told.status["replicas"]) == (2, 4)
    kept = await rig.patch(NODESETS, "one", {"spec": {"replicas": 7}, "status": {"replicas": 8}})
    assert (kept.spec["replicas"], kept.status["replicas"]) == (7, 4)


async def test_conditions_are_merged_by_type_and_the_same_status_is_no_write(rig: Rig) -> None:
    await rig.apply(NODESETS, "one", spec=NODESET)
    status = {"conditions": [condition("Ready", "True"), condition("Updated", "True")]}
    first = await rig.apply(NODESETS, "one", subresource="status", status=status)
    again = await rig.apply(NODESETS, "one", subresource="status", status=status)
    assert again.metadata.resource_version == first.metadata.resource_version
    other = {"conditions": [condition("Accepted", "True")]}
    await rig.apply(NODESETS, "one", subresource="status", manager="other", status=other)
    last = await rig.apply(NODESETS, "one", subresource="status", status={"conditions": [condition("Ready", "False")]})
    found = {each["type"]: each["status"] for each in last.status["conditions"]}
    assert found == {"Ready": "False", "Accepted": "True"}


def condition(kind: str, status: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "Tested",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }


async def test_a_nodeset_is_scaled_through_its_subresource(rig: Rig) -> None:
    await rig.apply(NODESETS, "one", spec=NODESET)
    await rig.apply(NODESETS, "one", subresource="status", status={"replicas": 2, "selector": "a=b"})
    scale = await rig.patch(NODESETS, "one", {"spec": {"replicas": 5}}, "scale")
    assert (scale.spec, scale.status) == ({"replicas": 5}, {"replicas": 2, "selector": "a=b"})
    after = await rig.get(NODESETS, "one")
    assert (after.spec["replicas"], after.metadata.generation) == (5, 2)


# --- deletion -----------------------------------------------------------------------------------------------------


async def test_a_finalizer_holds_an_object_until_it_is_removed(rig: Rig) -> None:
    await rig.create(NODESETS, "one", spec=NODESET, metadata={"finalizers": ["test.dev/a"]})
    await rig.delete(NODESETS, "one")
    held = (await rig.get(NODESETS, "one")).metadata
    assert held.deletion_timestamp and held.deletion_grace_period_seconds == 0
    assert held.generation == 2, "that it shall go is something that is wanted"
    await rig.delete(NODESETS, "one")
    assert (await rig.get(NODESETS, "one")).metadata == held, "once is enough"
    with pytest.raises(Invalid) as refused:
        await rig.patch(NODESETS, "one", {"metadata": {"finalizers": ["test.dev/a", "test.dev/b"]}})
    assert "no new finalizers can be added" in str(refused.value)
    with pytest.raises(AlreadyExists):
        await rig.create(NODESETS, "one", spec=NODESET)
    last = await rig.patch(NODESETS, "one", {"metadata": {"finalizers": None}})
    assert last.metadata.deletion_timestamp, "the answer is its last state"
    with pytest.raises(NotFound):
        await rig.get(NODESETS, "one")


async def test_an_applied_finalizer_is_removed_by_applying_without_it(rig: Rig) -> None:
    await rig.apply(MAPS, "one", metadata={"finalizers": ["test.dev/a"]})
    await rig.delete(MAPS, "one")
    await rig.apply(MAPS, "one")
    with pytest.raises(NotFound):
        await rig.get(MAPS, "one")


async def test_a_delete_can_insist_on_a_uid_and_a_version(rig: Rig) -> None:
    made = (await rig.create(MAPS, "one")).metadata
    for wrong in ({"uid": "11111111-1111-1111-1111-111111111111"}, {"resource_version": "1"}):
        with pytest.raises(Conflict) as refused:
            await rig.delete(MAPS, "one", **wrong)
        assert refused.value.reason == "Conflict" and "precondition" in str(refused.value)
    await rig.delete(MAPS, "one", uid=made.uid, resource_version=made.resource_version)
    with pytest.raises(NotFound):
        await rig.delete(MAPS, "one", uid=made.uid)


def reference(resource: Resource[Item], owner: Item) -> dict[str, Any]:
    names = {"name": owner.metadata.name, "uid": owner.metadata.uid}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **names}


async def test_what_is_owned_goes_with_its_last_owner(rig: Rig) -> None:
    a, b = [reference(MAPS, await rig.create(MAPS, name)) for name in ("a", "b")]
    await rig.create(MAPS, "of-a", metadata={"ownerReferences": [a]})
    await rig.create(MAPS, "of-of-a", metadata={"ownerReferences": [reference(MAPS, await rig.get(MAPS, "of-a"))]})
    await rig.create(MAPS, "of-both", metadata={"ownerReferences": [a, b]})
    await rig.delete(MAPS, "a")
    await rig.gone(MAPS, "of-a")
    await rig.gone(MAPS, "of-of-a")
    await until("a's reference is gone", lambda: _has_owners(rig, "of-both", ["b"]))
    await rig.delete(MAPS, "b")
    await rig.gone(MAPS, "of-both")


async def _has_owners(rig: Rig, name: str, owners: list[str]) -> bool:
    found = (await rig.get(MAPS, name)).metadata.owner_references
    return [each["name"] for each in found] == owners


async def test_what_is_owned_by_nobody_that_exists_goes(rig: Rig) -> None:
    owner = await rig.create(MAPS, "a")
    await rig.delete(MAPS, "a")
    await rig.create(MAPS, "late", metadata={"ownerReferences": [reference(MAPS, owner)]})
    await rig.gone(MAPS, "late")


async def test_what_is_owned_stays_while_a_finalizer_holds_its_owner(rig: Rig) -> None:
    owner = await rig.create(MAPS, "a", metadata={"finalizers": ["test.dev/a"]})
    held = await rig.create(MAPS, "held", metadata={"ownerReferences": [reference(MAPS, owner)]})
    await rig.delete(MAPS, "a")
    await rig.create(MAPS, "probe", metadata={"ownerReferences": [{**reference(MAPS, owner), "uid": "gone"}]})
    await rig.gone(MAPS, "probe")  # the collector was here
    assert (await rig.get(MAPS, "held")).metadata == held.metadata
    await rig.patch(MAPS, "a", {"metadata": {"finalizers": None}})
    await rig.gone(MAPS, "held")


async def test_in_the_foreground_the_owner_goes_last(rig: Rig) -> None:
    owner = await rig.create(MAPS, "a")
    blocking = {**reference(MAPS, owner), "blockOwnerDeletion": True}
    await rig.create(MAPS, "held", metadata={"ownerReferences": [blocking], "finalizers": ["test.dev/a"]})
    await rig.delete(MAPS, "a", propagation="Foreground")

    async def both_wait() -> bool:
        return all([(await rig.get(MAPS, name)).metadata.deletion_timestamp for name in ("a", "held")])

    await until("both are being deleted", both_wait)
    await rig.patch(MAPS, "held", {"metadata": {"finalizers": None}})
    await rig.gone(MAPS, "held")
    await rig.gone(MAPS, "a")


# --- pods ---------------------------------------------------------------------------------------------------------


async def ready(rig: Rig, name: str) -> Item:
    async def is_ready() -> Item | None:
        item = await rig.get(PODS, name)
        conditions = {each["type"]: each["status"] for each in item.status.get("conditions") or ()}
        return item if conditions.get("Ready") == "True" else None

    return await until(f"{name} is ready", is_ready)


async def test_a_pod_is_placed_and_gets_ready(rig: Rig) -> None:
    made = await rig.create(PODS, "one", spec=SLEEPER)
    assert (made.status["phase"], made.spec.get("nodeName"), made.metadata.generation) == ("Pending", None, 1)
    pod = await ready(rig, "one")
    assert pod.status["phase"] == "Running" and pod.status["podIP"] and pod.spec["nodeName"]
    (main,) = pod.status["containerStatuses"]
    assert main["ready"] and "running" in main["state"]
    assert pod.metadata.generation == 1, "where it runs is no change of what is wanted"


async def test_what_is_said_about_a_pod_goes_with_its_status(rig: Rig) -> None:
    await rig.create(PODS, "one", spec=SLEEPER, metadata={"annotations": {"old": "1", "kept": "1"}})
    pod = await ready(rig, "one")
    patch = {
        "metadata": {"uid": pod.metadata.uid, "labels": {"busy": "true"}, "annotations": {"new": "2", "old": None}},
        "status": {"conditions": [{"type": "seltzer.dev/Test", "status": "True", "reason": "Tried"}]},
    }
    told = await rig.patch(PODS, "one", patch, "status", strategic=True)
    conditions = {each["type"]: each["status"] for each in told.status["conditions"]}
    assert conditions["seltzer.dev/Test"] == "True" and conditions["Ready"] == "True"
    assert told.metadata.labels["busy"] == "true"
    assert told.metadata.annotations == {"kept": "1", "new": "2"}

    async def changes_nothing() -> bool:
        """A kubelet may write the status between two patches, but not for ever."""
        first, second = [await rig.patch(PODS, "one", patch, "status", strategic=True) for _ in range(2)]
        return bool(first.metadata.resource_version == second.metadata.resource_version)

    await until("the same once more changes nothing", changes_nothing)
    with pytest.raises(Invalid, match=r"metadata\.uid"):
        await rig.patch(PODS, "one", {**patch, "metadata": {"uid": "another"}}, "status", strategic=True)


async def test_a_pod_that_runs_is_given_time_to_end(rig: Rig) -> None:
    await rig.create(PODS, "one", spec=SLEEPER, metadata={"finalizers": ["test.dev/a"]})
    await ready(rig, "one")
    await rig.delete(PODS, "one")
    leaving = (await rig.get(PODS, "one")).metadata
    assert leaving.deletion_timestamp and (leaving.generation or 0) > 1

    async def ended() -> bool:
        return (await rig.get(PODS, "one")).metadata.deletion_grace_period_seconds == 0

    await until("the kubelet has ended it", ended)
    await rig.patch(PODS, "one", {"metadata": {"finalizers": None}})
    await rig.gone(PODS, "one")


async def test_a_pod_without_a_place_is_gone_at_once(rig: Rig) -> None:
    await rig.create(PODS, "one", spec=NOWHERE)
    await rig.delete(PODS, "one")
    with pytest.raises(NotFound):
        await rig.get(PODS, "one")


async def test_a_pod_whose_image_nobody_has_waits_and_says_why(rig: Rig) -> None:
    (main,) = SLEEPER["containers"]
    spec = SLEEPER | {"containers": [{**main, "image": "127.0.0.1:1/missing:none", "imagePullPolicy": "IfNotPresent"}]}
    await rig.create(PODS, "one", spec=spec)

    async def says_why() -> bool:
        (status,) = (await rig.get(PODS, "one")).status.get("containerStatuses") or [{}]
        return bool(status.get("state", {}).get("waiting", {}).get("reason") == "ImagePullBackOff")

    await until("it says that there is no image", says_why)
    assert (await rig.get(PODS, "one")).status["phase"] == "Pending"


async def test_a_pod_waits_for_what_it_mounts(rig: Rig) -> None:
    (main,) = SLEEPER["containers"]
    mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    volume = {"name": "data", "configMap": {"name": "late"}}
    await rig.create(PODS, "one", spec=SLEEPER | {"containers": [{**main, **mount}], "volumes": [volume]})

    async def placed() -> bool:
        return bool((await rig.get(PODS, "one")).spec.get("nodeName"))

    await until("it is placed", placed)
    assert (await rig.get(PODS, "one")).status["phase"] == "Pending"
    await rig.create(MAPS, "late")
    # A real kubelet looks again after a while, and the wait gets longer each time.
    await ready(rig, "one")


async def test_a_deployment_runs_its_pods_and_tells_how_they_are(rig: Rig) -> None:
    main = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"]}
    spec = deployment(main, terminationGracePeriodSeconds=1) | {"replicas": 2}
    await rig.apply(DEPLOYMENTS, "one", spec=spec)

    def told(**counts: int) -> Callable[[], Awaitable[Item | None]]:
        async def ask() -> Item | None:
            item = await rig.get(DEPLOYMENTS, "one")
            found = {name: item.status.get(name, 0) for name in counts}
            return item if found == counts else None

        return ask

    await until("both are ready", told(readyReplicas=2, updatedReplicas=2, availableReplicas=2, observedGeneration=1))
    pods = await rig.client.list_all(PODS, rig.namespace, params={"labelSelector": "app=one"})
    assert len(pods.items) == 2
    await rig.delete(PODS, pods.items[0].metadata.name)
    await rig.gone(PODS, pods.items[0].metadata.name)
    await until("it is replaced", told(readyReplicas=2))
    spec["template"]["metadata"]["labels"]["new"] = "yes"
    await rig.apply(DEPLOYMENTS, "one", spec=spec)
    await until("all are new", told(replicas=2, readyReplicas=2, updatedReplicas=2, observedGeneration=2))
    await rig.delete(DEPLOYMENTS, "one")

    async def none_left() -> bool:
        return not (await rig.client.list_all(PODS, rig.namespace)).items

    await until("its pods went with it", none_left)


async def test_a_quota_forbids_the_pod_that_is_too_many(rig: Rig) -> None:
    await rig.create(QUOTAS, "few", spec={"hard": {"pods": "1"}})

    async def counted() -> bool:
        return bool((await rig.get(QUOTAS, "few")).status.get("hard"))

    await until("the quota is in force", counted)
    await rig.create(PODS, "one", spec=NOWHERE)
    for attempt in (rig.create, rig.apply):
        with pytest.raises(Forbidden) as refused:
            await attempt(PODS, "two", spec=NOWHERE)
        assert refused.value.reason == "Forbidden"
        assert str(refused.value).startswith('pods "two" is forbidden: exceeded quota: few')
    await rig.delete(PODS, "one")

    async def fits() -> bool:
        with suppress(Forbidden):
            await rig.create(PODS, "two", spec=NOWHERE)
            return True
        return False

    await until("there is room again", fits)


async def test_nothing_is_created_in_a_namespace_that_is_going_away(rig: Rig) -> None:
    name = f"{rig.namespace}-going"
    await rig.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    other = Rig(rig.client, name)
    await other.create(MAPS, "held", metadata={"finalizers": ["test.dev/a"]})
    await rig.client.delete(NAMESPACES, name)
    with pytest.raises(Forbidden) as refused:
        await other.create(MAPS, "late")
    assert "because it is being terminated" in str(refused.value)

    async def leaving() -> bool:
        return (await other.get(MAPS, "held")).metadata.deletion_timestamp is not None

    await until("what is in it is being deleted", leaving)
    await other.patch(MAPS, "held", {"metadata": {"finalizers": None}})

    async def gone() -> bool:
        try:
            await rig.client.get(NAMESPACES, name)
        except NotFound:
            return True
        return False

    await until("it is gone", gone)


# --- lists and watches --------------------------------------------------------------------------------------------


async def test_a_list_comes_in_pages_and_is_chosen_by_labels_and_names(rig: Rig) -> None:
    for number in range(5):
        await rig.create(MAPS, f"m{number}", metadata={"labels": {"odd": str(number % 2), "test": "yes"}})

    async def names(**params: str) -> list[str]:
        listing = await rig.client.list_all(MAPS, rig.namespace, params=params)
        return [item.metadata.name for item in listing.items if item.metadata.name != "kube-root-ca.crt"]

    assert await names(limit="2") == [f"m{number}" for number in range(5)]
    assert await names(labelSelector="odd=1,test=yes") == ["m1", "m3"]
    assert await names(labelSelector="odd!=1,test") == ["m0", "m2", "m4"]
    assert await names(labelSelector="odd in (0, 7)") == ["m0", "m2", "m4"]
    assert await names(fieldSelector="metadata.name=m2") == ["m2"]


class Watched:
    """A watch, and what it has reported so far."""

    def __init__(self, rig: Rig, resource: Resource[Item], **params: str) -> None:
        self._rig = rig
        self._path = resource.path(rig.namespace)
        self._params = {"watch": "true", "timeoutSeconds": "60", **params}
        self.events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Watched:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        async with self._rig.client.stream(self._path, self._params) as content:
            async for line in content:
                event = msgspec.json.decode(line)
                self.events.put_nowait((event["type"], event["object"]))

    async def next(self) -> tuple[str, str]:
        """The next event, as its type and the object's name."""
        async with asyncio.timeout(DEADLINE):
            kind, item = await self.events.get()
        return kind, item["metadata"].get("name", "")


INITIAL = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "resourceVersion": "",
    "allowWatchBookmarks": "true",
}


async def test_a_watch_tells_what_there_is_then_that_this_was_all_then_what_happens(rig: Rig) -> None:
    mine = {"labels": {"mine": "yes"}}
    for name in ("a", "b"):
        await rig.create(MAPS, name, metadata=mine)
    await rig.create(MAPS, "other")
    async with Watched(rig, MAPS, labelSelector="mine=yes", **INITIAL) as watch:
        assert {await watch.next(), await watch.next()} == {("ADDED", "a"), ("ADDED", "b")}
        async with asyncio.timeout(DEADLINE):
            kind, bookmark = await watch.events.get()
        assert kind == "BOOKMARK"
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await rig.patch(MAPS, "a", {"data": {"x": "1"}})
        await rig.create(MAPS, "c", metadata=mine)
        await rig.delete(MAPS, "b")
        assert [await watch.next() for _ in range(3)] == [("MODIFIED", "a"), ("ADDED", "c"), ("DELETED", "b")]


async def test_a_change_of_labels_takes_an_object_in_and_out_of_a_watch(rig: Rig) -> None:
    made = await rig.create(MAPS, "a")
    async with Watched(rig, MAPS, labelSelector="in=yes", resourceVersion=made.metadata.resource_version) as watch:
        await rig.patch(MAPS, "a", {"metadata": {"labels": {"in": "yes"}}})
        await rig.patch(MAPS, "a", {"metadata": {"labels": {"in": "no"}}})
        last = await rig.patch(MAPS, "a", {"metadata": {"labels": {"in": "yes"}}})
        told = [await watch.next() for _ in range(3)]
        assert told == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]
        assert last.metadata.labels == {"in": "yes"}


async def test_a_watch_goes_on_after_a_version(rig: Rig) -> None:
    first = await rig.create(MAPS, "a")
    await rig.patch(MAPS, "a", {"data": {"x": "1"}})
    await rig.delete(MAPS, "a")
    async with Watched(rig, MAPS, resourceVersion=first.metadata.resource_version) as watch:
        assert [await watch.next(), await watch.next()] == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_deletion_has_a_version_of_its_own(rig: Rig) -> None:
    made = await rig.create(MAPS, "a")
    async with Watched(rig, MAPS, resourceVersion=made.metadata.resource_version) as watch:
        await rig.delete(MAPS, "a")
        async with asyncio.timeout(DEADLINE):
            kind, item = await watch.events.get()
        assert (kind, item["metadata"]["uid"]) == ("DELETED", made.metadata.uid)
        assert int(item["metadata"]["resourceVersion"]) > int(made.metadata.resource_version)


async def test_a_watch_ends_when_its_time_is_over(rig: Rig) -> None:
    async with Watched(rig, MAPS, **(INITIAL | {"timeoutSeconds": "1"})) as watch, asyncio.timeout(DEADLINE):
        assert watch._task
        await watch._task
