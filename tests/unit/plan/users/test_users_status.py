"""What people see: the worst first, in a few words, with what to do."""

from __future__ import annotations

from tests.unit.plan.users.test_merge import ALICE, BOB, BUILT_IN_SOURCE, directory, first, inline, published, then

from seltzer.plan.users import users_status
from seltzer.plan.users.accounts import Account, Published, Source
from seltzer.plan.users.ledger import LedgerError


def test_the_built_in_user_is_no_news() -> None:
    merged = first(BUILT_IN_SOURCE)
    assert users_status.finding(merged, "", "demo-uids").reason == "BuiltIn"
    assert users_status.events(Published(), merged) == ()


def test_users_who_come_and_go_are_one_event_each() -> None:
    before, after = first(inline(ALICE)), then(first(inline(ALICE)), inline(BOB, Account("eve", 2003)))
    added, gone = users_status.events(published(before), after)
    assert (added.reason, added.message) == ("UsersAdded", "2 users: bob, eve may log in and submit jobs")
    assert (gone.reason, gone.message.partition(";")[0]) == (
        "UsersRemoved",
        "1 user: alice may no longer log in or submit jobs",
    )
    many = first(inline(*(Account(f"user{at}", 5000 + at) for at in range(1000))))
    (added,) = users_status.events(Published(), many)
    assert added.message.startswith("1,000 users: user0, user1")
    assert "and 992 more" in added.message


def test_nothing_to_say_is_said_in_numbers() -> None:
    found = users_status.finding(then(first(inline(ALICE, BOB)), inline(BOB)), "", "demo-uids")
    assert (found.status, found.message) == ("True", "1 user, and 1 removed ones keep their IDs")


def test_refusals_say_where_ids_are_released() -> None:
    merged = then(first(inline(ALICE)), inline(Account("alice", 2009), *(Account(f"Bad{at}", 1) for at in range(9))))
    found = users_status.finding(merged, "", "demo-uids")
    assert (found.status, found.reason) == ("False", "EntriesRefused")
    assert "Bad0 (inline): the name 'Bad0'" in found.message
    assert "delete alice's line from ConfigMap demo-uids" in found.message
    assert "and 7 more, see 'seltzer users'" in found.message
    status = users_status.status(merged, "demo-uids")
    assert (status.active, status.removed, status.refused, len(status.refusals)) == (1, 0, 10, 10)


def test_each_name_of_a_source_is_refused_once_in_the_status() -> None:
    """Kubernetes knows the items by name and source."""
    merged = first(inline(*(Account("Bad", number) for number in range(100))))
    status = users_status.status(merged, "demo-uids")
    assert (status.refused, [each.name for each in status.refusals]) == (100, ["Bad"])


def test_nothing_that_a_source_says_controls_the_terminal_or_looks_like_another_line() -> None:
    spoilt = "x\x1b[2J\nroot"
    merged = first(inline(Account(spoilt, 2009)), Source("ldap", error=f"it says: {spoilt}"))
    found, status = users_status.finding(merged, "", "demo-uids"), users_status.status(merged, "demo-uids")
    assert "it says: x [2J root" in found.message and "x [2J root (inline)" in found.message
    assert [each.name for each in status.refusals] == ["x [2J root"]
    assert (found.message + status.refusals[0].why).isprintable()


def test_a_source_that_fails_says_since_when() -> None:
    before = first(directory(ALICE))
    failed = Source("ldap", error="connection refused", since="2026-01-01T00:00:00Z")
    found = users_status.finding(then(before, failed), "", "demo-uids")
    assert (found.status, found.reason) == ("False", "SourceFailed")
    assert found.message == (
        "ldap can't be used since 2026-01-01T00:00:00Z, and its users stay as they were: connection refused"
    )
    pending = users_status.finding(then(before, Source("ldap", error="not yet", pending=True)), "", "demo-uids")
    assert (pending.status, pending.reason) == ("Unknown", "ReadingSources")


def test_what_does_not_fit_and_what_cannot_be_read_say_so() -> None:
    found = users_status.finding(first(inline(ALICE)), "too large", "demo-uids")
    assert found.reason == "TooManyUsers"
    assert "until then nobody is added or changed, and who leaves is removed" in found.message
    found = users_status.unreadable(LedgerError("line 3"), "demo-uids")
    assert (found.reason, "ConfigMap demo-uids: line 3" in found.message) == ("LedgerUnreadable", True)
