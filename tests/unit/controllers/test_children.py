"""What has to be applied: what is missing, what we want otherwise, and what somebody else has changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from seltzer.api.core import Anything, ObjectMeta
from seltzer.controllers.caches import Caches
from seltzer.controllers.children import Children
from seltzer.kube.store import Store

SERVICE: dict[str, Any] = {"kind": "Service", "metadata": {"namespace": "ns", "name": "web"}, "spec": {"port": 1}}
OTHER: dict[str, Any] = {**SERVICE, "spec": {"port": 2}}


class Rig:
    """Children before a store that a test fills by hand."""

    def __init__(self) -> None:
        self.store: Store[Anything] = Store()
        self.store.replace([], "1")

        self.children = Children(cast(Caches, SimpleNamespace(owned={"Service": self.store}.__getitem__)))

    def answer(self, version: int, generation: int = 0) -> Anything:
        meta = ObjectMeta(namespace="ns", name="web", uid="u", resource_version=str(version), generation=generation)
        return Anything(metadata=meta)

    def applied(self, manifest: dict[str, Any], version: int, generation: int = 0) -> None:
        self.children.wrote(manifest, self.answer(version, generation))
        self.store.put(self.answer(version, generation))

    def drifted(self, manifest: dict[str, Any]) -> bool:
        return self.children.drifted([manifest]) == (manifest,)


def test_what_was_never_applied_is_applied_even_if_it_is_there() -> None:
    rig = Rig()
    assert rig.drifted(SERVICE)
    rig.store.put(rig.answer(5))
    assert rig.drifted(SERVICE), "who made it, and how, isn't known"
    assert rig.children.absent([SERVICE]) == ()


def test_what_is_as_it_was_applied_is_left_alone() -> None:
    rig = Rig()
    rig.applied(SERVICE, 5)
    assert not rig.drifted(SERVICE)
    assert rig.drifted(OTHER), "something else is wanted now"


def test_ones_own_write_that_the_store_has_not_heard_of_is_not_repeated() -> None:
    rig = Rig()
    rig.children.wrote(SERVICE, rig.answer(5))
    assert not rig.drifted(SERVICE)


def test_what_somebody_else_changed_or_deleted_is_applied_again() -> None:
    rig = Rig()
    rig.applied(SERVICE, 5)
    rig.store.put(rig.answer(6))
    assert rig.drifted(SERVICE)
    rig.applied(SERVICE, 7)
    rig.store.remove(rig.answer(8))
    assert rig.drifted(SERVICE) and rig.children.absent([SERVICE]) == (SERVICE,)


def test_a_new_status_is_no_change_where_there_is_a_generation() -> None:
    rig = Rig()
    rig.applied(SERVICE, 5, generation=2)
    rig.store.put(rig.answer(6, generation=2))
    assert not rig.drifted(SERVICE)
    rig.store.put(rig.answer(7, generation=3))
    assert rig.drifted(SERVICE)
