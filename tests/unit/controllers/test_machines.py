"""How long a Kubernetes node has been as it is, by our own clock."""

from __future__ import annotations

from seltzer.api.core import Node, NodeCondition, NodeMeta, NodeSpec, NodeStatus, Taint
from seltzer.controllers.machines import MISSING_SECONDS, Machines, differs
from seltzer.kube.resource import Key
from seltzer.kube.store import Store

CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class Rig:
    """One node, and a clock that we move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.following = 1000.0
        self.told: list[str] = []
        self._version = 0
        self.store: Store[Node] = Store()
        self.machines = Machines(self.store, lambda: self.following, lambda: self.now)
        self.store.watch(self._on_node)

    def _on_node(self, before: Node | None, after: Node | None) -> None:
        if differs(before, after):
            self.told.append("n1")

    def put(self, ready: str = "True", *, cordoned: bool = False, taints: tuple[Taint, ...] = ()) -> None:
        self._version += 1
        metadata = NodeMeta(name="n1", resource_version=str(self._version))
        status = NodeStatus(conditions=(NodeCondition(type="Ready", status=ready),))
        self.store.put(Node(metadata=metadata, spec=NodeSpec(unschedulable=cordoned, taints=taints), status=status))

    def of(self) -> tuple[float, int]:
        found = self.machines.of(["n1"])["n1"]
        return found.calm, found.changes

    def is_gone(self) -> bool:
        found = self.machines.of(["n1", ""])
        return "n1" in found and found["n1"].node is None


def test_one_that_was_never_seen_is_unknown_until_it_has_been_looked_for_for_long() -> None:
    """A pod may be told of before the node that it is on."""
    rig = Rig()
    rig.now += 500
    assert rig.machines.of(["n1", ""]) == {}, "nobody has looked for it yet"
    rig.now += MISSING_SECONDS - 0.1
    assert rig.machines.of(["n1", ""]) == {}
    rig.now += 0.1
    assert rig.is_gone()
    assert rig.of() == (MISSING_SECONDS, 0)
    rig.put()
    assert not rig.is_gone()


def test_what_is_missing_while_nobody_tells_us_of_nodes_is_unknown() -> None:
    rig = Rig()
    rig.following = 0.0
    rig.machines.of(["n1"])
    rig.now += MISSING_SECONDS
    assert rig.machines.of(["n1"]) == {}
    rig.following = MISSING_SECONDS
    assert rig.is_gone()


def test_one_that_nobody_has_looked_for_for_a_while_is_looked_for_again() -> None:
    rig = Rig()
    rig.machines.of(["n1"])
    rig.now += MISSING_SECONDS + 1
    assert not rig.is_gone(), "it may be a new one of an old name"
    rig.now += MISSING_SECONDS
    assert rig.is_gone()


def test_what_it_is_counts_from_when_we_saw_it_first_and_heartbeats_are_nothing() -> None:
    rig = Rig()
    rig.put()
    rig.now += 10
    rig.put()
    assert rig.told == ["n1"]
    assert rig.of() == (10, 0)


def test_a_cordon_is_one_change_though_it_is_written_in_two() -> None:
    rig = Rig()
    rig.put()
    rig.now += 10
    rig.put(cordoned=True)
    rig.now += 1
    rig.put(cordoned=True, taints=(CORDONED,))
    assert rig.told == ["n1"] * 3, "somebody may look at the taint"
    assert rig.of() == (1, 1)


def test_changes_of_long_ago_are_forgotten() -> None:
    rig = Rig()
    rig.put()
    for ready in ("False", "True", "False", "True"):
        rig.now += 3
        rig.put(ready)
    assert rig.of() == (0, 4)
    rig.now += 200
    assert rig.of() == (200, 0)


def test_one_that_is_removed_is_none_and_that_is_a_change() -> None:
    rig = Rig()
    rig.put()
    rig.now += 5
    found = rig.store.get(Key("", "n1"))
    assert found
    rig.store.remove(found)
    assert rig.machines.of(["n1"])["n1"].is_silent
    assert rig.of() == (0, 1)
