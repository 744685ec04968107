"""What comes after a pass, from the plan's wake-ups."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from seltzer.kube.controller import After, Done, Outcome
from seltzer.kube.resource import Key
from seltzer.plan.wakeup import Wakeup, earliest

logger = logging.getLogger(__name__)


def outcome(key: Key, wakeups: Sequence[Wakeup], cost: float = 0.0) -> Outcome:
    """The next pass comes with the earliest wake-up, or with the next change if there is none."""
    first = earliest(wakeups)
    if first is None:
        return Done(cost)
    logger.debug("%s: next pass in %.2f s: %s", key, first.after, "; ".join(each.reason for each in wakeups))
    return After(first.after, cost)
