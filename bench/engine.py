"""How fast the Kubernetes runtime follows 10,000 pods, compared to pure decoding. Run it with `make bench`."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import ssl
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import uvloop
from bench.rows import Row, report

from seltzer.api.core import Pod
from seltzer.kube.client import Client
from seltzer.kube.config import Config
from seltzer.kube.controller import Controller, Done, Outcome
from seltzer.kube.reflector import Reflector
from seltzer.kube.resource import Key, Resource, key_of
from seltzer.kube.store import Store
from seltzer.kube.watch import Changed, Decoder, lines

PODS = 10_000
EVENTS = 4 * PODS
PODS_RESOURCE = Resource("", "v1", "pods", "Pod", Pod)


async def follow(url: str) -> dict[str, float]:
    """The whole runtime: reflector, store with an index, queue, and passes over the node sets that changed."""
    store: Store[Pod] = Store({"nodeset": lambda pod: [pod.metadata.labels.get("nodeset", "")]})
    passes = 0

    async def work(key: Key) -> Outcome:
        nonlocal passes
        passes += 1
        sum(pod.status.phase == "Running" for pod in store.by("nodeset", key.name))
        return Done()

    controller = Controller("bench", work)
    store.watch(lambda before, after: controller.changed(_nodeset(after or before)))
    async with Client(Config(url, ssl.create_default_context())) as client:
        reflector = Reflector(client, PODS_RESOURCE, store)
        tasks = [asyncio.ensure_future(reflector.run()), asyncio.ensure_future(controller.run())]
        await reflector.synced.wait()
        started = time.monotonic()
        while store.resource_version < EVENTS + 1:
            await asyncio.sleep(0.005)
        seconds = time.monotonic() - started
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(store) == PODS and passes
    return {"events": EVENTS / seconds, "passes": passes}


async def decode(url: str) -> dict[str, float]:
    """The floor: read, split, decode into the same Structs, keep the newest."""
    decoder, kept, seen = Decoder(Pod), dict[Key, Pod](), 0
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/pods?watch=true") as answer:
        started = time.monotonic()
        async for batch in lines(answer.content, 30.0):
            for line in batch:
                event = decoder.decode(line)
                if isinstance(event, Changed):
                    kept[key_of(event.item)] = event.item
                    seen += 1
            if seen == EVENTS:
                break
        seconds = time.monotonic() - started
    assert len(kept) == PODS
    return {"events": EVENTS / seconds}


def _nodeset(pod: Pod | None) -> Key:
    assert pod
    return Key(pod.metadata.namespace, pod.metadata.labels["nodeset"])


def measured(what: str, url: str) -> dict[str, float]:
    """In a process of its own, so that its memory can be measured."""
    command = [sys.executable, "-m", "bench.engine", "--only", what, "--url", url]
    folder = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("follow", "decode"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only:
        answer = uvloop.run((follow if asked.only == "follow" else decode)(asked.url))
        print(json.dumps({**answer, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("apiserver.py")), str(PODS)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        ours, floor = measured("follow", url), measured("decode", url)
    finally:
        server.kill()
    report(
        [
            Row("watch events", ours["events"], "events/s", floor["events"]),
            Row("watch memory", ours["megabytes"], "MB", floor["megabytes"]),
        ]
    )


if __name__ == "__main__":
    main()
