"""Users and groups as sources list them, and as they were last published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seltzer.api.users import SHELL

INLINE, CONFIG_MAP, LDAP, BUILT_IN = "inline", "configMap", "ldap", "built-in"
"""Names of sources, as in `spec.users`. The built-in source is used while spec.users names none."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user. Without a gid the primary group is the user's own, which has the user's name and ID."""

    name: str
    uid: int
    gid: int | None = None
    # Further groups, by name.
    groups: tuple[str, ...] = ()
    full_name: str = ""
    shell: str = SHELL
    # Empty: /home/<name>.
    home: str = ""
    keys: tuple[str, ...] = ()

    @property
    def locked(self) -> bool:
        """Its source says that it may not log in, as administrators do by the shell."""
        return self.shell.endswith(("/nologin", "/false"))


@dataclass(frozen=True, slots=True)
class Group:
    """A group. Users belong to it if it names them or if they name it."""

    name: str
    gid: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """An entry of a source that isn't used as listed, and what to do about it."""

    name: str
    source: str
    why: str
    # It is a group's, which may have the name of a user.
    is_group: bool = False


@dataclass(frozen=True)
class Source:
    """What one source lists now.

    With an error, nothing else of it counts: its users stay as they were. The same holds for a source that lists nobody
    unless it is `explicit`: a directory whose answer is empty is broken, but an empty list in the spec is meant.
    """

    name: str
    accounts: tuple[Account, ...] = ()
    groups: tuple[Group, ...] = ()
    # Entries that couldn't even be read.
    unreadable: tuple[Refusal, ...] = ()
    # Why the source can't be read; and the time since when, for people.
    error: str = ""
    since: str = ""
    # It hasn't answered yet, and hasn't failed either.
    pending: bool = False
    explicit: bool = False
    # Whether the ledger remembers its users.
    lasting: bool = True


@dataclass(frozen=True)
class Published:
    """The users and groups that the containers know, removed ones included as far as there is room for their names."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    # The IDs that may not submit jobs: those of all removed users, and of those whom their source locks.
    blocked: frozenset[int] = frozenset()


NO_LOGIN = "/usr/sbin/nologin"
"""The shell of removed users."""

BUILT_IN_USER = Account("user", 1000, full_name="A user")
"""The only user while spec.users names no source."""
