"""Joins the sources into the users that all containers know.

Guarantees, whatever the sources list and in whatever order their states follow each other:

- An ID that the ledger has is never given to another name, and a name never gets another ID.
- An entry that is refused affects no other entry. If its user was published before, the user stays as published.
- A source that fails, or unexpectedly lists nobody, changes nothing. As long as it has never been read, nobody goes.
- A user whom no source lists stays resolvable, with a shell that refuses to log in and without keys.
- Nobody's primary group is the private group of somebody else, unless a source lists that group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seltzer.plan.users import checks, private_groups
from seltzer.plan.users.accounts import NO_LOGIN, Account, Group, Published, Refusal, Source
from seltzer.plan.users.ledger import Entry, Ledger

_EMPTY = "it lists no users, which is taken for a fault; to remove all of them, remove the source from spec.users"


@dataclass(frozen=True)
class Failure:
    """A source whose users stay as they were."""

    source: str
    why: str
    since: str = ""
    pending: bool = False


@dataclass(frozen=True)
class Merged:
    """The outcome. All parts are sorted by ID."""

    accounts: tuple[Account, ...]
    removed: tuple[Account, ...]
    # With the names of their members, without those whose primary group it is.
    groups: tuple[Group, ...]
    ledger: Ledger
    # The source of each active account.
    origins: Mapping[str, str]
    refusals: tuple[Refusal, ...] = ()
    failures: tuple[Failure, ...] = ()


def merge(sources: Sequence[Source], ledger: Ledger, published: Published) -> Merged:
    """The users and groups to publish, and the ledger that has to be saved before."""
    work = _Work(ledger, published)
    for source in sources:
        work.source(source)
    work.separate_private_groups()
    work.keep_refused()
    work.keep_unknown()
    return work.result()


@dataclass
class _Work:
    """A merge under way. The first source that lists a name has it."""

    ledger: Ledger
    published: Published
    accounts: dict[str, Account] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    # The names of those in spec.users.
    sources: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.users = dict(self.ledger.users)
        self.gids = dict(self.ledger.groups)
        self._by_uid = {entry.id: name for name, entry in self.users.items()}
        self._by_gid = {entry.id: name for name, entry in self.gids.items()}
        self._kept: list[tuple[Group, Source]] = []
        self._passing: set[str] = set()  # the names that the ledger doesn't remember
        self._listed: set[str] = set()  # the groups that a source lists now

    def source(self, source: Source) -> None:
        """Take what a source lists, or what it last listed."""
        self.sources.add(source.name)
        before = self._last_of(source.name)
        # Without those that another source lists now: their members are up to that source from the next pass on.
        groups_before = [each for each in self._last_groups_of(source.name) if each.name not in self.groups]
        # A source may list groups only. All of its users may have moved to another source, so groups count as well.
        missed = any(each.name not in self.accounts for each in before)
        lost = not source.accounts and (missed or bool(groups_before and not source.groups))
        why = source.error or (_EMPTY if lost and not source.explicit else "")
        if why:
            self.failures.append(Failure(source.name, why, source.since, source.pending))
        else:
            self.refusals += source.unreadable
            self._listed |= {group.name for group in source.groups}
        for group in groups_before if why else source.groups:
            self._group(group, source)
        for account in before if why else source.accounts:
            self._account(account, source)

    def separate_private_groups(self) -> None:
        """Refuse users whose files could be read through somebody's private group, or who could read through theirs."""
        private = {
            entry.id: name
            for name, entry in self.gids.items()
            if name not in self._listed and name in self.users and self.users[name].id == entry.id
        }
        for name, why in private_groups.intruders(private, self.accounts, self.ledger, self.published).items():
            self.refusals.append(Refusal(name, self.origins[name], why))
            self._withdraw(name, private)

    def _withdraw(self, name: str, private: Mapping[int, str]) -> None:
        account = self.accounts.pop(name)
        del self.origins[name]
        _restore(name, self.users, self.ledger.users)
        if private.get(account.uid) == name:
            self.groups.pop(name, None)
            _restore(name, self.gids, self.ledger.groups)

    def keep_refused(self) -> None:
        """Those that are refused now but weren't before stay as published; a group with another ID has new members."""
        for group, source in self._kept:
            if group.name not in self.groups:
                self._accept_group(group, source)
        for refusal in tuple(self.refusals):
            entries = self.ledger.groups if refusal.is_group else self.ledger.users
            known = entries.get(refusal.name)
            if known is not None and known.source == refusal.source:
                (self._keep_group if refusal.is_group else self._keep)(refusal.name, known)

    def keep_unknown(self) -> None:
        """While a source has never been read, nobody knows whom it lists: users whom no other source has may be its."""
        known = {entry.source for entry in (*self.ledger.users.values(), *self.ledger.groups.values())}
        if all(each.source in known for each in self.failures):
            return
        for name, entry in self.ledger.groups.items():
            if entry.source and entry.source not in self.sources:
                self._keep_group(name, entry)
        for name, entry in self.ledger.users.items():
            if entry.source and entry.source not in self.sources:
                self._keep(name, entry)

    def _keep(self, name: str, entry: Entry) -> None:
        account = self.published.accounts.get(name)
        if account and account.uid == entry.id and name not in self.accounts:
            self._accept(account, entry.source)

    def _keep_group(self, name: str, entry: Entry) -> None:
        group = self.published.groups.get(name)
        if group and group.gid == entry.id and name not in self.groups:
            self._accept_group(group, Source(entry.source))

    def result(self) -> Merged:
        removed = [
            self._removed(name, entry.id)
            for name, entry in self.users.items()
            if name not in self.accounts and name not in self._passing
        ]
        for account in removed:
            self.users[account.name] = Entry(account.uid)
        for name, entry in self.gids.items():
            if name not in self.groups and name not in self._passing:
                self.groups[name] = Group(name, entry.id)
                self.gids[name] = Entry(entry.id)
        return Merged(
            accounts=_by_id(self.accounts.values()),
            removed=_by_id(removed),
            groups=self._with_members(),
            ledger=Ledger(self._lasting(self.users), self._lasting(self.gids)),
            origins=self.origins,
            refusals=tuple(self.refusals),
            failures=tuple(self.failures),
        )

    def _lasting(self, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        return {name: entry for name, entry in entries.items() if name not in self._passing}

    # --- one entry ------------------------------------------------------------------------------------------------

    def _account(self, account: Account, source: Source) -> None:
        why = checks.of_account(account) or self._conflict(account)
        if why:
            self.refusals.append(Refusal(account.name, source.name, why))
            return
        if account.gid is None:
            own = self.groups.get(account.name) or Group(account.name, account.uid)
            if why := self._own_group_conflict(own):
                self.refusals.append(Refusal(account.name, source.name, why))
                return
            if own.name not in self.groups:
                self._accept_group(own, source)
            account = replace(account, gid=own.gid)
        if not source.lasting and account.name not in self.users:
            self._passing.add(account.name)
        self._accept(account, source.name)

    def _accept(self, account: Account, source: str) -> None:
        self.accounts[account.name] = account
        self.origins[account.name] = source
        self.users[account.name] = Entry(account.uid, source)
        self._by_uid[account.uid] = account.name

    def _conflict(self, account: Account) -> str:
        """Who else has the name or the ID."""
        if account.name in self.accounts:
            return f"{self.origins[account.name]} lists {account.name} already: remove one of them"
        known, owner = self.users.get(account.name), self._by_uid.get(account.uid)
        if known and known.id != account.uid:
            return (
                f"{account.name} has uid {known.id}, not {account.uid}, and owns files of {known.id}: give the uid "
                f"back, or, once nothing of uid {known.id} is left, delete {account.name}'s line from {{ledger}}"
            )
        if owner is not None and owner != account.name:
            return (
                f"uid {account.uid} belongs to {owner}: choose another, or, once nothing of {owner}'s is left, delete "
                f"{owner}'s line from {{ledger}}"
            )
        return ""

    def _group(self, group: Group, source: Source) -> None:
        why, known = checks.of_group(group), self.gids.get(group.name)
        if not why and group.name in self.groups:
            # A directory may list the groups of another source: with the same ID they are one group.
            first = self.groups[group.name]
            if first.gid == group.gid:
                members = tuple(dict.fromkeys((*first.members, *group.members)))
                self.groups[group.name] = replace(first, members=members)
                return
            why = f"the group {group.name} has gid {first.gid} in another source: use one gid"
        elif not why and known and known.id != group.gid:
            why = (
                f"the group {group.name} has gid {known.id}, not {group.gid}, and keeps it: give the gid back, or, "
                f"once nothing of gid {known.id} is left, delete its line from {{ledger}}"
            )
            if known.source == source.name:
                self._kept.append((replace(group, gid=known.id), source))
        elif not why and (owner := self._by_gid.get(group.gid)) not in (None, group.name):
            why = (
                f"gid {group.gid} belongs to {owner}: choose another, or, once nothing of {owner}'s is left, delete "
                f"{owner}'s line from {{ledger}}"
            )
        elif not why:
            self._accept_group(group, source)
        if why:
            self.refusals.append(Refusal(group.name, source.name, why, is_group=True))

    def _accept_group(self, group: Group, source: Source) -> None:
        if not source.lasting and group.name not in self.gids:
            self._passing.add(group.name)
        self.groups[group.name] = group
        self.gids[group.name] = Entry(group.gid, source.name)
        self._by_gid[group.gid] = group.name

    def _own_group_conflict(self, own: Group) -> str:
        known, owner = self.gids.get(own.name), self._by_gid.get(own.gid)
        if own.name in self.groups:
            return ""
        if (known and known.id != own.gid) or owner not in (None, own.name):
            return f"gid {own.gid} of the own group belongs to {owner or own.name}: give the user a gid"
        return ""

    # --- what was before ------------------------------------------------------------------------------------------

    def _last_of(self, source: str) -> tuple[Account, ...]:
        """The users that a source listed when it last could."""
        accounts = self.published.accounts
        return tuple(
            accounts[name]
            for name, entry in self.ledger.users.items()
            if entry.source == source and name in accounts and accounts[name].uid == entry.id
        )

    def _last_groups_of(self, source: str) -> tuple[Group, ...]:
        groups = self.published.groups
        return tuple(
            Group(name, entry.id, groups[name].members if name in groups else ())
            for name, entry in self.ledger.groups.items()
            if entry.source == source
        )

    def _removed(self, name: str, uid: int) -> Account:
        return former(name, uid, Ledger(groups=self.gids), self.published)

    def _with_members(self) -> tuple[Group, ...]:
        """The groups with all their members, whichever side names the other."""
        members = {name: self.accounts.keys() & group.members for name, group in self.groups.items()}
        unknown: dict[tuple[str, str], list[str]] = {}
        for account in self.accounts.values():
            for name in account.groups:
                if name in members:
                    members[name].add(account.name)
                else:
                    unknown.setdefault((name, self.origins[account.name]), []).append(account.name)
        for (name, source), users in unknown.items():
            more = f" and {len(users) - 1:,} more" if len(users) > 1 else ""
            why = f"no source has this group, which {users[0]}{more} should be in: add it, or remove it from them"
            self.refusals.append(Refusal(name[:64], source, why, is_group=True))
        found = (replace(group, members=tuple(sorted(members[name]))) for name, group in self.groups.items())
        return tuple(sorted(found, key=lambda each: (each.gid, each.name)))


def former(name: str, uid: int, ledger: Ledger, published: Published) -> Account:
    """A user who may not log in: a name for files and jobs, and nothing else about the person."""
    known = published.accounts.get(name)
    known = known if known and known.uid == uid else Account(name, uid)
    gid = known.gid if known.gid is not None else ledger.groups[name].id if name in ledger.groups else uid
    return Account(name, uid, gid, shell=NO_LOGIN, home=known.home)


def _restore(name: str, entries: dict[str, Entry], saved: Mapping[str, Entry]) -> None:
    if name in saved:
        entries[name] = saved[name]
    else:
        del entries[name]


def _by_id(accounts: Iterable[Account]) -> tuple[Account, ...]:
    return tuple(sorted(accounts, key=lambda each: (each.uid, each.name)))
