"""Hostlists: what they stand for, what can't be one, and the way there and back."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.slurm.hostlist import HostlistError, expand, fold

NAMES = st.from_regex(r"[a-z0-9.-]{0,4}(?:0{0,2}[0-9]{1,3})?[a-z]?", fullmatch=True).filter(bool)
RANGES = st.builds(
    lambda low, more, width: f"{low:0{width}}" + (f"-{low + more}" if more else ""),
    st.integers(0, 120),
    st.integers(0, 12),
    st.integers(1, 4),
)
BRACKETS = st.lists(RANGES, min_size=1, max_size=3).map(lambda ranges: f"[{','.join(ranges)}]")
TERMS = st.lists(st.one_of(st.from_regex(r"[a-z0-9-]{1,3}", fullmatch=True), BRACKETS), max_size=3).map("".join)
HOSTLISTS = st.lists(TERMS, max_size=4).map(",".join)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        (",,", ""),
        ("a", "a"),
        ("a,,b,", "a b"),
        ("n[1-3,7]", "n1 n2 n3 n7"),
        ("n[008-010]", "n008 n009 n010"),
        ("n[98-0101]", "n98 n99 n100 n101"),
        ("n[001,2,03]", "n001 n2 n03"),
        ("n[2,1-2]", "n2 n1 n2"),
        ("n[1-2]-ib,login", "n1-ib n2-ib login"),
        ("[1-2]", "1 2"),
        ("a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"),
        ("a[1-2][3-4]", "a13 a14 a23 a24"),
        ("a[1-2]b[3-4]c[5-6]", "a1b3c5 a1b3c6 a2b3c5 a2b3c6 a1b4c5 a1b4c6 a2b4c5 a2b4c6"),
    ],
)
def test_a_hostlist_stands_for_these_names_in_slurms_order(text: str, names: str) -> None:
    assert expand(text) == names.split()


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("", ""),
        ("a", "a"),
        ("n1", "n1"),
        ("1 2 3", "[1-3]"),
        ("n10 n9 n1 n2", "n[1-2,9-10]"),
        ("n1 n1", "n1"),
        ("n099 n100 n101", "n[099-101]"),
        ("n08 n09 n10 n99 n100", "n[08-10,99-100]"),
        ("n1 n01 n2 n02", "n[1-2,01-02]"),
        ("n n0 n00", "n,n[0,00]"),
        ("rack10-n1 rack9-n1 rack9-n2", "rack9-n[1-2],rack10-n1"),
        ("a1x a2x", "a1x,a2x"),
    ],
)
def test_names_fold_to_what_slurm_would_write(names: str, text: str) -> None:
    assert fold(names.split()) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a[1-", r"a \[ has no \]"),
        ("a[", r"a \[ has no \]"),
        ("a]", r"a \] has no \["),
        ("a[1]]", r"a \] has no \["),
        ("a[[1]]", r"a \[ has no \]"),
        ("a[]", "neither a number nor a range"),
        ("a[1,]", "neither a number nor a range"),
        ("a[x]", "'x' in brackets is neither"),
        ("a[1-]", "'1-' in brackets is neither"),
        ("a[-1]", "'-1' in brackets is neither"),
        ("a[1-2-3]", "neither a number nor a range"),
        ("a[1-9/2]", "neither a number nor a range"),
        ("a[٣]", "can't be in a node's name"),
        ("a[5-1]", "'5-1' goes backwards"),
        ("a[1-99999999]", "more than Slurm's 65536"),
        ("a[18446744073709551615]", "64 bits"),
        ("a99999999999999999999", "64 bits"),
        ("a[1-2]99999999999999999999", "64 bits"),
        ("a b", "' ' can't be"),
        ("a\nb", r"'\\n' can't be"),
        ("a\0", r"'\\x00' can't be"),
        ("a{1-3}", "'{' can't be"),
        ("é", "can't be"),
        ("\ud800", "can't be"),
        ("x" * 300, "longer than 255"),
        (f"a[{'0' * 9999}1]", "longer than 255"),
    ],
)
def test_what_is_no_hostlist_gets_one_line_that_says_why(text: str, reason: str) -> None:
    with pytest.raises(HostlistError, match=reason) as caught:
        expand(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a[1]", "a]", "a{", "a\n", "é", "x" * 256, "n18446744073709551615"])
def test_what_is_no_name_can_not_be_folded(name: str) -> None:
    with pytest.raises(HostlistError, match="can't be a node's name") as caught:
        fold(["ok", name])
    assert str(caught.value).isprintable()


def test_too_many_hosts_are_refused_before_they_take_memory() -> None:
    tracemalloc.start()
    try:
        for text in ("a[1-65000]b[1-65000]c[1-65000]", ",".join(["a[1-60000]"] * 2), f"{'x' * 9999}[1-60000]"):
            with pytest.raises(HostlistError):
                expand(text)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert len(expand("a[1-10]", limit=10)) == 10
    with pytest.raises(HostlistError, match="more than 9 nodes"):
        expand("a[1-10]", limit=9)


def test_a_range_too_long_for_slurm_is_folded_as_two() -> None:
    names = [f"n{number}" for number in range(70_000)]
    assert fold(names) == "n[0-65535,65536-69999]"
    assert expand(fold(names)) == names


@given(st.lists(NAMES))
def test_folded_names_expand_to_the_same_set(names: list[str]) -> None:
    expanded = expand(fold(names))
    assert len(expanded) == len(set(expanded))
    assert set(expanded) == set(names)


@given(HOSTLISTS)
def test_folding_is_the_same_whatever_way_a_hostlist_was_written(text: str) -> None:
    folded = fold(expand(text))
    assert set(expand(folded)) == set(expand(text))
    assert fold(reversed(expand(text))) == folded == fold(expand(folded))


@given(st.text(max_size=20) | st.text(alphabet="a0189[]-,", max_size=12))
def test_any_text_expands_or_is_refused(text: str) -> None:
    try:
        names = expand(text, limit=1000)
    except HostlistError:
        return
    assert set(expand(fold(names))) == set(names)
