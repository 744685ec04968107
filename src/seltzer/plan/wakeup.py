"""Why a pass is repeated although nothing changed: something depends on the time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Wakeup:
    """Look again after so many seconds. The reason is for logs and tests."""

    reason: str
    after: float = 1.0


def earliest(wakeups: Iterable[Wakeup]) -> Wakeup | None:
    """The one that counts; None: nothing depends on the time."""
    return min(wakeups, key=lambda each: each.after, default=None)


def given(reasons: Iterable[tuple[str, object]]) -> tuple[Wakeup, ...]:
    """A wake-up after a second for each reason whose condition holds."""
    return tuple(Wakeup(reason) for reason, holds in reasons if holds)
