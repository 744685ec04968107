"""`seltzer users`: who there is, where from, and who isn't."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from tests.builders.objects import cluster
from tests.unit.plan.users.test_merge import ALICE, BOB, BUILT_IN_SOURCE, TEAM, directory, first, inline, then

from seltzer.api.core import ConfigMap
from seltzer.api.slurmcluster import SlurmClusterStatus
from seltzer.build import users as build
from seltzer.plan.users import users_status
from seltzer.plan.users.accounts import Account
from seltzer.plan.users.merge import Merged
from seltzer.view import users
from seltzer.view.text import plain


def rows(merged: Merged) -> list[users.Row]:
    one = cluster(status=SlurmClusterStatus(users=users_status.status(merged, "demo-uids")))
    made = [*build.manifests(one, build.render(merged)), build.ledger(one, merged.ledger)]
    return users.rows(one, [msgspec.convert(each, ConfigMap) for each in made])


def test_every_user_has_a_row_and_so_has_what_is_refused() -> None:
    before = first(inline(replace(ALICE, groups=("team",)), groups=(TEAM,)), directory(BOB, Account("carol", 2003)))
    merged = then(before, inline(replace(ALICE, groups=("team",)), Account("root", 5), groups=(TEAM,)), directory(BOB))
    table = ["  ".join(plain(cell) for cell in line) for line in users.lines(rows(merged))]
    assert table[:4] == [
        "NAME  UID  GROUPS  SOURCE  KEYS  STATE",
        "alice  2001  alice,team  inline  1  active",
        "bob  2002  bob  ldap  1  active",
        "carol  2003  carol  -  0  removed",
    ]
    assert table[4].startswith("root  -  -  inline  0  refused: the name 'root' belongs to the system")


def test_programs_get_the_same() -> None:
    (row,) = users.as_data(rows(first(BUILT_IN_SOURCE)))
    assert row == {
        "name": "user",
        "uid": 1000,
        "groups": ["user"],
        "source": "built-in",
        "keys": 0,
        "state": "active",
        "why": None,
    }


def test_a_removed_user_without_room_for_a_name_is_still_listed() -> None:
    merged = then(first(inline(ALICE, BOB)), inline(BOB))
    one = cluster()
    made = build.manifests(one, build.render(merged, most=60))
    assert "alice" not in made[0]["data"]["passwd"]
    found = [msgspec.convert(each, ConfigMap) for each in (*made, build.ledger(one, merged.ledger))]
    assert [(row.name, row.uid, row.state) for row in users.rows(one, found)] == [
        ("bob", 2002, "active"),
        ("alice", 2001, "removed"),
    ]
