"""The annotations of the controller's Lease."""

from __future__ import annotations

from seltzer.api import labels
from seltzer.wire import annotations as wire


def test_all_of_them_are_ours_and_none_is_there_twice() -> None:
    found = [value for name, value in vars(wire).items() if name.isupper() and name != "PREFIX"]
    assert len(found) == len(set(found)) == 15
    assert all(each.startswith(wire.PREFIX) for each in found)


def test_labels_has_the_same_ones() -> None:
    shared = {name for name in vars(wire).keys() & vars(labels).keys() if name.isupper()}
    assert "PHASE" in shared
    assert {name for name in shared if getattr(wire, name) != getattr(labels, name)} == set()
