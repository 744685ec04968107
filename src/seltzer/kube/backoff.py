"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass
class Backoff:
    """Doubles from `first` to `last` seconds, with jitter, until it is reset."""

    first: float = 0.1
    last: float = 30.0
    failures: int = 0

    def next(self) -> float:
        # The exponent is capped first: after a day of failures the power would overflow.
        delay = min(self.first * 2.0 ** min(self.failures, 40), self.last)
        self.failures += 1
        return delay * random.uniform(0.7, 1.3)  # noqa: S311

    def reset(self) -> None:
        self.failures = 0
