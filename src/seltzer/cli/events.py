"""`seltzer events`: what happened to a cluster and its NodeSets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from seltzer.api.common import API_VERSION
from seltzer.api.core import EventSeries, ObjectMeta, ObjectReference, View
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import kube, show
from seltzer.cli.options import Context, Follow, Namespace, Output, OutputFlag
from seltzer.errors import SeltzerError
from seltzer.kube.client import Client
from seltzer.kube.errors import Gone, Unavailable
from seltzer.kube.resource import Resource
from seltzer.kube.watch import Changed, Decoder, lines

_SILENCE = 330.0
_WATCH = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}


class Event(View, frozen=True, kw_only=True):
    """A core Event: those of events.k8s.io lack the count and the time of the last one."""

    metadata: ObjectMeta
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    involved_object: ObjectReference = ObjectReference()
    series: EventSeries | None = None

    @property
    def time(self) -> str:
        """When it last happened."""
        series = self.series.last_observed_time if self.series else None
        return series or self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""

    @property
    def times(self) -> int:
        return max(1, self.count or 0, self.series.count if self.series else 0)

    @property
    def about(self) -> str:
        return f"{self.involved_object.kind}/{self.involved_object.name}"


EVENTS: Resource[Event] = Resource("", "v1", "events", "Event", Event)
_OURS = {"fieldSelector": f"involvedObject.apiVersion={API_VERSION}"}
Belongs = Callable[[Event], Awaitable[bool]]


def events(
    name: str,
    /,
    *,
    follow: Follow = False,
    namespace: Namespace = None,
    context: Context = None,
    output: OutputFlag = Output.text,
) -> None:
    """Print what happened to a cluster and its NodeSets, the newest last.

    Kubernetes keeps events for an hour, unless it was told otherwise.

    Parameters
    ----------
    name
        The cluster.
    """
    if follow and output is not Output.text:
        raise SeltzerError("--follow prints text only; leave out -o, or -f")
    place = kube.locate(namespace, context)

    async def ask(client: Client) -> None:
        cluster = await kube.cluster(client, place, name)
        found = of_cluster(await ours(client, cluster), cluster, await _names(client, cluster))
        if output is not Output.text:
            show.data([as_data(each) for each in found], output)
            return
        console = show.console()
        for line in table(found, None if follow else datetime.now(UTC)):
            console.print(line)
        if follow:
            await _follow(client, cluster, console, {each.metadata.uid: each.times for each in found})
        elif not found:
            console.print(f"nothing has happened to {name} in the last hour")

    kube.talk(place, ask)


async def ours(client: Client, cluster: SlurmCluster) -> list[Event]:
    """All events about our kinds where the cluster and its NodeSets are."""
    found: list[Event] = []
    for namespace in dict.fromkeys((cluster.metadata.namespace, *cluster.spec.node_sets.namespaces)):
        found += (await client.list_all(EVENTS, namespace, params=_OURS)).items
    return found


async def _names(client: Client, cluster: SlurmCluster) -> set[tuple[str, str]]:
    return {(each.metadata.namespace, each.metadata.name) for each in await kube.nodesets(client, cluster)}


def of_cluster(events: Iterable[Event], cluster: SlurmCluster, nodesets: set[tuple[str, str]]) -> list[Event]:
    """Those of the cluster and of these NodeSets, the oldest first."""
    home = {(cluster.metadata.namespace, cluster.metadata.name)}
    wanted = {"SlurmCluster": home, "NodeSet": nodesets}

    def is_wanted(event: Event) -> bool:
        about = event.involved_object
        return (about.namespace, about.name) in wanted.get(about.kind, ())

    return sorted(filter(is_wanted, events), key=lambda event: event.time)


def table(events: Iterable[Event], now: datetime | None) -> list[Text]:
    """One line per event, aligned: how long ago each was, or without a `now`, at what time."""
    return show.aligned([_row(event, show.age(event.time, now) if now else _clock(event)) for event in events])


def _clock(event: Event) -> str:
    return (show.parse(event.time) or datetime.now(UTC)).astimezone().strftime("%H:%M:%S")


def _row(event: Event, when: str) -> tuple[Text, ...]:
    message = " ".join(event.message.split())
    often = Text(f" (x{event.times})", "dim") if event.times > 1 else Text()
    return (
        Text(when, "dim"),
        Text(event.about),
        Text(event.reason, "yellow" if event.type == "Warning" else "green"),
        Text(message) + often,
    )


def as_data(event: Event) -> dict[str, object]:
    return {
        "time": event.time,
        "type": event.type,
        "object": event.about,
        "reason": event.reason,
        "message": event.message,
        "count": event.times,
    }


async def _follow(client: Client, cluster: SlurmCluster, console: Console, told: dict[str, int]) -> None:
    """Print each new event once, and again when it is counted again; goes on until Ctrl-C."""
    namespaces = dict.fromkeys((cluster.metadata.namespace, *cluster.spec.node_sets.namespaces))
    # A watch is of one namespace or of all: all only where it has to be.
    path = EVENTS.path(cluster.metadata.namespace if len(namespaces) == 1 else "")
    while True:
        # Without a resourceVersion a watch begins with all that there is: what was told already isn't told again.
        try:
            async with client.stream(path, {**_WATCH, **_OURS}) as content:
                decoder = Decoder(Event)
                async for batch in lines(content, _SILENCE):
                    for change in map(decoder.decode, batch):
                        if isinstance(change, Changed) and told.get(change.item.metadata.uid) != change.item.times:
                            told[change.item.metadata.uid] = change.item.times
                            await _tell(client, cluster, console, change.item)
        except (Unavailable, Gone):
            # Cut, or too old: look whether the server is there at all (this waits for it), then watch again.
            await client.call("GET", "/version", deadline=60)


async def _tell(client: Client, cluster: SlurmCluster, console: Console, event: Event) -> None:
    if of_cluster([event], cluster, await _names(client, cluster)):
        console.print(table([event], None)[0])
