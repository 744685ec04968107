"""Resolves which users are in which groups, for all ways in which directories describe it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from . import names
from .accounts import Refusal, Unusable, group_id, group_refusals, relative_id
from .messages import Entry
from .schema import Schema

DEEPEST = 32


class Group(Struct, frozen=True, gc=False):
    """A group, and the names of its members."""

    name: str
    gid: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Node:
    """A group of the directory, a Unix group or not, with its direct members."""

    dn: str
    unix: tuple[str, int] | None
    users: frozenset[str]
    groups: tuple[str, ...]


@dataclass
class Memberships:
    """The groups of a directory. First all groups are added, then all users, then `resolve` says who is in which."""

    schema: Schema
    refusals: list[Refusal] = field(default_factory=list)
    # The gid of each group by the number that Active Directory's users know it by.
    group_of: dict[int, int] = field(default_factory=dict)
    _entries: list[tuple[Entry, tuple[str, int] | None]] = field(default_factory=list)
    _dn_of: dict[int, str] = field(default_factory=dict)
    _user_at: dict[str, str] = field(default_factory=dict)
    _primary: dict[str, list[str]] = field(default_factory=dict)

    def add_group(self, entry: Entry) -> None:
        try:
            unix = group_id(entry, self.schema)
        except Unusable as error:
            self.refusals += group_refusals(entry, self.schema, str(error))
            unix = None
        relative = relative_id(entry) if self.schema.windows else None
        if relative is not None:
            self._dn_of[relative] = names.same(entry.dn)
            if unix:
                self.group_of[relative] = unix[1]
        self._entries.append((entry, unix))

    def add_user(self, entry: Entry, name: str, primary: int | None = None) -> None:
        """Let groups name this user. `primary` is what Active Directory calls the user's primary group."""
        if self.schema.members_are_dns:
            self._user_at[names.same(entry.dn)] = name
        if primary in self._dn_of:
            self._primary.setdefault(self._dn_of[primary], []).append(name)

    def resolve(self, users: Iterable[str]) -> list[Group]:
        """The Unix groups with their members, sorted by name. A name that two groups have is refused for both."""
        known = {name: name for name in users}
        nodes = {node.dn: node for node in (self._node(entry, unix, known) for entry, unix in self._entries)}
        found = []
        for node in nodes.values():
            if node.unix:
                try:
                    found.append(Group(*node.unix, tuple(sorted(_members(node, nodes)))))
                except Unusable as error:
                    self.refusals.append(Refusal(node.unix[0], f"this group: {error}", is_group=True))
        count = Counter(group.name for group in found)
        twice = sorted(name for name, times in count.items() if times > 1)
        self.refusals += [
            Refusal(name, f"{count[name]} groups have this name: rename all but one", True) for name in twice
        ]
        return sorted((group for group in found if count[group.name] == 1), key=lambda group: group.name)

    def _node(self, entry: Entry, unix: tuple[str, int] | None, known: Mapping[str, str]) -> _Node:
        dn = names.same(entry.dn)
        values = [value.decode(errors="backslashreplace") for value in entry.attributes.get(self.schema.members, ())]
        if not self.schema.members_are_dns:
            return _Node(dn, unix, frozenset(known[name] for name in values if name in known), ())
        members = [names.same(names.without_bits(value)) for value in values]
        users = {self._user_at[member] for member in members if member in self._user_at}
        users.update(self._primary.get(dn, ()))
        return _Node(dn, unix, frozenset(users & known.keys()), tuple(m for m in members if m not in self._user_at))


def _members(group: _Node, nodes: Mapping[str, _Node]) -> frozenset[str]:
    """All users of a group and of the groups in it. A group may contain itself."""
    users, seen, level, depth = group.users, {group.dn}, group.groups, 0
    while level := tuple({dn for dn in level if dn in nodes and dn not in seen}):
        depth += 1
        if depth > DEEPEST:
            raise Unusable(f"groups are nested in it more than {DEEPEST} deep: make that flatter")
        seen.update(level)
        users = users.union(*(nodes[dn].users for dn in level))
        level = tuple(dn for inner in level for dn in nodes[inner].groups)
    return users
