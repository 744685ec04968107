"""Write what a pass found: events, and the status if it changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from seltzer.kube.client import Client
from seltzer.kube.errors import Conflict, NotFound
from seltzer.kube.events import Recorder
from seltzer.kube.resource import HasMeta, Resource
from seltzer.plan.actions import PlannedEvent

logger = logging.getLogger(__name__)

MANAGER = "seltzer-status"


def now() -> str:
    """The time in the format of conditions."""
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def report(
    client: Client,
    recorder: Recorder,
    resource: Resource[Any],
    item: Any,
    status: msgspec.Struct,
    events: Iterable[PlannedEvent],
) -> None:
    """Events first: a crash in between then repeats an event instead of losing it."""
    await record(recorder, resource, item, events)
    if status != item.status:
        await _write(client, resource, item, status)


async def record(recorder: Recorder, resource: Resource[Any], item: Any, events: Iterable[PlannedEvent]) -> None:
    """Events only."""
    for each in events:
        await recorder.record(resource, item, each.kind, each.reason, each.message)


async def _write(client: Client, resource: Resource[Any], item: HasMeta, status: msgspec.Struct) -> None:
    metadata = {"name": item.metadata.name, "namespace": item.metadata.namespace, "uid": item.metadata.uid}
    manifest = {"metadata": metadata, "status": msgspec.to_builtins(status)}
    try:
        await client.apply(resource, manifest, subresource="status", manager=MANAGER)
    except (NotFound, Conflict) as error:
        logger.debug("status not written: %s", error)  # it is gone, or replaced by another of its name
