"""Keeps private groups private: a user's own group, which has the user's name and ID, is nobody else's primary group.

Directories may hide groups: their users then have a gid of which nothing else is known, and the own group of another
user could get it. Each of them could read what the other shares with the own group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seltzer.plan.users.accounts import Account, Published
from seltzer.plan.users.ledger import Ledger


def intruders(
    private: Mapping[int, str], accounts: Mapping[str, Account], ledger: Ledger, before: Published
) -> dict[str, str]:
    """The accounts to refuse, and why. `private` has the owners of private groups by gid, removed users included.

    Whoever had the gid first keeps it. Of two that are new, the owner of the private group is refused.
    """
    found: dict[str, str] = {}
    sharing = _by_gid(accounts.values(), private)
    sharing_before = _by_gid((each for each in before.accounts.values() if each.name in ledger.users), private)
    for gid, owner in private.items():
        had = set(sharing_before.get(gid, ()))
        # Files of those who have left or are refused may have the gid that they had.
        others = {*sharing.get(gid, ()), *(name for name in had if name not in accounts)} - {owner}
        if not others:
            continue
        # A group that the ledger has stays the owner's, also when the owner has left or has another primary group.
        if owner in ledger.groups and ledger.groups[owner].id == gid:
            why = (
                f"gid {gid} is the own group of {owner}, who could share files by it: use another gid, or list the "
                f"group {owner} in a source"
            )
            found |= dict.fromkeys((name for name in others - had if name in accounts), why)
        elif owner in accounts:
            found[owner] = (
                f"gid {gid} of the own group is the primary gid of {_named(others)}, who could read {owner}'s files: "
                f"give {owner} a gid, or list the group {owner} in a source"
            )
    return found


def _by_gid(accounts: Iterable[Account], wanted: Mapping[int, str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for each in accounts:
        if each.gid is not None and each.gid in wanted:
            found.setdefault(each.gid, []).append(each.name)
    return found


def _named(names: Iterable[str]) -> str:
    first, *more = sorted(names)
    return f"{first} and {len(more):,} more" if more else first
