"""Conditions: what is true now, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from seltzer.api.common import Condition

Status = Literal["True", "False", "Unknown"]
_MOST_MESSAGE = 2000


@dataclass(frozen=True)
class Finding:
    """One condition's state. Where something is wrong, `message` says what to do."""

    type: str
    status: Status
    reason: str
    message: str

    @property
    def holds(self) -> bool:
        return self.status == "True"


def settle(before: Sequence[Condition], found: Iterable[Finding], generation: int, now: str) -> tuple[Condition, ...]:
    """The findings as conditions. One whose status didn't change keeps its transition time."""
    known = {condition.type: condition for condition in before}
    settled = []
    for finding in found:
        old = known.get(finding.type)
        since = old.last_transition_time if old and old.status == finding.status else now
        settled.append(
            Condition(
                type=finding.type,
                status=finding.status,
                reason=finding.reason,
                message=finding.message[:_MOST_MESSAGE],
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return tuple(settled)


def find(conditions: Sequence[Condition], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type_), None)
