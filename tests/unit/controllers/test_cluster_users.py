"""Users on the fakes: they are published before anybody waits, no pod is replaced, and nothing is forgotten."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.apiserver.state import Id
from tests.fakes.apiserver.things import NODESETS
from tests.fakes.operator_rig import Rig, rigged

from seltzer.kube import kinds

ALICE, BOB = {"name": "alice", "uid": 2001}, {"name": "bob", "uid": 2002}


def data(rig: Rig, name: str, key: str) -> str:
    for id_, item in rig._server.state.items("", "configmaps"):
        if id_.name == name:
            return str(item.get("data", {}).get(key, ""))
    return ""


def names(rig: Rig) -> dict[str, str]:
    """The shell of each user that the containers know."""
    lines = (line.split(":") for line in data(rig, "demo-passwd", "passwd").splitlines())
    return {line[0]: line[-1] for line in lines}


def condition(rig: Rig) -> dict[str, str]:
    for id_, item in rig._server.state.items("seltzer.dev", "slurmclusters"):
        found = item.get("status", {}).get("conditions", [])
        if id_.name == "demo":
            return next((each for each in found if each["type"] == "UsersReady"), {})
    return {}


def people(*users: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "people", "namespace": "ns"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"users.yaml": listed(*users)}}


def listed(*users: dict[str, Any]) -> str:
    return json.dumps({"users": list(users)})


def templates(rig: Rig) -> dict[str, object]:
    return {name: (pod["metadata"]["uid"], pod["spec"]) for name, pod in rig.pods().items()}


async def test_an_empty_spec_has_one_user_and_no_ledger() -> None:
    async with rigged() as rig:
        await rig.cluster()
        await rig.until("the user is there", lambda: names(rig) == {"user": "/bin/bash"})
        await rig.until("the condition says so", lambda: condition(rig).get("reason") == "BuiltIn")
        assert "configmaps/demo-uids" not in rig.kinds()


async def test_changes_reach_every_pod_and_replace_none() -> None:
    async with rigged() as rig:
        await rig.cluster(users={"inline": {"users": [ALICE]}})
        await rig.nodeset(replicas=2)
        await rig.until("both are ready", lambda: rig.ready("nodesets", "cpu") and names(rig) == {"alice": "/bin/bash"})
        before = templates(rig)

        def digests() -> set[str]:
            return {pod["metadata"]["annotations"].get("seltzer.dev/users", "") for pod in rig.pods().values()}

        await rig.until("all pods agree", lambda: len(digests()) == 1 and "" not in digests())
        (old,) = digests()
        await rig.cluster(users={"inline": {"users": [ALICE, BOB]}})
        await rig.until("all pods agree again", lambda: len(digests()) == 1 and old not in digests())
        assert set(names(rig)) == {"alice", "bob"}
        assert templates(rig) == before


async def test_the_ledger_is_saved_before_anybody_is_published() -> None:
    async with rigged() as rig:
        await rig.cluster(users={"inline": {"users": [ALICE]}})
        await rig.until("alice is published", lambda: "alice" in names(rig))
        writes = [str(write) for write in rig.written()]
        saved = next(at for at, each in enumerate(writes) if "demo-uids" in each)
        published = [at for at, each in enumerate(writes) if "demo-passwd" in each]
        assert published and saved < min(published), "before that, only files that list nobody are created"
        assert "alice 2001 inline" in data(rig, "demo-uids", "users")


async def test_a_config_map_is_followed_and_its_loss_changes_nothing() -> None:
    async with rigged() as rig:
        await rig.cluster(users={"configMap": {"name": "people"}})
        await rig.until("it is missed", lambda: "no ConfigMap people" in condition(rig).get("message", ""))
        await rig.create(kinds.CONFIG_MAPS, people(ALICE, BOB))
        await rig.until("both are there", lambda: set(names(rig)) == {"alice", "bob"})
        await rig.until("the condition says so", lambda: condition(rig)["status"] == "True")
        rig._server.state.patch(Id("", "configmaps", "ns", "people"), data={"users.yaml": listed(ALICE)})
        await rig.until("bob is out", lambda: names(rig).get("bob") == "/usr/sbin/nologin")
        before = names(rig)
        await rig.delete(kinds.CONFIG_MAPS, "people")
        await rig.until("it is missed again", lambda: condition(rig)["reason"] == "SourceFailed")
        assert names(rig) == before


async def test_a_source_outlives_every_text_and_moves_to_another_kind_without_a_loss() -> None:
    async with rigged() as rig:
        await rig.create(kinds.CONFIG_MAPS, people(ALICE, BOB))
        await rig.cluster(users={"configMap": {"name": "people"}})
        await rig.until("both are there", lambda: set(names(rig)) == {"alice", "bob"})
        rig._server.state.patch(Id("", "configmaps", "ns", "people"), data={"users.yaml": "users: !!bool x"})
        await rig.until("it says so", lambda: condition(rig)["reason"] == "SourceFailed")
        await rig.cluster(
            users={"ldap": {"uri": ["ldaps://x.invalid"], "baseDN": "dc=x", "bindSecret": {"name": "none"}}}
        )
        await rig.until("the directory is missed", lambda: "ldap can't be used" in condition(rig)["message"])
        assert set(names(rig).values()) == {"/bin/bash"}, "nobody knows whom the directory lists"
        rig._server.state.patch(Id("", "configmaps", "ns", "people"), data={"users.yaml": listed(ALICE)})
        await rig.cluster(users={"configMap": {"name": "people"}})
        await rig.until("the new list counts", lambda: names(rig).get("bob") == "/usr/sbin/nologin")
        assert names(rig)["alice"] == "/bin/bash"


async def test_without_files_and_ledger_nobody_goes_until_the_source_answers() -> None:
    async with rigged() as rig:
        await rig.create(kinds.CONFIG_MAPS, people(ALICE, BOB))
        await rig.cluster(users={"configMap": {"name": "people"}})
        await rig.until("both are there", lambda: set(names(rig)) == {"alice", "bob"})
        rig._crash(None)  # type: ignore[arg-type]
        for name in ("demo-uids", "people"):
            await rig.delete(kinds.CONFIG_MAPS, name)
        await rig.until("another looks", lambda: rig.starts == 2 and condition(rig)["reason"] == "SourceFailed")
        assert names(rig) == {"alice": "/bin/bash", "bob": "/bin/bash"}
        await rig.create(kinds.CONFIG_MAPS, people(ALICE))
        await rig.until("it counts", lambda: names(rig) == {"alice": "/bin/bash", "bob": "/usr/sbin/nologin"})
        assert "alice 2001 configMap" in data(rig, "demo-uids", "users")


async def test_keys_that_somebody_deletes_while_a_source_fails_come_back() -> None:
    alice = {**ALICE, "authorizedKeys": ["ssh-ed25519 A"]}
    async with rigged() as rig:
        await rig.create(kinds.CONFIG_MAPS, people(alice))
        await rig.cluster(users={"configMap": {"name": "people"}})
        await rig.until("her key is there", lambda: data(rig, "demo-keys-0", "alice") == "ssh-ed25519 A\n")
        await rig.delete(kinds.CONFIG_MAPS, "people")
        await rig.until("it is missed", lambda: condition(rig)["reason"] == "SourceFailed")
        await rig.delete(kinds.CONFIG_MAPS, "demo-keys-0")
        await rig.until("it is back", lambda: data(rig, "demo-keys-0", "alice") == "ssh-ed25519 A\n")


async def test_more_users_than_fit_change_nothing_but_leavers_are_out() -> None:
    async with rigged() as rig:
        await rig.create(kinds.CONFIG_MAPS, people(ALICE, BOB))
        await rig.cluster(users={"configMap": {"name": "people"}})
        await rig.until("both are there", lambda: set(names(rig)) == {"alice", "bob"})
        before = data(rig, "demo-passwd", "passwd")
        flood = [{"name": f"user{at:04}", "uid": 10_000 + at, "fullName": "x" * 255} for at in range(4_000)]
        where = Id("", "configmaps", "ns", "people")
        rig._server.state.patch(where, data={"users.yaml": listed(ALICE, BOB, *flood)})
        await rig.until("it says so", lambda: condition(rig)["reason"] == "TooManyUsers")
        assert "4,002 users take" in condition(rig)["message"]
        assert data(rig, "demo-passwd", "passwd") == before
        assert "user0001" not in data(rig, "demo-uids", "users")
        rig._server.state.patch(where, data={"users.yaml": listed(ALICE, *flood)})
        await rig.until("bob is out", lambda: names(rig)["bob"] == "/usr/sbin/nologin")
        assert names(rig) == {"alice": "/bin/bash", "bob": "/usr/sbin/nologin"}


async def test_a_new_operator_knows_what_the_one_before_published() -> None:
    async with rigged() as rig:
        await rig.cluster(users={"configMap": {"name": "people"}})
        await rig.create(kinds.CONFIG_MAPS, people(ALICE))
        await rig.until("alice is there", lambda: names(rig) == {"alice": "/bin/bash"})
        rig._crash(None)  # type: ignore[arg-type]
        await rig.delete(kinds.CONFIG_MAPS, "people")
        await rig.until("another looks", lambda: rig.starts == 2 and condition(rig)["reason"] == "SourceFailed")
        assert names(rig) == {"alice": "/bin/bash"}


async def test_a_ledger_that_cannot_be_read_stops_every_change() -> None:
    async with rigged() as rig:
        await rig.cluster(users={"inline": {"users": [ALICE]}})
        await rig.until("alice is there", lambda: "alice" in names(rig))
        rig._server.state.patch(Id("", "configmaps", "ns", "demo-uids"), data={"users": "alice is 2001", "groups": "#"})
        await rig.until("it says so", lambda: condition(rig).get("reason") == "LedgerUnreadable")
        await rig.cluster(users={"inline": {"users": [ALICE, BOB]}})
        rig._server.state.patch(
            Id("", "configmaps", "ns", "demo-uids"), data={"users": "alice 2001 inline", "groups": "alice 2001 inline"}
        )
        await rig.until("bob comes once it can be read", lambda: "bob" in names(rig))


async def test_deleted_files_and_a_deleted_ledger_come_back() -> None:
    async with rigged() as rig:
        await rig.cluster(users={"inline": {"users": [ALICE, BOB]}})
        await rig.until("both are there", lambda: len(names(rig)) == 2)
        await rig.cluster(users={"inline": {"users": [ALICE]}})
        await rig.until("bob is out", lambda: names(rig)["bob"] == "/usr/sbin/nologin")
        for name in ("demo-uids", "demo-passwd", "demo-group"):
            await rig.delete(kinds.CONFIG_MAPS, name)
        await rig.until(
            "all is as it was",
            lambda: names(rig).get("bob") == "/usr/sbin/nologin" and "bob 2002 -" in data(rig, "demo-uids", "users"),
        )


async def test_a_nodeset_elsewhere_has_its_own_copy_that_follows() -> None:
    async with rigged() as rig:
        spec = {"nodeSets": {"namespaces": ["elsewhere"]}}
        await rig.cluster(**spec, users={"inline": {"users": [ALICE]}})
        ref = {"clusterRef": {"name": "demo", "namespace": "ns"}, "replicas": 1}
        await rig.apply_in("elsewhere", NODESETS, "cpu", ref)

        def copied() -> bool:
            return data(rig, "cpu.passwd", "passwd") == data(rig, "demo-passwd", "passwd") != ""

        def synced() -> set[str]:
            return {pod["metadata"]["annotations"].get("seltzer.dev/users", "") for pod in rig.pods().values()}

        await rig.until("alice is there, too", lambda: copied() and "alice" in data(rig, "cpu.passwd", "passwd"))
        await rig.until("its pod shows it", lambda: bool(synced()) and "" not in synced())
        (before,) = synced()
        await rig.cluster(**spec, users={"inline": {"users": [ALICE, BOB]}})
        await rig.until("bob follows", lambda: copied() and "bob" in data(rig, "cpu.passwd", "passwd"))
        await rig.until("its kubelet is told", lambda: before not in synced())
