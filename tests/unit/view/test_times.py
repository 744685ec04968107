"""Times and durations are short."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from seltzer.view import times

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stamp", "age"),
    [
        ("2026-01-02T12:00:00Z", "0s"),
        ("2026-01-02T12:00:09Z", "0s"),
        ("2026-01-02T11:59:18.5Z", "41s"),
        ("2026-01-02T11:55:01Z", "4m"),
        ("2026-01-02T08:40:00Z", "3h20m"),
        ("2026-01-02T09:00:00+00:00", "3h"),
        ("2026-01-01T23:00:00Z", "13h"),
        ("2025-12-31T08:00:00Z", "2d4h"),
        ("2025-01-01T00:00:00Z", "366d"),
        (None, ""),
        ("nonsense", ""),
    ],
)
def test_ages_are_short(stamp: str | None, age: str) -> None:
    assert times.age(stamp, NOW) == age


def test_a_time_that_is_over_is_any_moment() -> None:
    assert (times.until(300), times.until(0), times.until(-5)) == ("in 5m", "any moment", "any moment")


def test_programs_get_rfc_3339() -> None:
    assert (times.stamp(1_000_000_060), times.stamp(None)) == ("2001-09-09T01:47:40+00:00", None)
