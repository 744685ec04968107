"""The ledger: which IDs belong to which names, for good.

It is the ConfigMap `<cluster>-uids`, in lines that an administrator can read and edit: `alice 2001 inline`. A hyphen in
place of the source says that no source lists the name any more. A line that can't be read makes the whole ledger
unreadable: without it, an ID could be given to somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seltzer.errors import SeltzerError

USERS, GROUPS = "users", "groups"
_NOWHERE = "-"
_HEAD = "# name, ID, source ('-': removed). IDs are never given to another name; to release one, delete its line."


class LedgerError(SeltzerError):
    """A line can't be read. The text names it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The ID of a name, and the source that lists it now; empty: none."""

    id: int
    source: str = ""


@dataclass(frozen=True)
class Ledger:
    """The IDs of users and of groups, by name."""

    users: Mapping[str, Entry] = field(default_factory=dict)
    groups: Mapping[str, Entry] = field(default_factory=dict)


def text(ledger: Ledger) -> dict[str, str]:
    """The data of the ConfigMap; `parse` reads it back."""
    return {USERS: _lines(ledger.users), GROUPS: _lines(ledger.groups)}


def parse(data: Mapping[str, str]) -> Ledger:
    """The ledger of a ConfigMap. Raises LedgerError for a line that isn't one, and for an ID that two names have.

    A part that is missing or empty was lost: `text` always writes a first line.
    """
    for part in (USERS, GROUPS):
        if not data.get(part, "").strip():
            raise LedgerError(
                f"{part} is empty: restore it, or delete the ConfigMap to have it made again from the users"
            )
    return Ledger(_parsed(USERS, data[USERS]), _parsed(GROUPS, data[GROUPS]))


def _lines(entries: Mapping[str, Entry]) -> str:
    ordered = sorted(entries.items(), key=lambda each: (each[1].id, each[0]))
    return "".join(f"{line}\n" for line in (_HEAD, *(f"{name} {e.id} {e.source or _NOWHERE}" for name, e in ordered)))


def _parsed(what: str, text: str) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    owners: dict[int, str] = {}
    for number, line in _numbered(text):
        words = line.split()
        if len(words) != 3 or not words[1].isascii() or not words[1].isdecimal():
            raise LedgerError(f"line {number} of {what}: {line[:64]!r} isn't a name, an ID and a source")
        name, id_, source = words[0], int(words[1]), words[2]
        if name in found or id_ in owners:
            raise LedgerError(f"line {number} of {what}: {name!r} or {id_} is in the line of {owners.get(id_, name)!r}")
        found[name] = Entry(id_, "" if source == _NOWHERE else source)
        owners[id_] = name
    return found


def _numbered(text: str) -> Iterable[tuple[int, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line
