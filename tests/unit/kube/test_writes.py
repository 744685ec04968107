"""A pass waits for its own writes, and only for those."""

from __future__ import annotations

from tests.fakes.things import Meta, Thing

from seltzer.kube.resource import Key
from seltzer.kube.store import Store
from seltzer.kube.writes import Writes

A, B = Key("ns", "a"), Key("ns", "b")


def test_a_write_is_read_when_the_store_has_reached_it() -> None:
    store: Store[Thing] = Store()
    store.replace([], "5")
    writes = Writes(store)
    assert writes.are_read(A), "nothing was written"
    writes.wrote(A, Thing(Meta("a-1", "9")))
    writes.wrote(A, Thing(Meta("a-0", "7")))
    assert not writes.are_read(A)
    assert writes.are_read(B), "another key's writes are its own"
    store.put(Thing(Meta("a-0", "7")))
    assert not writes.are_read(A), "not all of them"
    store.put(Thing(Meta("a-1", "9")))
    assert writes.are_read(A)


def test_a_bookmark_counts_and_a_store_that_is_not_synced_does_not() -> None:
    store: Store[Thing] = Store()
    writes = Writes(store)
    writes.wrote(A, Thing(Meta("a-1", "9")))
    store.put(Thing(Meta("a-1", "9")))
    assert not writes.are_read(A), "unknown is not yes"
    store.replace([], "8")
    store.progress("12")
    assert writes.are_read(A), "it was deleted meanwhile, and that is known"
