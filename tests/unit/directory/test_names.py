"""Two spellings of one DN are the same, two DNs aren't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.directory.names import same, without_bits


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("uid=a,dc=x", "UID=A,DC=X"),
        ("uid=a,dc=x", "uid = a , dc = x"),
        ("uid=a,dc=x", "uid=a;dc=x"),
        ("uid=a b,dc=x", "uid=a  b,dc=x"),
        (r"cn=Lovelace\, Ada,dc=x", r"cn=lovelace\2C ada,dc=x"),
        ("cn=Jürgen,dc=x", r"cn=J\c3\bcrgen,dc=x"),
        ("cn=a+uid=b,dc=x", "uid=b+cn=a,dc=x"),
        (r"cn=\23a,dc=x", r"cn=\#a,dc=x"),
        (r"cn=a\ ,dc=x", "cn=a,dc=x"),
    ],
)
def test_spellings_of_one_name_are_the_same(one: str, other: str) -> None:
    assert same(one) == same(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("uid=a,dc=x", "uid=a,dc=y"),
        ("uid=a,dc=x", "uid=a"),
        (r"cn=a\,dc=x", "cn=a,dc=x"),
        (r"cn=a\+b=c,dc=x", "cn=a+b=c,dc=x"),
        (r"cn=a\\,dc=x", r"cn=a\,dc=x"),
        ("uid=ab,dc=x", "uid=a b,dc=x"),
    ],
)
def test_other_names_are_others(one: str, other: str) -> None:
    assert same(one) != same(other)


@pytest.mark.parametrize("text", ["", "a", "a,b", ",", "uid=a,", "uid=a\\", "uid=a,,dc=x"])
def test_what_is_no_name_stays_as_it_is(text: str) -> None:
    assert same(text) == text


def test_a_unique_member_may_end_in_bits() -> None:
    assert without_bits("uid=a,dc=x#'0101'B") == "uid=a,dc=x"
    assert without_bits("uid=a#b,dc=x") == "uid=a#b,dc=x"


def escaped(value: str) -> str:
    return "".join(f"\\{byte:02x}" for byte in value.encode())


VALUES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), min_size=1, max_size=4)


@given(VALUES, VALUES)
def test_names_are_the_same_exactly_if_their_values_are(one: list[str], other: list[str]) -> None:
    def plain(values: list[str]) -> list[str]:
        return [" ".join(part for part in value.split(" ") if part).casefold() for value in values]

    names = [",".join(f"cn={escaped(value)}" for value in values) for values in (one, other)]
    assert (same(names[0]) == same(names[1])) == (plain(one) == plain(other))


@given(st.text('ab=,;+\\# "2c', max_size=20))
def test_any_text_has_a_spelling_of_its_own(text: str) -> None:
    assert same(same(text)) == same(text)
