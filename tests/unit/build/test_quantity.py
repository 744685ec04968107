"""Quantities mean what Kubernetes means by them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.build.quantity import QuantityError, cpus, mebibytes, parse

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60), "e3": Fraction(1000), "E3": Fraction(1000), "e-2": Fraction(1, 100),
    "E+2": Fraction(100),
}  # fmt: skip


@given(st.integers(0, 10**12), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_a_number_times_its_suffix(whole: int, thousandths: int, suffix: str) -> None:
    exact = Fraction(whole) + Fraction(thousandths, 1000)
    assert parse(f"{whole}.{thousandths:03}{suffix}") == exact * SUFFIXES[suffix]
    assert parse(f"{whole}{suffix}") == whole * SUFFIXES[suffix]


@pytest.mark.parametrize(("text", "much"), [("5.", 5), (".5", Fraction(1, 2)), (3, 3), ("0", 0), ("-1", -1), ("+1", 1)])
def test_odd_forms_that_kubernetes_takes(text: str | int, much: Fraction) -> None:
    assert parse(text) == much


@pytest.mark.parametrize("text", ["", ".", "1 Gi", "1gi", "Gi", "1KiB", "0x1", "1e", "1e3Ki", "½", "1_0", "1\n", "٣"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="isn't a quantity"):
        parse(text)


@given(st.text())
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        parse(text)
    except QuantityError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("much", "count"), [("100m", 1), ("1", 1), (2, 2), ("1999m", 1), ("2.5", 2), ("4e0", 4), ("0", 1), ("64", 64)]
)
def test_cpus_are_whole_and_at_least_one(much: str | int, count: int) -> None:
    assert cpus(much) == count


@pytest.mark.parametrize(
    ("much", "count"), [("1Gi", 1024), ("1G", 953), ("1048575", 1), ("2097151", 1), (2097152, 2), ("1.5Gi", 1536)]
)
def test_memory_is_in_whole_mebibytes(much: str | int, count: int) -> None:
    assert mebibytes(much) == count
