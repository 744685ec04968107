"""The merge of users: IDs stay with their names, one bad entry harms no other, and silence changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seltzer.build import users as build
from seltzer.plan.users import ledger as ledgers
from seltzer.plan.users.accounts import BUILT_IN, BUILT_IN_USER, NO_LOGIN, Account, Group, Published, Refusal, Source
from seltzer.plan.users.ledger import Entry, Ledger
from seltzer.plan.users.merge import Merged, merge

ALICE, BOB = Account("alice", 2001, keys=("ssh-ed25519 A",)), Account("bob", 2002, keys=("ssh-ed25519 B",))
TEAM = Group("team", 3001)


def inline(*accounts: Account, groups: tuple[Group, ...] = ()) -> Source:
    return Source("inline", accounts, groups, explicit=True)


def directory(*accounts: Account, error: str = "", groups: tuple[Group, ...] = ()) -> Source:
    return Source("ldap", accounts, groups, error=error)


def published(merged: Merged) -> Published:
    """What the next merge finds: the files of this one, written and read."""
    files = build.render(merged)
    keys = {name: text for part in files.keys for name, text in part.items()}
    return build.parse(files.passwd, files.group, keys, files.removed)


def then(before: Merged, *sources: Source) -> Merged:
    return merge(sources, before.ledger, published(before))


def first(*sources: Source) -> Merged:
    return merge(sources, Ledger(), Published())


def active(merged: Merged) -> dict[str, int]:
    return {each.name: each.uid for each in merged.accounts}


def refused(merged: Merged) -> dict[str, str]:
    return {each.name: each.why for each in merged.refusals}


def test_a_user_has_a_group_of_their_own_unless_it_is_said() -> None:
    merged = first(inline(ALICE, replace(BOB, gid=3001, groups=("team",)), groups=(TEAM,)))
    assert [(each.name, each.gid) for each in merged.accounts] == [("alice", 2001), ("bob", 3001)]
    assert [(each.name, each.gid, each.members) for each in merged.groups] == [
        ("alice", 2001, ()),
        ("team", 3001, ("bob",)),
    ]
    assert not merged.refusals


def test_a_group_and_its_members_may_come_from_either_side() -> None:
    staff = Group("lab", 3002, members=("bob", "stranger"))
    merged = first(inline(replace(ALICE, groups=("lab",))), directory(BOB, groups=(staff,)))
    assert next(each.members for each in merged.groups if each.name == "lab") == ("alice", "bob")


def test_a_group_that_nobody_knows_costs_only_the_membership() -> None:
    merged = first(inline(replace(ALICE, groups=("nothing",)), replace(BOB, groups=("nothing",))))
    assert active(merged) == {"alice": 2001, "bob": 2002}
    assert "no source has this group, which alice and 1 more should be in" in refused(merged)["nothing"]
    assert len(merged.refusals) == 1, "ten thousand users may be in it"


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Account("Alice", 2003), "not a name that Slurm"),
        (Account("1st", 2003), "not a name that Slurm"),
        (Account("a:b", 2003), "not a name that Slurm"),
        (Account("", 2003), "not a name that Slurm"),
        (Account("x" * 33, 2003), "not a name that Slurm"),
        (Account("root", 2003), "belongs to the system"),
        (Account("slurm", 2003), "belongs to the system"),
        (Account("nobody", 2003), "belongs to the system"),
        (Account("carol", 0), "the uid 0 belongs to the system"),
        (Account("carol", 999), "the uid 999 belongs to the system"),
        (Account("carol", 65534), "the uid 65534 belongs to the system"),
        (Account("carol", 2**31), "belongs to the system"),
        (Account("carol", -5), "belongs to the system"),
        (Account("carol", 2003, gid=100), "the gid 100 belongs to the system"),
        (Account("carol", 2003, shell="bash"), "full path of a program"),  # noqa: S604
        (Account("carol", 2003, shell="/bin/a:b"), "full path of a program"),  # noqa: S604
        (Account("carol", 2003, shell=f"/{'x' * 255}"), "full path of a program"),  # noqa: S604
        (Account("carol", 2003, full_name="C:D"), "without colons"),
        (Account("carol", 2003, full_name="C\nroot::0:0"), "without colons"),
        (Account("carol", 2003, home="home"), "a home is a full path"),
        (Account("carol", 2003, keys=("k" * 1_048_576,)), "1,048,576 bytes: remove some"),
        (Account("carol", 2003, keys=("one\ntwo",)), "a key is one line"),
        (Account("carol", 2001), "uid 2001 belongs to alice: choose another"),
        (Account("alice", 2003), "ldap lists alice already"),
        (Account("carol", 3001), "gid 3001 of the own group belongs to team: give the user a gid"),
    ],
)
def test_a_bad_entry_is_refused_alone_and_says_what_to_do(entry: Account, why: str) -> None:
    merged = first(directory(ALICE, entry, BOB, groups=(TEAM,)))
    assert active(merged) == {"alice": 2001, "bob": 2002}
    assert why in refused(merged)[entry.name]


def test_two_new_users_with_one_uid_are_not_both_taken() -> None:
    merged = first(inline(ALICE), directory(replace(BOB, uid=2001)))
    assert active(merged) == {"alice": 2001}
    assert "uid 2001 belongs to alice" in refused(merged)["bob"]


def test_a_known_user_with_another_uid_stays_as_published() -> None:
    before = first(directory(ALICE, BOB))
    changed = replace(ALICE, uid=2009, keys=("ssh-ed25519 Z",))
    merged = then(before, directory(changed, BOB))
    assert active(merged) == {"alice": 2001, "bob": 2002}
    assert merged.accounts[0].keys == ALICE.keys
    assert "alice has uid 2001, not 2009" in refused(merged)["alice"]
    assert "delete alice's line from {ledger}" in refused(merged)["alice"]


def test_an_administrator_releases_a_uid_by_deleting_the_line() -> None:
    before = first(inline(ALICE, BOB))
    text = ledgers.text(before.ledger)
    for part in text:
        text[part] = "".join(f"{line}\n" for line in text[part].splitlines() if not line.startswith("alice "))
    merged = merge([inline(replace(ALICE, uid=2009), BOB)], ledgers.parse(text), published(before))
    assert active(merged) == {"bob": 2002, "alice": 2009}
    assert not merged.refusals


LEFT = {
    "with another ID": directory(BOB, groups=(Group("alice", 2999),)),
    "below 1000": directory(BOB, groups=(Group("alice", 7),)),
    "unreadable": replace(directory(BOB), unreadable=(Refusal("alice", "ldap", "no", is_group=True),)),
}


@pytest.mark.parametrize("source", LEFT.values(), ids=LEFT)
def test_a_group_that_is_refused_keeps_no_user_of_its_name(source: Source) -> None:
    before = first(directory(ALICE, BOB, groups=(Group("alice", 2001),)))
    assert [each.name for each in then(before, source).removed] == ["alice"]


REFUSED_LAB = {
    "with another ID": directory(BOB, groups=(Group("lab", 3999, members=("bob",)),)),
    "below 1000": directory(BOB, groups=(Group("lab", 7, members=("bob",)),)),
    "unreadable": replace(directory(BOB), unreadable=(Refusal("lab", "ldap", "no", is_group=True),)),
}


@pytest.mark.parametrize("source", REFUSED_LAB.values(), ids=REFUSED_LAB)
def test_a_group_that_is_refused_keeps_its_id_and_its_members(source: Source) -> None:
    before = first(directory(BOB, groups=(Group("lab", 3002, members=("bob",)),)))
    assert Group("lab", 3002, ("bob",)) in then(before, source).groups


def test_nobody_goes_while_a_source_that_may_have_them_was_never_read() -> None:
    before = first(inline(ALICE, BOB, groups=(Group("lab", 3002, members=("bob",)),)))
    silent = replace(directory(error="it hasn't been read yet"), pending=True)
    merged = then(before, silent)
    assert active(merged) == {"alice": 2001, "bob": 2002}
    assert Group("lab", 3002, ("bob",)) in merged.groups
    assert [each.keys for each in merged.accounts] == [ALICE.keys, BOB.keys]
    merged = then(merged, replace(silent, pending=False))
    assert active(merged) == {"alice": 2001, "bob": 2002}, "nor later"
    assert active(then(merged, directory(BOB))) == {"bob": 2002}, "until it answers"


def test_a_source_that_is_taken_out_beside_one_that_was_read_before_takes_its_users_with_it() -> None:
    before = first(inline(ALICE), directory(BOB))
    assert active(then(before, directory(error="it is down"))) == {"bob": 2002}


def test_a_name_may_have_what_other_programs_take_for_the_end_of_a_line() -> None:
    odd = replace(ALICE, full_name="A\u2028B\x85C", keys=("ssh-ed25519 A a\u2028b",))
    assert published(first(directory(odd))).accounts["alice"] == replace(odd, gid=2001, home="/home/alice")


def test_a_user_whom_the_directory_locks_has_no_keys_and_submits_nothing() -> None:
    locked = replace(ALICE, shell="/sbin/nologin")  # noqa: S604
    merged = then(first(directory(ALICE, BOB)), directory(locked, BOB))
    files = build.render(merged)
    assert (list(files.keys[0]), files.removed.split()) == (["bob"], ["1000", "2001"])
    assert active(then(merged, directory(ALICE, BOB))) == {"alice": 2001, "bob": 2002}


def test_a_removed_user_stays_resolvable_and_cannot_log_in() -> None:
    merged = then(first(inline(ALICE, BOB)), inline(BOB))
    (gone,) = merged.removed
    assert (gone.name, gone.uid, gone.gid, gone.shell, gone.keys, gone.groups) == (
        *("alice", 2001, 2001, NO_LOGIN),
        *((), ()),
    )
    assert merged.ledger.users["alice"] == Entry(2001)
    assert {each.name for each in merged.groups} == {"alice", "bob"}
    again = then(merged, inline(ALICE, BOB))
    assert active(again) == {"alice": 2001, "bob": 2002}
    assert not again.removed


def test_the_uid_of_a_removed_user_goes_to_nobody() -> None:
    merged = then(first(inline(ALICE)), inline(replace(BOB, uid=2001)))
    assert active(merged) == {}
    assert "uid 2001 belongs to alice" in refused(merged)["bob"]


@pytest.mark.parametrize("source", [directory(error="connection refused"), directory()])
def test_a_source_that_fails_or_lists_nobody_changes_nothing(source: Source) -> None:
    team = (replace(TEAM, members=("bob",)),)
    before = first(inline(ALICE), directory(BOB, groups=team))
    merged = then(before, inline(ALICE), source)
    assert (merged.accounts, merged.groups, merged.ledger) == (before.accounts, before.groups, before.ledger) or (
        published(merged) == published(before) and merged.ledger == before.ledger
    )
    (failure,) = merged.failures
    assert failure.source == "ldap"


def test_an_empty_list_in_the_spec_is_meant() -> None:
    merged = then(first(inline(ALICE)), inline())
    assert active(merged) == {}
    assert not merged.failures


def test_a_source_that_is_no_longer_named_takes_its_users_along() -> None:
    merged = then(first(inline(ALICE), directory(BOB)), inline(ALICE))
    assert active(merged) == {"alice": 2001}


def test_a_user_may_move_to_another_source() -> None:
    merged = then(first(inline(ALICE, BOB)), inline(BOB), directory(ALICE))
    assert merged.origins == {"bob": "inline", "alice": "ldap"}
    assert not merged.removed


def test_a_group_keeps_its_gid() -> None:
    before = first(inline(replace(ALICE, groups=("team",)), groups=(TEAM,)))
    merged = then(before, inline(replace(ALICE, groups=("team",)), groups=(Group("team", 3009),)))
    assert [(each.name, each.gid, each.members) for each in merged.groups if each.name == "team"] == [
        ("team", 3001, ("alice",))
    ]
    assert "gid 3001, not 3009" in refused(merged)["team"]
    other = then(before, inline(ALICE, groups=(Group("lab", 3001),)))
    assert "gid 3001 belongs to team" in refused(other)["lab"]


BUILT_IN_SOURCE = Source(BUILT_IN, (BUILT_IN_USER,), explicit=True, lasting=False)


def test_the_built_in_user_leaves_no_trace() -> None:
    before = first(BUILT_IN_SOURCE)
    assert active(before) == {"user": 1000}
    assert before.ledger == Ledger()
    merged = then(before, inline(replace(ALICE, uid=1000)))
    assert active(merged) == {"alice": 1000}
    assert not merged.removed
    assert not merged.refusals
    back = then(merged, BUILT_IN_SOURCE)
    assert active(back) == {}
    assert "uid 1000 belongs to alice" in refused(back)["user"]


ADA, EVA = Account("ada", 2003, gid=2005), Account("eva", 2004, gid=2005)
EVE = Account("eve", 2005)


def gids(merged: Merged) -> dict[str, int | None]:
    return {each.name: each.gid for each in merged.accounts}


def test_a_private_group_is_not_that_of_others_whose_group_the_filter_hides() -> None:
    merged = first(inline(EVE), directory(ADA, EVA))
    assert gids(merged) == {"ada": 2005, "eva": 2005}
    assert "gid 2005 of the own group is the primary gid of ada and 1 more" in refused(merged)["eve"]
    assert "give eve a gid" in refused(merged)["eve"]
    assert "eve" not in merged.ledger.users and "eve" not in merged.ledger.groups
    with_gid = then(merged, inline(replace(EVE, gid=3001), groups=(TEAM,)), directory(ADA, EVA))
    assert gids(with_gid) == {"ada": 2005, "eva": 2005, "eve": 3001}


def test_whoever_has_the_gid_first_keeps_it() -> None:
    owner = then(first(inline(EVE)), inline(EVE), directory(ADA, BOB))
    assert gids(owner) == {"eve": 2005, "bob": 2002}
    assert "gid 2005 is the own group of eve" in refused(owner)["ada"]
    assert gids(then(owner, inline(EVE), directory(ADA, BOB))) == gids(owner)
    others = then(first(directory(ADA, BOB)), inline(EVE), directory(ADA, BOB))
    assert gids(others) == {"ada": 2005, "bob": 2002}


def test_the_private_group_of_a_removed_user_and_the_gid_of_one_stay_theirs() -> None:
    removed = then(first(inline(EVE)), inline())
    assert gids(then(removed, inline(), directory(ADA, BOB))) == {"bob": 2002}
    removed = then(first(directory(ADA, BOB)), directory(BOB))
    assert gids(then(removed, inline(EVE), directory(BOB))) == {"bob": 2002}


def test_a_group_that_a_source_lists_may_be_shared() -> None:
    eve = Group("eve", 2005)
    assert gids(first(inline(EVE), directory(ADA, groups=(eve,)))) == {"ada": 2005, "eve": 2005}
    assert gids(first(directory(replace(EVE, gid=2005), ADA, groups=(eve,)))) == {"ada": 2005, "eve": 2005}


def test_while_a_directory_fails_nobody_new_gets_its_groups() -> None:
    eve = Group("eve", 2005)
    before = first(directory(replace(EVE, gid=2005), groups=(eve,)))
    merged = then(before, inline(replace(ADA, name="ida")), directory(error="it is down"))
    assert gids(merged) == {"eve": 2005}


# --- whatever the sources do ------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["ada", "ben", "cy", "root", "Bad", "ada.b"])
IDS = st.sampled_from([2001, 2002, 2003, 999, 3001])
GIDS = st.none() | st.sampled_from([3001, 3002, 2002])
ACCOUNTS = st.builds(
    Account,
    NAMES,
    IDS,
    gid=GIDS,
    groups=st.lists(st.sampled_from(["team", "lab"]), max_size=2, unique=True).map(tuple),
    keys=st.lists(st.sampled_from(["k1", "k2"]), max_size=2, unique=True).map(tuple),
)
GROUPS = st.builds(Group, st.sampled_from(["team", "lab", "ada"]), st.sampled_from([3001, 3002, 2001]))


def _source(name: str) -> st.SearchStrategy[Source]:
    return st.builds(
        Source,
        st.just(name),
        st.lists(ACCOUNTS, max_size=5).map(tuple),
        st.lists(GROUPS, max_size=3).map(tuple),
        error=st.sampled_from(["", "", "it is down"]),
        explicit=st.just(name == "inline"),
    )


STEPS = st.lists(st.tuples(_source("inline"), _source("ldap"), st.booleans()), min_size=1, max_size=6)


def test_a_directory_that_lists_nothing_keeps_its_groups_when_its_last_user_has_moved_to_the_spec() -> None:
    team = Group("team", 2001)
    before = first(Source("ldap", (Account("cy", 3001),), (team,)))
    sources = (inline(Account("cy", 3001)), Source("ldap"))
    merged = merge(sources, before.ledger, published(before))
    again = merge(sources, merged.ledger, published(merged))
    assert merged.ledger.groups["team"] == Entry(2001, "ldap")
    assert (published(again), again.ledger, again.failures) == (published(merged), merged.ledger, merged.failures)


@pytest.mark.parametrize("error", ["", "it is down"])
def test_a_group_that_has_moved_to_the_spec_has_only_the_members_that_the_spec_lists(error: str) -> None:
    team = Group("team", 3001)
    before = first(inline(Account("ada", 2002, groups=("team",))), Source("ldap", (), (team,)))
    assert published(before).groups["team"].members == ("ada",)
    sources = (Source("inline", (Account("ada", 2002),), (team,), explicit=True), Source("ldap", error=error))
    merged = merge(sources, before.ledger, published(before))
    again = merge(sources, merged.ledger, published(merged))
    assert published(merged).groups["team"].members == ()
    assert (published(again), again.ledger) == (published(merged), merged.ledger)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_no_id_ever_moves_whatever_the_sources_list(steps: list[tuple[Source, Source, bool]]) -> None:
    owners: dict[int, str] = {}
    ids: dict[str, int] = {}
    gids: dict[int, str] = {}
    # The groups that were listed: those whom that let in stay.
    shared: set[str] = set()
    ledger, files = Ledger(), Published()
    for one, other, both in steps:
        merged = merge((one, other) if both else (one,), ledger, files)
        for account in (*merged.accounts, *merged.removed):
            assert owners.setdefault(account.uid, account.name) == account.name
            assert ids.setdefault(account.name, account.uid) == account.uid
        for group in merged.groups:
            assert gids.setdefault(group.gid, group.name) == group.name
        for account in merged.accounts:
            owner = gids.get(account.gid or 0)
            listed = {group.name for source in (one, other)[: 1 + both] for group in source.groups}
            private = owner in ids and ids[owner] == account.gid and owner not in listed | shared
            assert not private or owner == account.name, "a private group has somebody else in it"
        shared |= {group.name for source in (one, other)[: 1 + both] if not source.error for group in source.groups}
        # Nobody who was ever accepted loses the name of their files.
        assert {each.name for each in (*merged.accounts, *merged.removed)} == set(ids)
        ledger, files = ledgers.parse(ledgers.text(merged.ledger)), published(merged)
        assert ledger == merged.ledger
        # What is written is what is read, and the same sources change nothing more.
        again = merge((one, other) if both else (one,), ledger, files)
        assert (published(again), again.ledger) == (files, ledger)


@settings(max_examples=60, deadline=None)
@given(_source("ldap"), st.sampled_from([Account("Bad", 2005), Account("eve", 5), Account("root", 2006)]))
def test_an_entry_that_is_refused_affects_no_other(source: Source, bad: Account) -> None:
    with_bad = replace(source, accounts=(bad, *source.accounts))
    assert build.render(first(with_bad)) == build.render(first(source))


@settings(max_examples=60, deadline=None)
@given(_source("ldap"), _source("ldap"))
def test_a_failure_after_any_state_keeps_that_state(one: Source, other: Source) -> None:
    before = then(first(one), other)
    after = then(before, Source("ldap", error="it is down"))
    assert build.render(after) == build.render(then(before, Source("ldap", error="it is down")))
    assert {each.name for each in after.accounts} == {each.name for each in before.accounts}
    assert build.render(after).passwd == build.render(before).passwd
