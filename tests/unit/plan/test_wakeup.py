"""Which wake-up counts."""

from __future__ import annotations

from seltzer.plan.wakeup import Wakeup, earliest, given


def test_the_earliest_wakeup_counts() -> None:
    late, early = Wakeup("late", 5.0), Wakeup("early", 0.5)
    assert earliest([late, early]) == early
    assert earliest([]) is None


def test_only_reasons_that_hold_wake() -> None:
    assert given([("yes", ["something"]), ("no", ())]) == (Wakeup("yes"),)
