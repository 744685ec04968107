"""Pods whose users are out of date are patched, in the same call as everything else about them."""

from __future__ import annotations

from tests.builders.objects import pod

from seltzer.api.labels import USERS
from seltzer.plan.actions import PatchPods, PodPatch
from seltzer.plan.nodeset import syncs


def test_only_pods_with_other_users_are_patched() -> None:
    pods = [pod("cpu-0", annotations={USERS: "old"}), pod("cpu-1", annotations={USERS: "new"}), pod("cpu-2")]
    (update,) = syncs.added((), pods, {USERS: "new"})
    assert [(each.name, each.annotations) for each in update.patches] == [
        ("cpu-0", {USERS: "new"}),
        ("cpu-2", {USERS: "new"}),
    ]
    assert syncs.added((), pods[1:2], {USERS: "new"}) == ()


def test_nothing_is_written_while_the_users_are_unknown_nor_to_pods_that_have_ended() -> None:
    assert syncs.added((), [pod("cpu-0")], {USERS: ""}) == ()
    assert syncs.added((), [pod("cpu-0", state="Failed")], {USERS: "new"}) == ()


def test_a_pod_is_patched_once() -> None:
    other = PodPatch("cpu-0", "uid-cpu-0", {"a": "b"}, {"c": "d"}, ())
    (update,) = syncs.added((PatchPods((other,)),), [pod("cpu-0"), pod("cpu-1")], {USERS: "new"})
    assert [(each.name, each.labels, each.annotations) for each in update.patches] == [
        ("cpu-0", {"a": "b"}, {"c": "d", USERS: "new"}),
        ("cpu-1", {}, {USERS: "new"}),
    ]
