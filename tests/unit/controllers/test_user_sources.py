"""The sources of users: their order is that of the spec, and what an operator before has seen counts once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.builders.objects import cluster
from tests.fakes.apiserver.server import FakeApiServer

from seltzer.controllers.ldap_feed import LdapFeed
from seltzer.controllers.user_sources import UserSources
from seltzer.kube.client import Client
from seltzer.plan.users.accounts import Published
from seltzer.plan.users.ledger import Ledger
from seltzer.plan.users.merge import merge

LDAP = {"uri": ["ldaps://x.invalid"], "baseDN": "dc=x", "bindSecret": {"name": "none"}}


@pytest.fixture
async def sources() -> AsyncIterator[UserSources]:
    async with FakeApiServer() as server, Client(server.config()) as client:
        sources = UserSources(client)
        yield sources
        await sources.close_all()


async def test_the_order_is_that_of_the_spec_whatever_was_changed_last(sources: UserSources) -> None:
    for name in ("people", "others"):
        found = sources.of(cluster({"users": {"configMap": {"name": name}, "ldap": LDAP}}), lambda: False)
        assert [each.name for each in found] == ["configMap", "ldap"]


@pytest.mark.parametrize("had_groups", [True, False])
async def test_what_an_operator_before_has_seen_counts_until_the_spec_changes(
    sources: UserSources, monkeypatch: pytest.MonkeyPatch, had_groups: bool
) -> None:
    made: list[bool] = []

    class Feed(LdapFeed):
        def __init__(self, *words: object, had_groups: bool) -> None:
            made.append(had_groups)
            super().__init__(*words, had_groups=had_groups)  # type: ignore[arg-type]

    monkeypatch.setattr("seltzer.controllers.user_sources.LdapFeed", Feed)
    for base in ("dc=x", "dc=x", "dc=y"):
        sources.of(cluster({"users": {"ldap": {**LDAP, "baseDN": base}}}), lambda: had_groups)
    assert made == [had_groups, False]


@pytest.mark.parametrize(
    ("keys", "taken", "why"),
    [
        ([f"ssh-rsa {n:04}{'A' * 736}" for n in range(100)], 87, "too many bytes of keys: remove some"),
        (["ssh-ed25519 \x0bAAAA", "ssh-ed25519 BBBB"], 1, "a key is one line"),
    ],
)
async def test_a_key_too_many_or_a_bad_one_does_not_cost_the_only_user(
    sources: UserSources, keys: list[str], taken: int, why: str
) -> None:
    merged = merge(sources.of(cluster({"login": {"authorizedKeys": keys}}), lambda: False), Ledger(), Published())
    assert [(each.name, len(each.keys)) for each in merged.accounts] == [("user", taken)]
    assert len(merged.refusals) == len(keys) - taken
    assert why in merged.refusals[0].why
