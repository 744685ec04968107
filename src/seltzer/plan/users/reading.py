"""When a directory is read again, and which of its answers are faults."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Final

from seltzer.plan.users import ledger as ledgers
from seltzer.plan.users.accounts import LDAP, Source
from seltzer.plan.users.ledger import LedgerError

# A directory that has never been read is tried again soon: the cluster has no users yet.
FIRST: Final = 10.0
# Directories lock an account after some wrong passwords. A changed Secret is tried at once.
REFUSED: Final = 300.0
LOST_GROUPS: Final = (
    "the directory returned no groups, and had some before: check groupBaseDN, groupFilter and the rights of the "
    "account of bindSecret; if it is meant to have none, change groupFilter"
)


@dataclass(frozen=True)
class History:
    """Whether the last complete answer had groups; None: no complete answer is known of."""

    had_groups: bool | None = None

    def lost_groups(self, groups: Sized) -> bool:
        """Whether an answer with these groups is a fault: all groups of a directory don't go at once."""
        return bool(self.had_groups) and len(groups) == 0

    def pause_after_failure(self, interval: float, *, refused: bool) -> float:
        """After how many seconds the directory is read again. `refused`: it doesn't accept the account."""
        if refused:
            return max(interval, REFUSED)
        return min(FIRST, interval) if self.had_groups is None else interval


def had_groups(ledger: Mapping[str, str] | None) -> bool:
    """Whether the directory returned groups when it was last read, maybe by an operator before this one."""
    try:
        known = ledgers.parse(ledger) if ledger is not None else ledgers.Ledger()
    except LedgerError:
        return False
    return any(each.source == LDAP for each in known.groups.values())


def failed(before: Source, why: str, now: str) -> Source:
    """A directory that can't be used: since when is said for the whole time, also if the reason changes."""
    return Source(LDAP, error=why, since=(before.since if before.error else "") or now)
