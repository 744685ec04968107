"""The files that every container reads, and the volumes with them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.builders.objects import cluster, nodeset
from tests.unit.plan.users.test_merge import ALICE, BOB, BUILT_IN_SOURCE, TEAM, first, inline, then

from seltzer.api.core import ConfigMap
from seltzer.build import cluster as clusters
from seltzer.build import nodeset as nodesets
from seltzer.build import users
from seltzer.build.images import Images
from seltzer.build.names import Manifest
from seltzer.plan.users.accounts import Account
from seltzer.plan.users.ledger import Entry, Ledger


def read(manifest: Manifest) -> ConfigMap:
    return msgspec.convert(manifest, ConfigMap)


def volume(spec: Manifest, name: str) -> Manifest:
    (found,) = (each for each in spec["volumes"] if each["name"] == name)
    return dict(found)


def test_the_files_have_the_formats_of_libc() -> None:
    alice = replace(ALICE, full_name="Alice Example", groups=("team",))
    files = users.render(then(first(inline(alice, BOB)), inline(alice, groups=(TEAM,))))
    assert files.passwd.splitlines() == [
        "alice:*:2001:2001:Alice Example:/home/alice:/bin/bash",
        "bob:*:2002:2002::/home/bob:/usr/sbin/nologin",
    ]
    assert files.group == "alice:*:2001:\nbob:*:2002:\nteam:*:3001:alice\n"
    assert files.removed == "1000\n2002\n"
    assert files.keys == ({"alice": "ssh-ed25519 A\n"},)


def test_whoever_has_the_id_of_the_built_in_user_may_submit() -> None:
    assert users.render(first(BUILT_IN_SOURCE)).removed == ""
    assert users.render(first(inline(replace(ALICE, uid=1000)))).removed == ""
    assert users.render(first(inline(ALICE))).removed == "1000\n"


def test_many_keys_are_in_several_config_maps() -> None:
    accounts = [Account(f"user{at}", 5000 + at, keys=("k" * 60_000,)) for at in range(50)]
    files = users.render(first(inline(*accounts)))
    assert len(files.keys) == 5
    assert sorted(name for part in files.keys for name in part) == sorted(each.name for each in accounts)
    found = users.manifests(cluster(), files)
    assert all(sum(map(len, each["data"].values())) < 1_000_000 for each in found)
    back = users.published({each["metadata"]["name"]: read(each) for each in found}, cluster())
    assert all(back.accounts[each.name].keys == each.keys for each in accounts)


@pytest.mark.parametrize("count", [10_000, 20_000])
def test_10000_users_fit_and_more_than_fit_say_so(count: int) -> None:
    accounts = [Account(f"user{at:05}", 10_000 + at, full_name=f"Person {at}") for at in range(count)]
    assert bool(users.too_large(first(inline(*accounts)))) is (count > 10_000)


def test_a_ledger_that_does_not_fit_says_so() -> None:
    people = {f"user{at:05}": Entry(10_000 + at, "ldap") for at in range(13_000)}
    groups = {f"course{at:05}": Entry(50_000 + at) for at in range(40_000)}
    empty = first(inline())
    assert users.too_large(replace(empty, ledger=Ledger(people))) == ""
    said = users.too_large(replace(empty, ledger=Ledger(people, groups)))
    assert "the IDs make a ledger of 1," in said
    assert "13,000 users and 40,000 groups, of which no source lists 40,000 any more" in said


def crowd(count: int) -> list[Account]:
    return [Account(f"user{at:05}", 10_000 + at, full_name=f"Person {at}") for at in range(count)]


def test_removed_users_have_the_room_that_is_left_and_those_with_the_highest_ids_have_it_first() -> None:
    left, here = Account("someone", 1000), crowd(40)
    merged = then(first(inline(left, *here)), inline(*here[:20]))
    everything = users.render(merged)
    active = len("".join(everything.passwd.splitlines(keepends=True)[1:21]))
    little = users.render(merged, active + len(everything.removed) + 180)
    names = [line.split(":")[0] for line in little.passwd.splitlines()]
    assert names == [*(each.name for each in here[:20]), "someone", "user00038", "user00039"]
    assert little.removed == everything.removed, "no ID of theirs is forgotten"
    assert "Person" not in everything.passwd.splitlines()[-1]


def test_what_fills_a_file_is_named() -> None:
    merged = then(first(inline(*crowd(12_000))), inline(*crowd(11_000)))
    assert users.too_large(merged) == ""
    users_bytes = sum(len(line) + 1 for line in users.render(merged).passwd.splitlines() if "nologin" not in line)
    said = users.too_large(merged, 680_000)
    assert f"11,000 users take {users_bytes:,}, and the IDs of 1,001 who may not log in 6,005" in said


def test_a_change_of_users_changes_no_pod_template() -> None:
    plain, named = (
        [each for each in clusters.applied(cluster(spec), Images()) if each["kind"] == "Deployment"]
        for spec in ({}, {"users": {"inline": {"users": [{"name": "alice", "uid": 2001}]}}})
    )
    assert plain == named


def test_every_daemon_mounts_the_users() -> None:
    one = cluster()
    specs = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in clusters.applied(one, Images())
        if each["kind"] == "Deployment"
    }
    specs["slurmd"] = nodesets.pod(nodeset(), one, Images(), "cpu-0")["spec"]
    assert len(specs) == 4
    for spec in specs.values():
        assert volume(spec, "users") == users.volume("demo-passwd", "demo-group")
        for container in spec["containers"]:
            assert users.mount() in container["volumeMounts"], container["name"]


def test_a_nodeset_elsewhere_has_a_copy() -> None:
    one, other = cluster(allows=["there"]), nodeset(namespace="there", cluster_namespace="ns")
    published = [read(each) for each in users.manifests(one, users.render(first(inline(ALICE))))]
    made = {each["metadata"]["name"]: each for each in nodesets.support(other, one, b"key", published)}
    assert made["cpu.passwd"]["data"] == published[0].data
    assert made["cpu.passwd"]["metadata"]["namespace"] == "there"
    assert users.digest(read(made["cpu.passwd"]), read(made["cpu.group"])) == users.digest(*published[:2])
    spec = nodesets.pod(other, one, Images(), "cpu-0")["spec"]
    assert volume(spec, "users") == users.volume("cpu.passwd", "cpu.group")
    assert not any("keys" in name for name in made if name.startswith("cpu.")), "sshd runs in no slurmd pod"


def test_new_pods_know_which_users_they_found_and_are_still_made_from_the_same_template() -> None:
    plain, known = (nodesets.pods_of(nodeset(), cluster(), Images(), each)("cpu-0") for each in ("", "digest"))
    assert known["metadata"]["annotations"]["seltzer.dev/users"] == "digest"
    assert plain["metadata"]["labels"] == known["metadata"]["labels"]
