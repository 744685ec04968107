"""The store holds the newest of everything, and its indices agree with it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.things import Meta, Thing

from seltzer.kube.resource import Key
from seltzer.kube.store import Store


def thing(name: str, version: int, colour: str = "") -> Thing:
    return Thing(Meta(name, str(version)), colour)


def store() -> Store[Thing]:
    return Store({"colour": lambda item: [item.colour] if item.colour else []})


def test_an_old_version_changes_nothing() -> None:
    some = store()
    told: list[tuple[Thing | None, Thing | None]] = []
    some.watch(lambda before, after: told.append((before, after)))
    some.put(thing("a", 5, "red"))
    some.put(thing("a", 4, "blue"))
    some.put(thing("a", 5, "blue"))
    assert [item.colour for item in some] == ["red"]
    assert told == [(None, thing("a", 5, "red"))]
    some.remove(thing("a", 4))
    assert len(some) == 1, "an old deletion is not of the object that was made since"


def test_replacing_tells_what_vanished() -> None:
    some = store()
    for name in "ab":
        some.put(thing(name, 1))
    gone: list[str] = []
    some.watch(lambda before, after: gone.append(before.metadata.name) if before and after is None else None)
    some.replace([thing("b", 1), thing("c", 2)], "7")
    assert gone == ["a"]
    assert {key.name for key in some.keys()} == {"b", "c"}  # noqa: SIM118
    assert some.reached("7") and not some.reached("8")


def test_a_server_that_went_back_is_believed() -> None:
    some = store()
    some.put(thing("a", 50, "red"))
    some.replace([thing("a", 3, "blue")], "4")
    assert [item.colour for item in some] == ["blue"]
    assert some.resource_version == 4


def test_nothing_is_reached_before_the_first_synchronisation() -> None:
    some = store()
    some.put(thing("a", 50))
    assert not some.reached("1")


Change = st.tuples(
    st.sampled_from(["put", "remove", "replace"]), st.sampled_from("abc"), st.sampled_from(["red", "blue", ""])
)


@given(st.lists(Change, max_size=40))
def test_indices_agree_with_the_items(changes: list[tuple[str, str, str]]) -> None:
    some, truth = store(), dict[str, str]()
    for version, (what, name, colour) in enumerate(changes, start=1):
        if what == "put":
            some.put(thing(name, version, colour))
            truth[name] = colour
        elif what == "remove":
            some.remove(thing(name, version))
            truth.pop(name, None)
        else:
            some.replace([thing(name, version, colour)], str(version))
            truth = {name: colour}
    assert {item.metadata.name: item.colour for item in some} == truth
    for colour in ("red", "blue"):
        assert {item.metadata.name for item in some.by("colour", colour)} == {
            n for n, c in truth.items() if c == colour
        }
    assert all(some.get(Key("ns", name)) for name in truth)
