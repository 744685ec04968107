"""What is installed can be printed, compared and removed; what would cost somebody a cluster is refused."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import yaml

from seltzer.api import crd
from seltzer.api.core import (
    ContainerState,
    ContainerStatus,
    ObjectCondition,
    ObjectMeta,
    Pod,
    PodStatus,
    Terminated,
    Waiting,
)
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import create, install, kube, main, objects
from seltzer.cli.objects import Change, Objects
from seltzer.errors import SeltzerError
from seltzer.kube.client import Client
from seltzer.kube.config import Config
from seltzer.kube.errors import NotFound

PLACE = kube.Place(Config("https://one", ssl.create_default_context()), "seltzer-system")


def test_everything_that_is_installed_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    install.install(only_print=True, namespace="mine", image="registry.example/operator:1")
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    assert found[:2] == crd.manifests()
    assert {"Namespace", "Deployment", "ServiceAccount", "ClusterRole"} <= {each["kind"] for each in found}
    deployment = next(each for each in found if each["kind"] == "Deployment")
    assert deployment["metadata"]["namespace"] == "mine"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/operator:1"


def test_the_kinds_are_not_removed_while_there_are_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube, "locate", lambda namespace, context: PLACE)
    monkeypatch.setattr(kube, "talk", lambda place, about: ["SlurmCluster team/demo"])
    with pytest.raises(SeltzerError, match="would delete SlurmCluster team/demo; delete them first"):
        install.uninstall(yes=True, with_crds=True)


def test_nothing_is_removed_without_a_yes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[object] = []

    def talk(place: kube.Place, about: object) -> list[str]:
        asked.append(about)
        return ["SlurmCluster team/demo"]

    monkeypatch.setattr(kube, "locate", lambda namespace, context: PLACE)
    monkeypatch.setattr(kube, "talk", talk)
    with pytest.raises(SeltzerError, match="nothing was removed"):
        install.uninstall()
    assert len(asked) == 1, "only the clusters were asked for"
    assert "go on running" in capsys.readouterr().err


class Server(Client):
    """An API server that knows Deployments and namespaces, and keeps what it is given as it is."""

    def __init__(self, **stored: Mapping[str, Any]) -> None:
        self.stored = {path.replace("_", "/"): dict(item) for path, item in stored.items()}
        self.calls: list[tuple[str, str, Any]] = []

    async def call(self, method: str, path: str, *, params: Any = None, content: Any = None, **_: Any) -> bytes:
        if path == "/apis/apps/v1":
            kinds = [("deployments", True), ("deployments/scale", True)]
            found = [{"name": name, "kind": "Deployment", "namespaced": namespaced} for name, namespaced in kinds]
            return msgspec.json.encode({"resources": found})
        if path == "/api/v1":
            return msgspec.json.encode({"resources": [{"name": "namespaces", "kind": "Namespace"}]})
        self.calls.append((method, path, params))
        if method == "PATCH":
            kept = {**self.stored.get(path, {}), **content}
            if "dryRun" not in params:
                self.stored[path] = kept
            return msgspec.json.encode({**kept, "status": {"changes": len(self.calls)}})
        if path not in self.stored:
            raise NotFound(404, "NotFound", "no such object")
        return msgspec.json.encode(self.stored.pop(path) if method == "DELETE" else self.stored[path])


def deployment(image: str) -> dict[str, Any]:
    metadata = {"name": "op", "namespace": "ns"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"images": [image]}}


async def test_applying_tells_what_changed() -> None:
    server = Server()
    some = Objects(server)
    assert str(await some.apply(deployment("one"), dry_run=True)) == "Deployment op: new"
    assert server.stored == {}
    assert str(await some.apply(deployment("one"))) == "Deployment op: new"
    assert list(server.stored) == ["/apis/apps/v1/namespaces/ns/deployments/op"]
    assert await some.apply(deployment("one")) == Change("Deployment op", False)
    assert str(await some.apply(deployment("two"))) == "Deployment op: spec.images[0] one -> two"
    assert all(params["fieldManager"] == objects.MANAGER for method, _, params in server.calls if method == "PATCH")


async def test_objects_without_a_namespace_and_of_unknown_kinds() -> None:
    some = Objects(Server(_api_v1_namespaces_ns={"kind": "Namespace"}))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
    assert await some.delete(namespace) is True
    assert await some.delete(namespace) is False
    with pytest.raises(SeltzerError, match="has no Secret in v1"):
        await some.get({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "ns"}})


@pytest.mark.parametrize("stays", [False, True])
async def test_only_our_own_namespace_is_removed_and_only_without_clusters_in_it(stays: bool) -> None:
    server = Server(_api_v1_namespaces_seltzer={"kind": "Namespace"})
    server.stored = {"/api/v1/namespaces/seltzer-system": {"kind": "Namespace"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "seltzer-system"}}
    clusters = ["SlurmCluster seltzer-system/demo"] if stays else ["SlurmCluster team/demo"]
    removed = await install._remove(server, [namespace], clusters, "seltzer-system")
    assert removed == ([] if stays else ["Namespace seltzer-system"])
    assert bool(server.stored) is stays


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a 1 -> 2"]),
        ({"a": 1}, {}, ["a 1 -> (none)"]),
        ({}, {"a": {"b": 1}}, ["a"]),
        ({"a": [{"b": 1}, 2]}, {"a": [{"b": 3}, 2]}, ["a[0].b 1 -> 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": "x" * 81}, {"a": "y"}, ["a"]),
    ],
)
def test_differences_are_reported_by_their_fields(before: object, after: object, found: list[str]) -> None:
    assert list(objects.differences(before, after)) == found


def test_a_long_list_of_changes_is_cut() -> None:
    assert str(Change("X y", False, tuple("abcdefgh"))) == "X y: a, b, c, d, e, f and 2 more"


def pod(*containers: ContainerStatus, conditions: tuple[ObjectCondition, ...] = ()) -> Pod:
    return Pod(metadata=ObjectMeta(name="op"), status=PodStatus(container_statuses=containers, conditions=conditions))


def waiting(reason: str, message: str = "", ended: Terminated | None = None) -> ContainerStatus:
    state = ContainerState(waiting=Waiting(reason=reason, message=message))
    return ContainerStatus(name="operator", state=state, last_state=ContainerState(terminated=ended))


def test_why_the_operator_does_not_run_is_reported_once() -> None:
    crashed = waiting("CrashLoopBackOff", "back-off 10s", Terminated(exit_code=70, reason="Error"))
    unscheduled = ObjectCondition(type="PodScheduled", status="False", reason="Unschedulable", message="no memory")
    pods = [pod(crashed), pod(crashed), pod(waiting("ErrImagePull", "no such image")), pod(conditions=(unscheduled,))]
    assert install.reasons(pods) == [
        "it ends with exit code 70 (Error); see 'seltzer logs operator'",
        "ErrImagePull: no such image",
        "Unschedulable: no memory",
    ]
    assert install.reasons([pod(waiting("ContainerCreating")), pod(ContainerStatus(name="x", ready=True))]) == []


def test_a_starter_is_a_cluster_and_its_nodes() -> None:
    made = list(yaml.safe_load_all(create.starter("demo", 3, "gpu")))
    cluster, nodes = msgspec.convert(made[0], SlurmCluster), msgspec.convert(made[1], NodeSet)
    assert (cluster.metadata.name, made[0]["spec"]) == ("demo", {})
    assert (nodes.metadata.name, nodes.spec.cluster_ref.name, nodes.spec.replicas) == ("gpu", "demo", 3)


def test_what_a_starter_suggests_is_right_too() -> None:
    text = create.starter("demo", 3, "gpu").replace("spec: {}", "spec:")
    made = list(yaml.safe_load_all(re.sub("^#(?=  )", "", text, flags=re.MULTILINE)))
    assert msgspec.convert(made[0], SlurmCluster).spec.login.authorized_keys
    assert msgspec.convert(made[1], NodeSet).spec.features == ("fast",)


@pytest.mark.parametrize(
    ("name", "nodes", "nodeset"),
    [
        ("Demo", 1, "cpu"),
        ("-demo", 1, "cpu"),
        ("demo-", 1, "cpu"),
        ("d" * 41, 1, "cpu"),
        ("a: b", 1, "cpu"),
        ("demo\n", 1, "cpu"),
        ("", 1, "cpu"),
        ("demo", 1, "all"),
        ("demo", 1, "c_pu"),
        ("demo", -1, "cpu"),
        ("demo", 65537, "cpu"),
    ],
)
def test_a_starter_that_the_api_server_would_refuse_is_refused_here(name: str, nodes: int, nodeset: str) -> None:
    with pytest.raises(SeltzerError):
        create.starter(name, nodes, nodeset)


def test_all_images_come_from_the_registry_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    install.install(only_print=True, registry="registry.example/team/", tag="v1")
    printed = capsys.readouterr().out
    for name in ("operator", "slurmctld", "slurmrestd", "slurmd", "login"):
        assert f"registry.example/team/{name}:v1" in printed
    assert "seltzer.dev/slurmd:" not in printed


DEPLOYMENT = "/apis/apps/v1/namespaces/seltzer-system/deployments/seltzer-operator"


def installation(monkeypatch: pytest.MonkeyPatch, *flags: str) -> Server:
    """A Kubernetes that Seltzer is installed on, with these flags; what is brought there is stored as well."""
    server = Server()
    monkeypatch.setattr(kube, "locate", lambda namespace, context: PLACE)
    monkeypatch.setattr(kube, "talk", lambda place, about: asyncio.run(about(server)))

    def roll_out(place: kube.Place, release: install.Release, timeout: float) -> None:
        made = install._operator(place.namespace, release)
        server.stored[DEPLOYMENT] = next(each for each in made if each["kind"] == "Deployment")

    async def changes(*_: object) -> list[Change]:
        return []

    monkeypatch.setattr(install, "_roll_out", roll_out)
    monkeypatch.setattr(install, "_changes", changes)
    run("install", *flags)
    return server


def run(*words: str) -> None:
    main.build(words[0])(words, exit_on_error=False, print_error=False, result_action="return_value")


def images(server: Server) -> dict[str, str]:
    """Which images the installed operator runs with, its own as well, each by its component."""
    (container,) = server.stored[DEPLOYMENT]["spec"]["template"]["spec"]["containers"]
    told = {each["name"]: each.get("value", "") for each in container["env"]}
    prefix = "SELTZER_IMAGE_"
    parts = {name.removeprefix(prefix).lower(): value for name, value in told.items() if name.startswith(prefix)}
    del parts["pull_policy"]
    return {"operator": container["image"], **parts}


def every(registry: str, tag: str, **others: str) -> dict[str, str]:
    names = ("operator", "slurmctld", "slurmrestd", "slurmd", "login")
    return {**{name: f"{registry}/{name}:{tag}" for name in names}, **others}


THERE = ("--registry", "registry.example:5000/team", "--tag", "v1")
OWN = "elsewhere.example/own:3"


@pytest.mark.parametrize("verb", ["install", "upgrade"])
@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ((), every("registry.example:5000/team", "v1", operator=OWN)),
        (("--tag", "v2"), every("registry.example:5000/team", "v2")),
        (("--registry", "other.example/"), every("other.example", "v1")),
        (("--registry", "other.example", "--tag", "v2"), every("other.example", "v2")),
        (("--image", "mine:4"), every("registry.example:5000/team", "v1", operator="mine:4")),
        (("--tag", "v2", "--image", OWN), every("registry.example:5000/team", "v2", operator=OWN)),
    ],
)
def test_what_is_not_named_stays_as_it_is_installed(
    verb: str, flags: tuple[str, ...], left: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = installation(monkeypatch, *THERE, "--image", OWN)
    run(verb, *flags)
    assert images(server) == left


def test_a_first_installation_without_flags_has_the_images_of_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    assert images(installation(monkeypatch)) == every("seltzer.dev", "dev")


def test_a_dry_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = installation(monkeypatch, *THERE)
    run("upgrade", "--dry-run", "--tag", "v2")
    assert images(server) == every("registry.example:5000/team", "v1")


def test_an_upgrade_is_printed_as_it_would_be_applied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installation(monkeypatch, *THERE)
    capsys.readouterr()
    run("upgrade", "--print", "--tag", "v2")
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert images(Server(**{DEPLOYMENT: printed[-1]})) == every("registry.example:5000/team", "v2")


def test_there_is_nothing_to_upgrade_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = installation(monkeypatch)
    server.stored.clear()
    with pytest.raises(SeltzerError, match="there is no Seltzer in namespace 'seltzer-system'; run 'seltzer install'"):
        run("upgrade")


def test_an_image_that_the_installed_version_does_not_know_comes_from_the_same_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = installation(monkeypatch, *THERE)
    (container,) = server.stored[DEPLOYMENT]["spec"]["template"]["spec"]["containers"]
    container["env"] = [each for each in container["env"] if each["name"] != "SELTZER_IMAGE_LOGIN"]
    run("upgrade")
    assert images(server) == every("registry.example:5000/team", "v1")


def test_images_that_are_named_by_their_digests_stay_and_have_no_tag_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    server = installation(monkeypatch, *THERE)
    (container,) = server.stored[DEPLOYMENT]["spec"]["template"]["spec"]["containers"]
    for each in container["env"]:
        if each["name"] == "SELTZER_IMAGE_SLURMCTLD":
            each["value"] = pinned = "registry.example:5000/team/slurmctld@sha256:ab"
    run("upgrade")
    assert images(server) == every("registry.example:5000/team", "v1", slurmctld=pinned)
    with pytest.raises(SeltzerError, match="say with --tag which ones to run"):
        run("upgrade", "--registry", "other.example")
    run("upgrade", "--tag", "v2")
    assert images(server) == every("registry.example:5000/team", "v2")
