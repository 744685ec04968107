"""What isn't found is reported with what there is, and where nothing is configured the sandbox is used."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import virtual_time
from tests.builders import objects

from seltzer.api.common import NodeCounts
from seltzer.api.core import ObjectMeta, Pod
from seltzer.api.nodeset import ClusterRef, NodeSet, NodeSetSpec, NodeSetStatus
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build.names import CLUSTER, CLUSTER_NAMESPACE
from seltzer.cli import drain, kube, sandbox, scale
from seltzer.cli.sandbox import RunningSandbox
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client, Listing
from seltzer.kube.config import Config
from seltzer.kube.errors import ConfigError, Forbidden, NotFound
from seltzer.kube.resource import Resource

KUBECONFIG = """
current-context: one
contexts: [{name: one, context: {cluster: one, namespace: team}}]
clusters: [{name: one, cluster: {server: "https://one"}}]
"""


def cluster(name: str, namespace: str = "here", guests: Sequence[str] = ()) -> SlurmCluster:
    return objects.cluster(name=name, namespace=namespace, allows=guests)


def nodeset(name: str, namespace: str = "here", to: str = "demo", home: str | None = None) -> NodeSet:
    return objects.nodeset(name=name, namespace=namespace, cluster=to, cluster_namespace=home)


class Server(Client):
    """An API server with these objects, that shows those of forbidden namespaces to nobody."""

    def __init__(self, *items: Any, forbidden: Sequence[str] = (), installed: bool = True) -> None:
        self._items, self._forbidden, self._installed = items, forbidden, installed

    async def list_all(self, resource: Resource[Any], namespace: str = "", **_: Any) -> Listing[Any]:
        if not self._installed:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        if namespace in self._forbidden:
            raise Forbidden(403, "Forbidden", "not for you")
        found = [each for each in self._items if isinstance(each, resource.type)]
        return Listing([each for each in found if namespace in ("", each.metadata.namespace)], "1")


PLACE = kube.Place(Config("https://one", ssl.create_default_context()), "here")


async def test_a_cluster_is_found_by_its_name() -> None:
    demo = cluster("demo")
    assert await kube.cluster(Server(demo, cluster("other")), PLACE, "demo") is demo


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (Server(), "no SlurmCluster 'demo' in namespace 'here', nor any other; make one with 'seltzer create NAME'"),
        (Server(cluster("test"), cluster("other")), "in namespace 'here'; there are other, test"),
        (Server(cluster("demmo"), cluster("x")), "did you mean 'demmo'? (there are demmo, x)"),
        (Server(cluster("demo", "there")), "but in there: add -n there"),
        (Server(cluster("test"), forbidden=[""]), "; there is test"),
        (Server(installed=False), "run 'seltzer install' first"),
    ],
)
async def test_a_cluster_that_is_not_there_is_reported_with_what_to_do(server: Server, says: str) -> None:
    with pytest.raises(SeltzerError) as error:
        await kube.cluster(server, PLACE, "demo")
    assert str(error.value).endswith(says)


async def test_the_nodesets_of_a_cluster_are_those_that_name_it_where_it_lets_them_in() -> None:
    demo = cluster("demo", guests=["there", "secret"])
    server = Server(
        nodeset("cpu"),
        nodeset("stranger", to="other"),
        nodeset("guest", "there", home="here"),
        nodeset("namesake", "there"),
        nodeset("uninvited", "elsewhere", home="here"),
        nodeset("unseen", "secret", home="here"),
        forbidden=["secret"],
    )
    assert [each.metadata.name for each in await kube.nodesets(server, demo)] == ["cpu", "guest"]


def test_a_place_is_found_as_kubectl_finds_it(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    env = {"KUBECONFIG": str(file)}
    assert kube.locate(None, None, env).kubectl_flags == ("--namespace", "team")
    assert kube.locate("mine", "one", env).kubectl_flags == ("--context", "one", "--namespace", "mine")


def test_where_nothing_is_configured_the_sandbox_is_used_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    found = RunningSandbox("default", file, tmp_path / "kubectl")
    monkeypatch.setattr(sandbox, "running", lambda: found)
    place = kube.locate(None, None, {"HOME": str(tmp_path)})
    assert place.kubectl_flags == ("--kubeconfig", str(file), "--namespace", "team")
    assert capsys.readouterr().err == "using the sandbox 'default'\n"
    with pytest.raises(ConfigError):
        kube.locate(None, None, {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")})


def test_without_a_sandbox_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "running", lambda: None)
    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        kube.locate(None, None, {"HOME": str(tmp_path)})


def test_a_server_that_is_not_there_is_reported_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncio.run", virtual_time.run)
    place = kube.Place(Config("http://127.0.0.1:1", ssl.create_default_context()), "here")
    with pytest.raises(SeltzerError, match=r"can't be reached.*127\.0\.0\.1:1.*choose another context"):
        kube.talk(place, lambda client: kube.every(client, kinds.CLUSTERS))


def node(name: str, of: str = "demo", home: str = "here") -> Pod:
    return objects.pod(name, namespace="here", labels={CLUSTER: of, CLUSTER_NAMESPACE: home})


def test_a_node_tells_which_cluster_it_belongs_to() -> None:
    pods = [node("cpu-0"), node("cpu-1"), node("gpu-0", "other", "there")]
    assert drain.cluster_of(["cpu-0", "cpu-1"], pods, "here") == ("demo", "here")
    assert drain.cluster_of(["gpu-0"], pods, "here") == ("other", "there")
    with pytest.raises(SeltzerError, match="no node 'cpu-11' in namespace 'here'; did you mean 'cpu-1'"):
        drain.cluster_of(["cpu-0", "cpu-11"], pods, "here")
    with pytest.raises(SeltzerError, match="2 clusters"):
        drain.cluster_of(["cpu-0", "gpu-0"], pods, "here")
    with pytest.raises(SeltzerError, match="no NodeSet has any"):
        drain.cluster_of(["cpu-0"], [], "here")


def test_the_reason_of_a_drain_can_not_be_taken_for_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    assert drain.checked_reason(None) == "seltzer drain by ann"
    assert drain.checked_reason(" bad\ndisk ") == "bad disk"
    assert not drain.checked_reason(None).startswith(drain.OPERATORS)
    for reason in ("seltzer: scaled in", " Seltzer:x", "", " \n"):
        with pytest.raises(SeltzerError):
            drain.checked_reason(reason)


@pytest.mark.parametrize(
    ("generation", "replicas", "ready", "says"),
    [
        (1, 3, 3, ""),
        (2, 3, 3, "the operator hasn't seen the change yet; see 'seltzer version' if it stays so"),
        (1, 3, 1, "1 of 3 ready"),
        (1, 5, 5, "2 to go, 0 draining"),
    ],
)
def test_a_nodeset_is_there_when_all_and_only_the_wanted_nodes_are_ready(
    generation: int, replicas: int, ready: int, says: str
) -> None:
    item = NodeSet(
        metadata=ObjectMeta(name="cpu", generation=generation),
        spec=NodeSetSpec(cluster_ref=ClusterRef(name="demo"), replicas=3),
        status=NodeSetStatus(observed_generation=1, replicas=replicas, ready_replicas=ready),
    )
    assert scale.lacks(item) == says


def test_a_node_is_gone_when_slurm_has_forgotten_it_too() -> None:
    item = NodeSet(
        metadata=ObjectMeta(name="cpu", generation=1),
        spec=NodeSetSpec(cluster_ref=ClusterRef(name="demo"), replicas=3),
        status=NodeSetStatus(
            observed_generation=1, replicas=3, ready_replicas=3, nodes=NodeCounts(total=4, idle=3, draining=1)
        ),
    )
    assert scale.lacks(item) == "1 to go, 1 draining"


async def test_waiting_says_each_answer_once_and_the_last_when_time_is_over() -> None:
    answers = iter(["one", "one", "two", "one", ""])

    async def look() -> str:
        return next(answers)

    said: list[str] = []
    await kube.until(look, 30, said.append, "it isn't", poll=0.0)
    assert said == ["one", "two"]

    async def never() -> str:
        return "no image"

    with pytest.raises(SeltzerError, match="it isn't there after 0 s: no image"):
        await kube.until(never, 0.05, said.append, "it isn't there", poll=0.01)
