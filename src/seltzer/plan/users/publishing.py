"""What a pass does about a cluster's users: from what is stored and listed to what is written next, and in which order.

Guarantees, whatever the sources list, whoever deletes ConfigMaps, and wherever an operator ends between two writes:

- Nobody is published whose ID the stored ledger doesn't have.
- What doesn't fit keeps people from coming, and nobody from leaving.
- Users whose files are lost while their source fails are locked until it answers. They aren't removed, and keep their
  IDs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from seltzer.plan.users.accounts import BUILT_IN_USER, NO_LOGIN, Account, Group, Published, Source
from seltzer.plan.users.ledger import Entry, Ledger
from seltzer.plan.users.merge import Merged, former, merge

# In a ledger that was made again: some source listed the name.
_UNKNOWN: Final = "unknown"
_FORMER: Final = "former-"
NOBODY: Final = Merged((), (), (), Ledger(), {})
"""What pods start with until there are users."""


@dataclass(frozen=True)
class Stored:
    """What the ConfigMaps have. None: some of it is missing."""

    ledger: Ledger | None = None
    published: Published | None = None
    # Whether there are all ConfigMaps with keys.
    keys_complete: bool = True


@dataclass(frozen=True)
class Memory:
    """What the ConfigMaps had when they were complete, as far as this operator has seen."""

    ledger: Ledger | None = None
    published: Published | None = None


@dataclass(frozen=True)
class Decision:
    """What to publish, and what has to be done before."""

    merged: Merged
    # It has to be saved first, in a pass of its own.
    save: bool
    # What doesn't fit; empty: everything does.
    too_large: str
    # Not even what is left without newcomers fits: nothing is written.
    stuck: bool = False
    # Pods can't start without files, and there were none yet.
    placeholder: bool = False

    @property
    def publish(self) -> bool:
        return not (self.save or self.stuck)


def remember(before: Memory, stored: Stored) -> Memory:
    """What is known from now on. What somebody has deleted is known from before."""
    published = stored.published or before.published
    if stored.published and not stored.keys_complete and before.published:
        published = _with_keys(stored.published, before.published)
    return Memory(stored.ledger or before.ledger, published)


def decide(sources: tuple[Source, ...], memory: Memory, stored: Stored, too_large: Callable[[Merged], str]) -> Decision:
    """The next step. `too_large` says what of a result doesn't fit into ConfigMaps; empty: all of it does."""
    before = memory.published or Published()
    known = memory.ledger or rebuilt(before)
    merged = merge(sources, known, _completed(before, known))
    why = too_large(merged)
    if why:
        merged = without_newcomers(merged, known, before)
    missing = stored.ledger is None and bool(merged.ledger.users or merged.ledger.groups)
    return Decision(
        merged,
        save=merged.ledger != known or missing,
        too_large=why,
        stuck=bool(why and too_large(merged)),
        placeholder=memory.published is None,
    )


def without_newcomers(merged: Merged, known: Ledger, before: Published) -> Merged:
    """Lets nobody in, and takes from everybody what they have lost: nothing needs more room than it has now."""
    accounts, gone = [], list(merged.removed)
    for account in merged.accounts:
        was, entry = before.accounts.get(account.name), known.users.get(account.name)
        may_stay = was is not None and was.uid == account.uid and not was.locked and not account.locked
        if was and may_stay and (entry is None or entry.source):
            accounts.append(replace(was, keys=tuple(key for key in was.keys if key in account.keys)))
        elif entry:
            gone.append(former(account.name, entry.id, known, before))
    active = {each.name for each in accounts}
    groups = [
        replace(group, members=tuple(name for name in old.members if name in group.members and name in active))
        for group in merged.groups
        if (old := before.groups.get(group.name)) and old.gid == group.gid
    ]
    return replace(
        merged,
        accounts=tuple(accounts),
        removed=tuple(sorted(gone, key=lambda each: (each.uid, each.name))),
        groups=tuple(groups),
        ledger=Ledger(
            {name: _shorter(entry, merged.ledger.users.get(name)) for name, entry in known.users.items()},
            {name: _shorter(entry, merged.ledger.groups.get(name)) for name, entry in known.groups.items()},
        ),
        origins={name: source for name, source in merged.origins.items() if name in active},
    )


def rebuilt(published: Published) -> Ledger:
    """The ledger, if somebody deleted it, from the files that the containers have. It never has the built-in user.

    The files don't say which source listed a user: they stay until all sources have been read. An ID whose name had no
    room in the files is reserved for a name that nobody has.
    """
    passing = {BUILT_IN_USER.name} if _has_built_in(published) else set()
    users = {
        name: Entry(each.uid, "" if each.shell == NO_LOGIN else _UNKNOWN)
        for name, each in published.accounts.items()
        if name not in passing
    }
    taken = {entry.id for entry in users.values()} | {BUILT_IN_USER.uid}
    users |= {f"{_FORMER}{uid}": Entry(uid) for uid in sorted(published.blocked - taken)}
    groups = {name: Entry(each.gid, _UNKNOWN) for name, each in published.groups.items() if name not in passing}
    return Ledger(users, groups)


def _completed(published: Published, ledger: Ledger) -> Published:
    """With those whom the ledger knows as somebody's users, and whose files are lost or were never written: locked."""
    accounts, groups = dict(published.accounts), dict(published.groups)
    for name, entry in ledger.users.items():
        if entry.source and (name not in accounts or accounts[name].uid != entry.id):
            accounts[name] = former(name, entry.id, ledger, Published())
    for name, entry in ledger.groups.items():
        if entry.source and name not in groups:
            groups[name] = Group(name, entry.id)
    return replace(published, accounts=accounts, groups=groups)


def _with_keys(published: Published, before: Published) -> Published:
    """With the keys that users had before, where they have none now."""

    def mended(account: Account) -> Account:
        was = before.accounts.get(account.name)
        if account.keys or was is None or was.uid != account.uid or account.locked:
            return account
        return replace(account, keys=was.keys)

    return replace(published, accounts={name: mended(each) for name, each in published.accounts.items()})


def _shorter(known: Entry, wanted: Entry | None) -> Entry:
    """The new entry, unless its line in the ledger is longer."""
    return wanted if wanted and wanted.id == known.id and len(wanted.source) <= len(known.source) else known


def _has_built_in(published: Published) -> bool:
    known, user = published.accounts.get(BUILT_IN_USER.name), BUILT_IN_USER
    return known is not None and (known.uid, known.full_name) == (user.uid, user.full_name)
