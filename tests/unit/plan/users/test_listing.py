"""users.yaml: one entry that can't be read harms no other, and a text that says nothing isn't an empty list."""

from __future__ import annotations

import pytest

from seltzer.plan.users import listing
from seltzer.plan.users.accounts import Account, Group

TEXT = """
users:
  - {name: alice, uid: 2001, fullName: Alice Example, groups: [team], shell: /bin/sh, authorizedKeys: [ssh-ed25519 A]}
  - {name: bob, uid: 2002, gid: 3001}
groups:
  - {name: team, gid: 3001}
"""
ALICE = Account("alice", 2001, None, ("team",), "Alice Example", "/bin/sh", keys=("ssh-ed25519 A",))


@pytest.mark.parametrize("text", [TEXT, '{"users": [{"name": "bob", "uid": 2002, "gid": 3001}]}'])
def test_yaml_and_json_list_users(text: str) -> None:
    source = listing.read(text, "configMap")
    assert source.accounts[-1] == Account("bob", 2002, 3001)
    assert not source.unreadable
    if text is TEXT:
        assert (source.accounts[0], source.groups) == (ALICE, (Group("team", 3001),))


@pytest.mark.parametrize(
    ("entry", "name", "why"),
    [
        ("{name: carol}", "carol", "missing required field `uid`"),
        ("{name: carol, uid: abc}", "carol", "Expected `int`"),
        ("{name: carol, uid: 2003, shel: /bin/sh}", "carol", "unknown field `shel`"),
        ("{name: no, uid: 2003}", "users[1]", "Expected `str`"),
        ("{uid: 2003}", "users[1]", "missing required field `name`"),
        ("carol", "users[1]", "Expected `object`"),
        ("{name: carol, uid: 2003, groups: team}", "carol", "Expected `array`"),
        ("{name: carol, uid: 2003, authorizedKeys: [1]}", "carol", "Expected `str`"),
        ("", "users[1]", "Expected `object`"),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused_alone(entry: str, name: str, why: str) -> None:
    text = f"users:\n  - {{name: alice, uid: 2001}}\n  - {entry}\n  - {{name: bob, uid: 2002}}\n"
    source = listing.read(text, "configMap")
    assert [each.name for each in source.accounts] == ["alice", "bob"]
    (refusal,) = source.unreadable
    assert refusal.name == name
    assert why in refusal.why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no map with users and groups"),
        ("[]", "no map with users and groups"),
        ("users: []", "lists no users"),
        ("users:", "lists no users"),
        ("groups: [{name: team, gid: 3001}]", "lists no users"),
        ("users: [}", "isn't YAML"),
        ("{", "isn't YAML"),
        ("users: alice", "users isn't a list"),
        ("userss: []", "'userss'"),
        ("users: !!python/object:os.system []", "isn't YAML"),
        ("? [a]\n: b", "isn't YAML"),
        ("a: &a [*a]\nusers: []", "an anchor and an alias, which aren't supported"),
        ("users: " + "[" * 30_000, "nested more than 16 deep"),
        ("users: " + "[" * 17 + "]" * 17, "nested more than 16 deep"),
        ("users: !!bool x", "isn't YAML"),
        ('users: [{name: alice, uid: !!int ""}]', "isn't YAML"),
        ("users: !!timestamp x", "isn't YAML"),
        ("[" * 30_000, "isn't YAML"),
    ],
)
def test_a_text_without_users_is_an_error_that_says_what_to_do(text: str, why: str) -> None:
    with pytest.raises(listing.ListingError, match=why):
        listing.read(text, "configMap")
