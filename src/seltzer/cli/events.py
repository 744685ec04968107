"""`seltzer events`: the Events of a cluster and its NodeSets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import gather, kube, show
from seltzer.cli.options import Context, Follow, Namespace, Output, OutputFlag
from seltzer.errors import SeltzerError
from seltzer.kube.client import Client
from seltzer.kube.errors import Gone, Unavailable
from seltzer.kube.watch import Changed, Decoder, lines
from seltzer.view import events as view
from seltzer.view import times
from seltzer.view.events import Event

_SILENCE = 330.0
_WATCH = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}


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

    Kubernetes keeps events for an hour by default.

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
        happened = await gather.events(client, cluster)
        found = view.of_cluster(happened, cluster, await kube.nodesets(client, cluster))
        if output is not Output.text:
            show.data([view.as_data(each) for each in found], output)
            return
        console = show.console()
        for line in table(found, None if follow else datetime.now(UTC)):
            console.print(line)
        if follow:
            await _follow(client, cluster, console, {each.metadata.uid: each.times for each in found})
        elif not found:
            console.print(f"nothing has happened to {name} in the last hour")

    kube.talk(place, ask)


def table(found: Iterable[Event], now: datetime | None) -> list[Text]:
    """One line per Event, aligned, with the age of each; without a `now`, with its time of day."""
    rows = [view.row(each, times.age(each.time, now) if now else _clock(each)) for each in found]
    return show.aligned([[*map(show.text, row)] for row in rows])


def _clock(event: Event) -> str:
    return (times.parse(event.time) or datetime.now(UTC)).astimezone().strftime("%H:%M:%S")


async def _follow(client: Client, cluster: SlurmCluster, console: Console, shown: dict[str, int]) -> None:
    """Prints each new Event once, and again when its count changes. Runs until Ctrl-C."""
    namespaces = dict.fromkeys((cluster.metadata.namespace, *cluster.spec.node_sets.namespaces))
    # A watch covers one namespace or all of them.
    path = gather.EVENTS.path(cluster.metadata.namespace if len(namespaces) == 1 else "")
    while True:
        # Without a resourceVersion a watch begins with all Events: those in `shown` are skipped.
        try:
            async with client.stream(path, {**_WATCH, **gather.OURS}) as content:
                decoder = Decoder(Event)
                async for batch in lines(content, _SILENCE):
                    for change in map(decoder.decode, batch):
                        if isinstance(change, Changed) and shown.get(change.item.metadata.uid) != change.item.times:
                            shown[change.item.metadata.uid] = change.item.times
                            await _tell(client, cluster, console, change.item)
        except (Unavailable, Gone):
            # Cut off, or too old: wait for the server, then watch again.
            await client.call("GET", "/version", deadline=60)


async def _tell(client: Client, cluster: SlurmCluster, console: Console, event: Event) -> None:
    if view.of_cluster([event], cluster, await kube.nodesets(client, cluster)):
        console.print(table([event], None)[0])
