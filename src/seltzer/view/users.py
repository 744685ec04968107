"""The users of a cluster, as the ConfigMaps have them that all its containers read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seltzer.api.core import ConfigMap
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names
from seltzer.build import users as build
from seltzer.plan.users import ledger as ledgers
from seltzer.plan.users import users_status
from seltzer.plan.users.accounts import BUILT_IN, NO_LOGIN, Published
from seltzer.plan.users.ledger import Ledger, LedgerError
from seltzer.view import colours
from seltzer.view.text import Cell, Line, line

READY = users_status.TYPE
ACTIVE, LOCKED, REMOVED, REFUSED = "active", "locked", "removed", "refused"
_HEAD = ("NAME", "UID", "GROUPS", "SOURCE", "KEYS", "STATE")
_STYLES = {LOCKED: colours.MINOR, REMOVED: colours.MINOR, REFUSED: colours.BAD}


@dataclass(frozen=True)
class Row:
    """One user, or one entry that is refused; then the ID is unknown, and `why` says what to do."""

    name: str
    uid: int | None
    groups: tuple[str, ...]
    source: str
    keys: int
    state: str
    why: str = ""


def rows(cluster: SlurmCluster, config_maps: Iterable[ConfigMap]) -> list[Row]:
    """All users by ID, then the entries that are refused."""
    found = {each.metadata.name: each for each in config_maps}
    published = build.published(found, cluster)
    ledger = _ledger(found.get(names.ledger(cluster)))
    refused = cluster.status.users.refusals
    return [
        *_published(published, ledger),
        *(Row(each.name, None, (), each.source, 0, REFUSED, each.why) for each in refused),
    ]


def _published(published: Published, ledger: Ledger) -> Iterable[Row]:
    groups = {group.gid: group.name for group in published.groups.values()}
    for account in sorted(published.accounts.values(), key=lambda each: (each.uid, each.name)):
        known = ledger.users.get(account.name)
        own = groups.get(account.gid or 0, str(account.gid))
        removed = account.shell == NO_LOGIN and (known is None or not known.source)
        state = REMOVED if removed else LOCKED if account.locked else ACTIVE
        source = "" if removed else known.source if known else BUILT_IN
        belongs = tuple(dict.fromkeys((own, *account.groups)))
        yield Row(account.name, account.uid, belongs, source, len(account.keys), state)
    # There was no room for their names.
    for name, entry in sorted(ledger.users.items(), key=lambda each: (each[1].id, each[0])):
        if name not in published.accounts and not entry.source:
            yield Row(name, entry.id, (), "", 0, REMOVED)


def _ledger(config_map: ConfigMap | None) -> Ledger:
    try:
        return ledgers.parse(config_map.data) if config_map else Ledger()
    except LedgerError:
        return Ledger()  # the condition UsersReady says what to do


def lines(found: Sequence[Row]) -> list[list[Line]]:
    """The table, with its head."""
    table = [[line(Cell(word, colours.MINOR)) for word in _HEAD]]
    for row in found:
        style = _STYLES.get(row.state, "")
        state = f"{row.state}: {row.why}" if row.why else row.state
        words = (row.name, str(row.uid or "-"), ",".join(row.groups) or "-", row.source or "-", str(row.keys), state)
        table.append([line(Cell(word, style)) for word in words])
    return table


def as_data(found: Sequence[Row]) -> list[Mapping[str, Any]]:
    """For programs. What is unknown is null."""
    return [
        {
            "name": row.name,
            "uid": row.uid,
            "groups": list(row.groups),
            "source": row.source or None,
            "keys": row.keys,
            "state": row.state,
            "why": row.why or None,
        }
        for row in found
    ]
