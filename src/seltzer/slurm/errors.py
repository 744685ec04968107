"""Errors between us and Slurm, in four kinds that callers handle differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seltzer.errors import SeltzerError


class SlurmError(SeltzerError):
    """Slurm did not do or return what was requested."""


class Unavailable(SlurmError):
    """No answer, or a malformed one: Slurm's state, and whether a write was carried out, are unknown."""


class Refused(SlurmError):
    """Slurm rejects our token, so nothing was done: the key is wrong, or the clocks are far apart."""


class Unsupported(SlurmError):
    """This slurmrestd is too old for the request; nothing was done."""


@dataclass(frozen=True)
class Problem:
    """One entry of `errors[]`, in Slurm's own words."""

    number: int
    error: str
    description: str = ""

    def __str__(self) -> str:
        words = ": ".join(part for part in (self.description, self.error) if part) or "unknown error"
        return f"{words} ({self.number})"


class Rejected(SlurmError):
    """Slurm understood and refused, perhaps only in part: some nodes of a bulk write may have been changed."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("Slurm says: " + "; ".join(map(str, problems)))
        self.problems = tuple(problems)

    @property
    def numbers(self) -> frozenset[int]:
        """Slurm's error numbers."""
        return frozenset(problem.number for problem in self.problems)
