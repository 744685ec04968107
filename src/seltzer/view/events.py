"""Events about a cluster and its NodeSets."""

from __future__ import annotations

from collections.abc import Iterable

from seltzer.api.core import EventSeries, ObjectMeta, ObjectReference, View
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.view import colours
from seltzer.view.text import Cell, Line, line


class Event(View, frozen=True, kw_only=True):
    """A core Event: those of events.k8s.io lack the count and the time of the last occurrence."""

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
        """How many times it happened."""
        return max(1, self.count or 0, self.series.count if self.series else 0)

    @property
    def about(self) -> str:
        """The object, as in `NodeSet/cpu`."""
        return f"{self.involved_object.kind}/{self.involved_object.name}"


def of_cluster(events: Iterable[Event], cluster: SlurmCluster, nodesets: Iterable[NodeSet]) -> list[Event]:
    """The Events about the cluster and these NodeSets, the oldest first."""
    home = {(cluster.metadata.namespace, cluster.metadata.name)}
    wanted = {
        "SlurmCluster": home,
        "NodeSet": {(each.metadata.namespace, each.metadata.name) for each in nodesets},
    }

    def is_wanted(event: Event) -> bool:
        about = event.involved_object
        return (about.namespace, about.name) in wanted.get(about.kind, ())

    return sorted(filter(is_wanted, events), key=lambda event: event.time)


def row(event: Event, when: str) -> tuple[Line, ...]:
    """Its columns: the time, the object, the reason and the message."""
    often = (Cell(f" (x{event.times})", colours.MINOR),) if event.times > 1 else ()
    return (
        line(Cell(when, colours.MINOR)),
        line(event.about),
        line(Cell(event.reason, colours.event(event.type))),
        line(" ".join(event.message.split()), *often),
    )


def as_data(event: Event) -> dict[str, object]:
    """For programs."""
    return {
        "time": event.time,
        "type": event.type,
        "object": event.about,
        "reason": event.reason,
        "message": event.message,
        "count": event.times,
    }
