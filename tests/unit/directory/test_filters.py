"""Filters: what people write becomes what LDAP sends, or one line says where it is wrong."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.directory import filters
from seltzer.directory.errors import Misconfigured

UID = "04037569640401"  # uid, then one byte


@pytest.mark.parametrize(
    ("filter", "encoded"),
    [
        ("(uid=a)", "a308" + UID + "61"),
        ("(uid>=a)", "a508" + UID + "61"),
        ("(uid<=a)", "a608" + UID + "61"),
        ("(uid~=a)", "a808" + UID + "61"),
        ("(uid=)", "a307" + "0403756964" + "0400"),
        ("(uid=*)", "8703756964"),
        (r"(uid=\2a)", "a308" + UID + "2a"),
        (r"(uid=\28\29\5c\00)", "a30b" + "0403756964" + "0404" + "28295c00"),
        ("(cn=ü)", "a308" + "0402636e" + "0402c3bc"),
        ("(uid=a*)", "a40a" + "0403756964" + "3003" + "800161"),
        ("(uid=*a)", "a40a" + "0403756964" + "3003" + "820161"),
        ("(uid=a*b*c)", "a410" + "0403756964" + "3009" + "800161" + "810162" + "820163"),
        ("(uid=*b*)", "a40a" + "0403756964" + "3003" + "810162"),
        ("(!(uid=a))", "a20a" + "a308" + UID + "61"),
        ("(&(uid=a)(uid=b))", "a014" + "a308" + UID + "61" + "a308" + UID + "62"),
        ("(|(uid=a)(uid=b))", "a114" + "a308" + UID + "61" + "a308" + UID + "62"),
        ("(uid:2.5.13.5:=a)", "a910" + "8108322e352e31332e35" + "8203756964" + "830161"),
        ("(uid:dn:=a)", "a90b" + "8203756964" + "830161" + "8401ff"),
        ("(:2.5.13.5:=a)", "a90d" + "8108322e352e31332e35" + "830161"),
    ],
)
def test_a_filter_is_encoded(filter: str, encoded: str) -> None:
    expected = bytes.fromhex(encoded)
    found = filters.encode(filter)
    assert found[:1] + found[2:] == expected[:1] + expected[2:]
    assert found[1] == len(found) - 2


@pytest.mark.parametrize(
    ("filter", "place", "why"),
    [
        ("", 1, 'a filter begins with "("'),
        ("uid=a", 1, 'a filter begins with "("'),
        ("(uid=a", 2, "expected attribute=value)"),
        ("(uid=a))", 8, "the filter ends before this"),
        ("(&(uid=a)", 10, '")" is missing'),
        ("(&)", 1, "& needs filters after it"),
        ("(!(uid=a)(uid=b))", 1, "! needs one filter after it"),
        ("(uid)", 2, "expected attribute=value)"),
        ("(=a)", 2, "expected attribute=value)"),
        (r"(uid=\2)", 2, "a backslash needs two hexadecimal digits after it"),
        ("(uid=a**b)", 2, "there is nothing between two *"),
        ("(:=a)", 2, "an attribute or a matching rule is missing"),
        ("(uid:rule=a)", 2, "expected attribute=value)"),
        ("(!" * 40 + "(uid=a)" + ")" * 40, 67, "filters are nested more than 32 deep"),
    ],
)
def test_a_wrong_filter_gets_one_line_with_the_place(filter: str, place: int, why: str) -> None:
    with pytest.raises(Misconfigured) as error:
        filters.encode(filter)
    assert f"at character {place}: {why}" in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text(alphabet="()&|!=*<>~:\\2aü. dn", max_size=40))
def test_any_text_is_a_filter_or_misconfigured(text: str) -> None:
    with contextlib.suppress(Misconfigured):
        assert filters.encode(text)
