"""What is published, and when: whoever leaves is out, and no ID is published before the ledger has it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.builders.objects import cluster
from tests.unit.plan.users.test_merge import ACCOUNTS, ALICE, BOB, GROUPS, directory, first, inline

from seltzer.api.core import ConfigMap
from seltzer.build import users as build
from seltzer.plan.users import ledger as ledgers
from seltzer.plan.users import publishing
from seltzer.plan.users.accounts import BUILT_IN, BUILT_IN_USER, NO_LOGIN, Account, Group, Published, Source
from seltzer.plan.users.ledger import Entry, Ledger
from seltzer.plan.users.merge import Merged
from seltzer.plan.users.publishing import Decision, Memory, Stored


def files(merged: Merged) -> Published:
    made = build.render(merged)
    keys = {name: text for part in made.keys for name, text in part.items()}
    return build.parse(made.passwd, made.group, keys, made.removed)


def stored(merged: Merged) -> Stored:
    return Stored(merged.ledger, files(merged))


def decided(before: Stored, *sources: Source, memory: Memory | None = None, most: int = 1_000_000) -> Decision:
    known = publishing.remember(memory or Memory(), before)
    return publishing.decide(sources, known, before, lambda merged: build.too_large(merged, most))


def shells(merged: Merged) -> dict[str, str]:
    return {name: each.shell for name, each in files(merged).accounts.items()}


# --- what doesn't fit -------------------------------------------------------------------------------------------------


def test_leavers_are_out_when_the_names_of_former_users_would_fill_the_file() -> None:
    """As an audit found: 12,181 users fit, 200 of them leave, and nothing was published."""
    everybody = [Account(f"user{at:05}", 10_000 + at, full_name="P") for at in range(20_000)]
    line = len("user00000:*:10000:10000:P:/home/user00000:/bin/bash\n")
    count = (build.MOST_BYTES - len("1000\n")) // line
    full = first(inline(*everybody[:count]))
    assert not build.too_large(full)
    assert build.too_large(first(inline(*everybody[: count + 200])))
    before = stored(full)
    decision = decided(before, inline(*everybody[200:count]))
    assert not decision.too_large
    assert decision.save, "the ledger goes first"
    assert len(decision.merged.accounts) == count - 200
    after = decided(stored(decision.merged), inline(*everybody[200:count]))
    assert after.publish
    assert shells(after.merged).keys() >= {each.name for each in everybody[200:count]}
    assert files(after.merged).blocked >= {each.uid for each in everybody[:200]}


FLOOD = [Account(f"more{at:04}", 30_000 + at) for at in range(2000)]


@pytest.mark.parametrize(
    ("now", "gone"),
    [
        pytest.param((BOB,), "alice", id="left"),
        pytest.param((replace(ALICE, shell="/bin/false"), BOB), "alice", id="locked"),  # noqa: S604
    ],
)
def test_too_many_users_let_nobody_in_and_keep_nobody_from_leaving(now: tuple[Account, ...], gone: str) -> None:
    before = stored(first(directory(ALICE, BOB, groups=(Group("lab", 3002, ("alice", "bob")),))))
    decision = decided(before, directory(*now, *FLOOD, groups=(Group("lab", 3002, ("alice", "bob")),)), most=20_000)
    assert "the users make a passwd file of" in decision.too_large
    assert not decision.stuck
    assert [each.name for each in decision.merged.accounts] == ["bob"]
    assert shells(decision.merged)[gone] == NO_LOGIN
    assert files(decision.merged).blocked >= {ALICE.uid}
    assert decision.merged.ledger.users.keys() == {"alice", "bob"}, "nobody of those who don't fit has an ID"
    assert next(each.members for each in decision.merged.groups if each.name == "lab") == ("bob",)
    assert dict(build.render(decision.merged).keys[0]) == {"bob": "ssh-ed25519 B\n"}


def test_too_many_users_change_nothing_else() -> None:
    before = stored(first(directory(ALICE, BOB)))
    decision = decided(before, directory(replace(ALICE, full_name="Alice"), BOB, *FLOOD), most=20_000)
    assert files(decision.merged) == before.published
    assert not decision.save


def test_fifty_thousand_entries_are_named_and_change_nothing() -> None:
    before = stored(first(directory(ALICE, BOB)))
    flood = [Account(f"user{at:05}", 10_000 + at, full_name=f"Person {at}") for at in range(50_000)]
    decision = decided(before, directory(ALICE, BOB, *flood))
    assert "50,002 users take 3," in decision.too_large
    assert files(decision.merged) == before.published and decision.merged.ledger == before.ledger


def test_a_key_or_a_membership_that_is_taken_away_is_gone_although_others_do_not_fit() -> None:
    alice = replace(ALICE, keys=("ssh-ed25519 A", "ssh-ed25519 lost"))
    before = stored(first(directory(alice, groups=(Group("lab", 3002, ("alice",)),))))
    now = replace(alice, keys=("ssh-ed25519 A", "ssh-ed25519 new"))
    decision = decided(before, directory(now, *FLOOD, groups=(Group("lab", 3002, ()),)), most=20_000)
    (left,) = decision.merged.accounts
    assert left.keys == ("ssh-ed25519 A",)
    assert [each.members for each in decision.merged.groups if each.name == "lab"] == [()]


def test_who_is_removed_in_the_ledger_does_not_return_while_others_do_not_fit() -> None:
    before = stored(first(directory(ALICE, BOB)))
    saved = decided(before, directory(BOB)).merged.ledger
    assert saved.users["alice"] == Entry(ALICE.uid)
    decision = decided(replace(before, ledger=saved), directory(ALICE, BOB, *FLOOD), most=20_000)
    assert [each.name for each in decision.merged.accounts] == ["bob"]
    assert shells(decision.merged)["alice"] == NO_LOGIN


def test_a_name_without_room_leaves_its_id_reserved_when_the_ledger_is_lost() -> None:
    blocked = Published({"alice": replace(ALICE, gid=2001)}, {}, frozenset({1000, 2002}))
    found = publishing.rebuilt(blocked)
    assert found.users == {"alice": Entry(2001, "unknown"), "former-2002": Entry(2002)}
    decision = decided(Stored(None, blocked), inline(ALICE, BOB))
    assert "uid 2002 belongs to former-2002" in decision.merged.refusals[0].why


# --- what is lost -----------------------------------------------------------------------------------------------------

DOWN = directory(error="it is down")


def test_keys_that_somebody_deletes_while_the_directory_is_down_are_as_they_were() -> None:
    whole = stored(first(directory(ALICE, BOB)))
    memory = publishing.remember(Memory(), whole)
    assert whole.published
    no_keys = {name: replace(each, keys=()) for name, each in whole.published.accounts.items()}
    lost = replace(whole, published=replace(whole.published, accounts=no_keys), keys_complete=False)
    decision = decided(lost, DOWN, memory=memory)
    assert files(decision.merged) == whole.published
    meant = decided(replace(lost, keys_complete=True), DOWN, memory=memory)
    assert files(meant.merged) == lost.published, "all ConfigMaps are there: nothing was lost"


def test_a_ledger_that_somebody_deletes_is_saved_again_as_it_was() -> None:
    whole = stored(first(inline(BOB), directory(ALICE)))
    decision = decided(Stored(None, whole.published), inline(BOB), DOWN, memory=publishing.remember(Memory(), whole))
    assert (decision.save, decision.publish) == (True, False)
    assert decision.merged.ledger == whole.ledger, "with the sources, which the files don't say"


def test_users_whose_files_are_lost_while_their_source_fails_are_locked_and_not_removed() -> None:
    ledger = first(directory(ALICE, BOB)).ledger
    decision = decided(Stored(ledger), DOWN)
    assert shells(decision.merged) == {"alice": NO_LOGIN, "bob": NO_LOGIN}
    assert decision.merged.ledger == ledger
    assert decision.publish
    back = decided(stored(decision.merged), directory(ALICE, BOB))
    assert files(back.merged) == files(first(directory(ALICE, BOB)))


def test_a_new_cluster_starts_with_files_that_list_nobody_and_saves_the_ledger_first() -> None:
    decision = decided(Stored(), inline(ALICE))
    assert (decision.save, decision.publish, decision.placeholder) == (True, False, True)
    decision = decided(Stored(decision.merged.ledger), inline(ALICE))
    assert (decision.save, decision.publish) == (False, True)


def test_nobodys_files_take_the_place_of_files_that_are_known() -> None:
    whole = stored(first(inline(ALICE)))
    decision = decided(Stored(), inline(ALICE, BOB), memory=publishing.remember(Memory(), whole))
    assert (decision.save, decision.placeholder) == (True, False)


def test_nothing_is_written_if_not_even_what_is_left_fits() -> None:
    decision = decided(stored(first(inline(ALICE))), inline(ALICE), most=10)
    assert decision.stuck and not decision.publish


# --- whatever happens -------------------------------------------------------------------------------------------------

SOURCES = st.builds(
    Source,
    st.just("ldap"),
    st.lists(ACCOUNTS, max_size=5).map(tuple),
    st.lists(GROUPS, max_size=3).map(tuple),
    error=st.sampled_from(["", "", "it is down"]),
    pending=st.booleans(),
)
INLINE = st.lists(ACCOUNTS, max_size=4).map(lambda accounts: inline(*accounts))
NOTHING_NAMED = Source(BUILT_IN, (BUILT_IN_USER,), explicit=True, lasting=False)
LISTED = st.one_of(st.just((NOTHING_NAMED,)), st.tuples(INLINE), st.tuples(SOURCES), st.tuples(INLINE, SOURCES))
PARTS = ("ledger", "passwd", "group", "keys")
# So small that four users don't fit with their groups.
MOST = 260


@dataclass
class World:
    """The ConfigMaps, and everything that was ever in them."""

    ledger: dict[str, str] | None = None
    passwd: tuple[str, str] | None = None
    group: str | None = None
    keys: dict[str, str] | None = None
    saved: set[tuple[str, int]] = field(default_factory=set)
    owners: dict[int, str] = field(default_factory=dict)

    def stored(self) -> Stored:
        published = None
        if self.passwd is not None and self.group is not None:
            published = build.parse(self.passwd[0], self.group, self.keys or {}, self.passwd[1])
        return Stored(ledgers.parse(self.ledger) if self.ledger else None, published, self.keys is not None)

    def write(self, part: str, content: Any) -> None:
        setattr(self, part, content)
        if part == "ledger":
            self.saved |= {(name, entry.id) for name, entry in ledgers.parse(content).users.items()}
        if part == "passwd":
            for account in build.parse(content[0], "", {}).accounts.values():
                assert (account.name, account.uid) in self.saved or account.name == BUILT_IN_USER.name
                # The built-in user is nobody's, and 'former-…' is the name of an ID whose owner isn't known any more.
                if account.name != BUILT_IN_USER.name and not account.name.startswith("former-"):
                    assert self.owners.setdefault(account.uid, account.name) == account.name
                    known = ledgers.parse(self.ledger).users.get(account.name) if self.ledger else None
                    assert known is None or known.source or account.locked, "the ledger has them as removed"


class Publishing(RuleBasedStateMachine):
    """One cluster, its sources, its ConfigMaps, and operators that end at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.memory = Memory()
        self.sources: tuple[Source, ...] = (NOTHING_NAMED,)

    @rule(
        sources=st.one_of(st.just((NOTHING_NAMED,)), st.tuples(INLINE), st.tuples(SOURCES), st.tuples(INLINE, SOURCES))
    )
    def list(self, sources: tuple[Source, ...]) -> None:
        self.sources = sources

    @rule(done=st.sets(st.sampled_from(PARTS)), crash=st.booleans())
    def interrupted_pass(self, done: set[str], crash: bool) -> None:
        """Writes are side by side: any of them may be done when the operator ends, or the API server refuses them."""
        self.one_pass(done)
        memory = self.memory
        self.memory = Memory() if crash else memory
        if not self.is_safe():
            self.memory = memory

    @rule()
    def whole_pass(self) -> None:
        self.one_pass(set(PARTS))

    def one_pass(self, done: set[str]) -> None:
        stored = self.world.stored()
        self.memory = publishing.remember(self.memory, stored)
        decision = publishing.decide(
            self.sources, self.memory, stored, lambda merged: build.too_large(replace(merged, ledger=Ledger()), MOST)
        )
        assert not decision.stuck, "what leaves makes room"
        wanted: dict[str, Any] = {}
        if decision.publish or decision.placeholder:
            made = build.render(decision.merged if decision.publish else publishing.NOBODY, MOST)
            keys = {name: text for part in made.keys for name, text in part.items()}
            wanted = {"passwd": (made.passwd, made.removed), "group": made.group, "keys": keys}
            if not decision.publish:
                wanted = {part: each for part, each in wanted.items() if getattr(self.world, part) is None}
        if decision.save and not decision.stuck:
            wanted["ledger"] = ledgers.text(decision.merged.ledger)
        for part in done & wanted.keys():
            self.world.write(part, wanted[part])

    @rule(part=st.sampled_from(PARTS))
    def delete(self, part: str) -> None:
        before = getattr(self.world, part)
        setattr(self.world, part, None)
        if not self.is_safe():
            setattr(self.world, part, before)

    def is_safe(self) -> bool:
        """Somebody knows the IDs: the ledger, an operator that has seen it, or the files."""
        published = self.world.stored().published
        shown = {each.uid for each in published.accounts.values()} | published.blocked if published else set()
        return bool(self.world.ledger or self.memory.ledger) or shown >= self.world.owners.keys()

    @invariant()
    def files_list_each_id_once(self) -> None:
        if self.world.passwd:
            lines = self.world.passwd[0].splitlines()
            assert len({line.split(":")[2] for line in lines}) == len(lines)

    @precondition(lambda self: all(each.error == "" for each in self.sources))
    @rule()
    def settled(self) -> None:
        """After some passes nothing is left to write, and whoever isn't listed can't log in."""
        for _ in range(3):
            self.whole_pass()
        before = replace(self.world)
        self.whole_pass()
        assert replace(self.world) == before
        listed = {account.name for source in self.sources for account in source.accounts}
        known = ledgers.parse(self.world.ledger).users if self.world.ledger else {}
        kept = {name for name, entry in known.items() if entry.source}
        for line in (self.world.passwd or ("", ""))[0].splitlines():
            name, *_, shell = line.split(":")
            assert shell == NO_LOGIN or name in listed or name in kept


Publishing.TestCase.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
TestPublishing = Publishing.TestCase


def test_the_keys_of_a_cluster_are_complete_only_with_all_of_their_config_maps() -> None:
    accounts = [Account(f"user{at}", 5000 + at, keys=("k" * 60_000,)) for at in range(20)]
    made = build.manifests(cluster(), build.render(first(inline(*accounts))))
    found = {each["metadata"]["name"]: msgspec.convert(each, ConfigMap) for each in made}
    assert build.stored(found, cluster()).keys_complete
    del found["demo-keys-1"]
    assert not build.stored(found, cluster()).keys_complete
