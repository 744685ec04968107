"""For how long something has been so, by our own clock."""

from __future__ import annotations

from seltzer.controllers.ages import Ages
from seltzer.kube.resource import Key

CPU, GPU = Key("ns", "cpu"), Key("ns", "gpu")


def test_a_thing_grows_old_from_the_first_look_that_sees_it() -> None:
    ages = Ages()
    assert ages.of(CPU, ["a"], 100.0) == {"a": 0.0}
    assert ages.of(CPU, ["a", "b"], 103.0) == {"a": 3.0, "b": 0.0}


def test_one_that_a_look_doesnt_see_starts_over() -> None:
    ages = Ages()
    ages.of(CPU, ["a"], 100.0)
    assert ages.of(CPU, [], 101.0) == {}
    assert ages.of(CPU, ["a"], 102.0) == {"a": 0.0}


def test_each_object_has_its_own() -> None:
    ages = Ages()
    ages.of(CPU, ["a"], 100.0)
    assert ages.of(GPU, ["a"], 101.0) == {"a": 0.0}
    assert ages.of(CPU, ["a"], 102.0) == {"a": 2.0}
    ages.forget(CPU)
    assert ages.of(CPU, ["a"], 103.0) == {"a": 0.0}
