"""Events on the real API server: written once, counted when they happen again."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec
from tests.harness import Sandbox

from seltzer.kube.client import Client
from seltzer.kube.config import Config, from_kubeconfig
from seltzer.kube.events import Recorder
from seltzer.kube.resource import Resource


class Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class ConfigMap(msgspec.Struct):
    metadata: Meta


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", ConfigMap)


async def test_an_event_that_happens_again_is_counted(sandbox: Sandbox) -> None:
    config = from_kubeconfig([Path(sandbox.command("kubeconfig", "--path").strip())])
    async with Client(config) as client:
        item = await client.get(CONFIG_MAPS, "kube-root-ca.crt", "default")
        recorder = Recorder(client, "contract-test")
        for _ in range(3):
            await recorder.record(CONFIG_MAPS, item, "Warning", "Tested", "it was tested")
        await recorder.record(CONFIG_MAPS, item, "Normal", "Tested", "something else")
        selector = f"involvedObject.uid={item.metadata.uid}"
        events = sandbox.get("events", "--field-selector", selector)["items"]
        told = sorted((event["type"], event["reason"], event["message"], event["count"]) for event in events)
        assert told == [("Normal", "Tested", "something else", 1), ("Warning", "Tested", "it was tested", 3)]
        assert {event["source"]["component"] for event in events} == {"contract-test"}
        sandbox.delete(*(f"event/{event['metadata']['name']}" for event in events))
        # A first event that is gone, as all are after an hour, is told anew.
        await recorder.record(CONFIG_MAPS, item, "Warning", "Tested", "it was tested")
        assert [event["count"] for event in sandbox.get("events", "--field-selector", selector)["items"]] == [1]


async def test_failing_to_tell_fails_nobody() -> None:
    item = ConfigMap(Meta("a", "default", "uid", "1"))
    async with Client(Config("http://127.0.0.1:1", ssl.create_default_context())) as client:
        await Recorder(client, "contract-test").record(CONFIG_MAPS, item, "Normal", "Tested", "nobody hears this")
