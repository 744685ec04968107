"""Updates of a cluster: from watches on an API server, and from commands that stand in for Slurm's."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web
from tests.builders.objects import cluster
from tests.fakes.apiserver.server import FakeApiServer
from tests.programs import write_program

from seltzer.api.common import API_VERSION
from seltzer.cli import kubectl
from seltzer.cli.kube import Place
from seltzer.cli.top import feed as top_feed
from seltzer.cli.top.feed import ClusterFeed
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.resource import Resource
from seltzer.view.frame import Update

# One program lives as long as the feed, and is asked again and again.
pytestmark = pytest.mark.real_time

NOW = 1_800_000_000
LABELS = {"seltzer.dev/cluster": "demo", "seltzer.dev/cluster-namespace": "ns"}
# kubectl, for one machine: the command runs here, where a folder has Slurm's commands. A file names the pods that it
# was called for.
KUBECTL = """#!/bin/sh
for word; do case $word in pod/*|deployment/*) pod=$word;; esac; done
while [ "$1" != "--" ]; do shift; done; shift
echo "$pod" >>{folder}/asked
[ ! -e {folder}/no-pod ] || {{ echo "error: no such pod" >&2; exit 1; }}
PATH={folder}:$PATH exec "$@"
"""
SCONTROL = """#!/bin/sh
[ ! -e {folder}/down ] || {{ echo "slurm_load_node error: Unable to contact slurm controller" >&2; exit 1; }}
case "$*" in *nodes*) cat {folder}/nodes.json;; *) echo '{{"partitions": []}}';; esac
"""


class Rig:
    """An API server, Slurm's commands, and the feed's updates."""

    def __init__(self, server: FakeApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.news: list[Update] = []
        self.client = Client(server.config())

    def slurm(self, **nodes: str) -> None:
        records = [{"name": name.replace("_", "-"), "state": [state]} for name, state in nodes.items()]
        (self.folder / "new.json").write_text(json.dumps({"nodes": records}))
        (self.folder / "new.json").rename(self.folder / "nodes.json")

    async def apply(self, resource: Resource[Any], name: str, **content: Any) -> None:
        metadata = {"name": name, **({"namespace": "ns"} if resource.namespaced else {}), **content.pop("metadata", {})}
        await self.client.apply(resource, {"metadata": metadata, **content})

    async def pod(self, name: str, component: str) -> None:
        labels = {**LABELS, "app.kubernetes.io/component": component}
        await self.apply(kinds.PODS, name, metadata={"labels": labels}, spec={"nodeName": "n1"})

    async def lead(self, holder: str, phase: str = "running") -> None:
        annotations = {"seltzer.dev/phase": phase}
        spec = {"holderIdentity": holder, "leaseTransitions": 1}
        await self.apply(kinds.LEASES, "demo-slurmctld", metadata={"annotations": annotations}, spec=spec)

    async def until(self, what: Callable[[Update], Any]) -> Update:
        while not self.news or not what(self.news[-1]):
            await asyncio.sleep(0.01)
        return self.news[-1]

    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().split()


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    date = f"#!/bin/sh\necho {NOW + 7}\n"
    for name, text in {"kubectl": KUBECTL, "scontrol": SCONTROL, "squeue": "#!/bin/sh\n", "date": date}.items():
        write_program(tmp_path / name, text.format(folder=tmp_path))
    monkeypatch.setattr(kubectl, "find", lambda: str(tmp_path / "kubectl"))
    # Our clock stands still, so Slurm is never silent for long however slow the machine is.
    monkeypatch.setattr(top_feed, "time", SimpleNamespace(monotonic=lambda: 0.0, time=lambda: float(NOW)))
    # Nobody looks, so nothing needs to be calm.
    monkeypatch.setattr(top_feed, "_SOONEST", 0.02)
    monkeypatch.setattr(top_feed, "_LATEST", 0.1)
    async with FakeApiServer() as server:
        rig = Rig(server, tmp_path)
        async with rig.client:
            await rig.apply(kinds.CLUSTERS, "demo", spec={})
            await rig.pod("a", "slurmctld")
            await rig.pod("b", "slurmctld")
            await rig.pod("cpu-0", "slurmd")
            await rig.lead("a")
            rig.slurm(cpu_0="IDLE")
            yield rig


@asynccontextmanager
async def fed(rig: Rig) -> AsyncIterator[ClusterFeed]:
    feed = ClusterFeed(Place(rig.server.config(), "ns"), cluster(), 0.05)
    running = asyncio.create_task(feed.run(rig.news.append))
    try:
        yield feed
        assert not running.done(), "it must run until it is cancelled"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def state(news: Update, name: str = "cpu-0") -> str:
    node = news.facts.node(name)
    return node.base if node else ""


async def test_both_sides_are_in_the_news(rig: Rig) -> None:
    async with fed(rig):
        news = await rig.until(lambda news: not news.trouble)
    assert state(news) == "IDLE"
    assert news.facts.slurmctld == "pod/a"
    assert news.facts.pods is not None and list(news.facts.pods) == ["cpu-0"]
    assert sorted(news.facts.controller.pods) == ["a", "b"]
    assert news.ahead == 7


async def test_what_changes_in_slurm_is_reported(rig: Rig) -> None:
    async with fed(rig):
        await rig.until(lambda news: state(news) == "IDLE")
        rig.slurm(cpu_0="DOWN", cpu_1="IDLE")
        news = await rig.until(lambda news: state(news) == "DOWN")
    assert news.facts.names == ["cpu-0", "cpu-1"]
    assert rig.asked() == ["pod/a"]  # by one command all the time


async def test_what_changes_in_kubernetes_is_reported(rig: Rig) -> None:
    async with fed(rig):
        await rig.until(lambda news: not news.trouble)
        await rig.pod("cpu-1", "slurmd")
        await rig.apply(kinds.NODES, "n1", spec={"unschedulable": True})
        about = {"apiVersion": API_VERSION, "kind": "SlurmCluster", "namespace": "ns", "name": "demo"}
        event = {
            "metadata": {"name": "e1", "namespace": "ns"},
            "involvedObject": about,
            "reason": "Ready",
            "type": "Normal",
        }
        await rig.client.call("POST", "/api/v1/namespaces/ns/events", content={"kind": "Event", **event})
        await rig.until(
            lambda news: news.facts.pod("cpu-1") and news.facts.events and (news.facts.machines or {}).get("n1")
        )


async def test_when_another_pod_takes_over_that_one_is_asked(rig: Rig) -> None:
    async with fed(rig):
        await rig.until(lambda news: state(news) == "IDLE")
        await rig.lead("")
        news = await rig.until(lambda news: news.trouble.startswith("slurmctld is failing over"))
        assert state(news) == "IDLE"  # what was known stays
        await rig.lead("b")
        rig.slurm(cpu_0="MIXED")
        await rig.until(lambda news: state(news) == "MIXED" and not news.trouble)
    assert rig.asked()[0] == "pod/a"
    assert rig.asked()[-1] == "pod/b"


async def test_a_slurmctld_that_does_not_answer_is_asked_again(rig: Rig) -> None:
    async with fed(rig):
        await rig.until(lambda news: state(news) == "IDLE")
        (rig.folder / "down").touch()
        news = await rig.until(lambda news: "Slurm doesn't answer: " in news.trouble)
        assert "Unable to contact slurm controller" in news.trouble
        assert state(news) == "IDLE"
        (rig.folder / "down").unlink()
        await rig.until(lambda news: not news.trouble)
    assert rig.asked() == ["pod/a"]


async def test_a_pod_that_can_not_be_reached_is_tried_again(rig: Rig) -> None:
    (rig.folder / "no-pod").touch()
    async with fed(rig):
        news = await rig.until(lambda news: "no such pod" in news.trouble)
        assert news.facts.slurm is None
        (rig.folder / "no-pod").unlink()
        await rig.until(lambda news: state(news) == "IDLE" and not news.trouble)
    assert len(rig.asked()) >= 2


async def test_nonsense_is_no_answer(rig: Rig) -> None:
    (rig.folder / "nodes.json").write_text("half of")
    async with fed(rig):
        await rig.until(lambda news: "makes no sense" in news.trouble)
        rig.slurm(cpu_0="IDLE")
        await rig.until(lambda news: not news.trouble)


async def test_an_api_server_that_is_away_is_reported_and_waited_for(rig: Rig) -> None:
    async with fed(rig):
        await rig.until(lambda news: not news.trouble)
        await rig.server.stop()
        news = await rig.until(lambda news: "the API server can't be reached" in news.trouble)
        assert news.facts.pod("cpu-0")
        await rig.server.start()
        await rig.until(lambda news: not news.trouble)


async def test_a_cluster_that_is_gone_is_reported(rig: Rig) -> None:
    async with fed(rig):
        await rig.until(lambda news: not news.trouble)
        await rig.client.delete(kinds.CLUSTERS, "demo", "ns")
        await rig.until(lambda news: news.trouble == "the SlurmCluster demo is gone")


async def test_what_may_not_be_seen_is_a_gap(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = rig.server._handle
    status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not for you"}

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/nodes":
            return web.Response(status=403, body=msgspec.json.encode(status), content_type="application/json")
        return await answer(request)

    await rig.server.stop()
    monkeypatch.setattr(rig.server, "_handle", handle)
    await rig.server.start()
    async with fed(rig):
        news = await rig.until(lambda news: not news.trouble)
    assert news.facts.machines is None
    assert news.facts.gaps == ["Kubernetes' nodes can't be seen: not for you"]


async def test_nothing_is_left_running(rig: Rig) -> None:
    async with fed(rig):
        await rig.until(lambda news: not news.trouble)
        assert _with(str(rig.folder))
    while _with(str(rig.folder)):
        await asyncio.sleep(0.02)


def _with(folder: str) -> list[str]:
    """The processes that have this folder on their PATH."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"PATH={folder}".encode() in (process / "environ").read_bytes() and process.name != str(os.getpid()):
                found.append(process.name)
        except OSError:
            continue
    return found
