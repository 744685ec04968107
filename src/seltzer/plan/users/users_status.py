"""What people are told about a cluster's users: the condition UsersReady, counts, and Events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from seltzer.api.users import RefusedUser, UsersStatus
from seltzer.plan.actions import Action, Delete, PlannedEvent
from seltzer.plan.conditions import Finding
from seltzer.plan.users.accounts import BUILT_IN, Published
from seltzer.plan.users.merge import Merged

TYPE = "UsersReady"
_MOST_REFUSALS, _MOST_SHOWN, _MOST_NAMES = 64, 3, 8
_MOST_WORDS = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class UsersOutcome:
    """What a pass does about a cluster's users, and what is said about them."""

    actions: tuple[Action, ...] = ()
    finding: Finding | None = None
    status: UsersStatus = field(default_factory=UsersStatus)
    events: tuple[PlannedEvent, ...] = ()
    # How to delete the ledger, if there is one.
    ledger: Delete | None = None


def unreadable(error: Exception, ledger: str) -> Finding:
    """Nobody knows which IDs are taken: nothing changes."""
    words = f"ConfigMap {ledger}: {error}; correct or delete the line, until then all users stay as they are"
    return Finding(TYPE, "False", "LedgerUnreadable", words)


def finding(merged: Merged, too_large: str, ledger: str) -> Finding:
    """The condition. Of several problems, the one that concerns most users comes first."""
    if too_large:
        words = (
            f"{too_large}: list fewer, or delete the lines of former ones from ConfigMap {ledger} once nothing of "
            "theirs is left; until then nobody is added or changed, and who leaves is removed"
        )
        return Finding(TYPE, "False", "TooManyUsers", words)
    problems = [
        f"{each.source} can't be used{f' since {each.since}' if each.since else ''}, and its users stay as they were: "
        f"{each.why}"
        for each in merged.failures
    ]
    shown = [f"{each.name[:64]} ({each.source}): {each.why}" for each in merged.refusals[:_MOST_SHOWN]]
    if shown:
        more = len(merged.refusals) - len(shown)
        rest = f"; and {more} more, see 'seltzer users'" if more else ""
        problems.append(f"refused: {'; '.join(shown)}{rest}")
    words = _one_line("; ".join(problems)).replace("{ledger}", f"ConfigMap {ledger}")
    if any(not each.pending for each in merged.failures):
        return Finding(TYPE, "False", "SourceFailed", words)
    if merged.refusals:
        return Finding(TYPE, "False", "EntriesRefused", words)
    if merged.failures:
        return Finding(TYPE, "Unknown", "ReadingSources", words)
    if BUILT_IN in merged.origins.values():
        return Finding(TYPE, "True", "BuiltIn", "there is one user, called user; spec.users can name others")
    removed = f", and {len(merged.removed)} removed ones keep their IDs" if merged.removed else ""
    return Finding(TYPE, "True", "Published", f"{_counted(len(merged.accounts))}{removed}")


def status(merged: Merged, ledger: str) -> UsersStatus:
    """The counts, and the first refusals."""
    return UsersStatus(
        active=len(merged.accounts),
        removed=len(merged.removed),
        refused=len(merged.refusals),
        refusals=tuple(_refused(merged, ledger))[:_MOST_REFUSALS],
    )


def _refused(merged: Merged, ledger: str) -> Iterable[RefusedUser]:
    """One for each name of a source."""
    found: dict[tuple[str, str], str] = {}
    for each in merged.refusals:
        why = _one_line(each.why).replace("{ledger}", f"ConfigMap {ledger}")
        found.setdefault((_one_line(each.name[:64]), each.source), why)
    return (RefusedUser(name=name, source=source, why=why[:_MOST_WORDS]) for (name, source), why in found.items())


def _one_line(words: str) -> str:
    """What a source says, without what would control the terminal on which somebody reads it."""
    return _CONTROL.sub(" ", words)


def events(before: Published, after: Merged) -> tuple[PlannedEvent, ...]:
    """One Event for all users who were added, and one for all who were removed."""
    was = {name for name, account in before.accounts.items() if not account.locked}
    # Every cluster begins with the built-in user: that is no news.
    now = {each.name for each in after.accounts if not each.locked and after.origins[each.name] != BUILT_IN}
    found = []
    if added := sorted(now - was):
        found.append(PlannedEvent("Normal", "UsersAdded", f"{_named(added)} may log in and submit jobs"))
    if gone := sorted(was - now):
        words = f"{_named(gone)} may no longer log in or submit jobs; running jobs go on"
        found.append(PlannedEvent("Normal", "UsersRemoved", words))
    return tuple(found)


def _counted(count: int) -> str:
    return "1 user" if count == 1 else f"{count:,} users"


def _named(names: Sequence[str]) -> str:
    return _counted(len(names)) + f": {', '.join(_few(names))}"


def _few(names: Sequence[str]) -> Iterable[str]:
    more = len(names) - _MOST_NAMES
    return (*names[:_MOST_NAMES], f"and {more:,} more") if more > 0 else names
