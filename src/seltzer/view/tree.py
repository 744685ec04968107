"""A cluster at a glance: a tree for people, and data for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from msgspec import UNSET, to_builtins

from seltzer.api.common import Condition, NodeCounts
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build.components import slurmctld
from seltzer.build.components.table import BY_NAME, CONTROL_PLANE
from seltzer.view import colours, events, times, tree_controller
from seltzer.view.branch import Branch
from seltzer.view.events import Event
from seltzer.view.text import Cell, Line, joined, line

MOST_EVENTS = 10
RECENT = timedelta(hours=1)

# A row's name, its condition, and its word while the condition is true.
ROWS = (
    *((each.name, each.condition.type, "ready") for each in CONTROL_PLANE if each.condition),
    ("config", "ConfigValid", "valid"),
    ("state", "StateSafe", "safe"),
)


@dataclass(frozen=True)
class Picture:
    """A cluster, its NodeSets and its Events at one moment."""

    cluster: SlurmCluster
    nodesets: Sequence[NodeSet] = ()
    events: Sequence[Event] = ()


@dataclass(frozen=True)
class Problem:
    """Something that is wrong. The message says what to do about it."""

    object: str
    condition: str
    reason: str
    message: str


def problems(picture: Picture) -> list[Problem]:
    """All problems, each once: Ready often repeats the message of a component, and one component that of another."""
    found = _of_object(picture.cluster, f"SlurmCluster {picture.cluster.metadata.name}")
    for nodeset in picture.nodesets:
        found += _of_object(nodeset, f"NodeSet {_name(nodeset, picture.cluster)}")
    by_message = {(each.object, each.message): each for each in reversed(found) if each.condition != "Ready"}
    return [each for each in found if by_message.get((each.object, each.message), each) is each]


def _of_object(item: SlurmCluster | NodeSet, name: str) -> list[Problem]:
    status, metadata = item.status, item.metadata
    if metadata.deletion_timestamp:
        message = "it is being deleted: its nodes are drained first, and their jobs may finish"
        return [Problem(name, "", "Deleting", message), *_untrue(name, status.conditions)]
    if not status.conditions:
        return [Problem(name, "", "Unseen", "the operator has said nothing about it yet; see 'seltzer version'")]
    if status.observed_generation < metadata.generation:
        message = "the operator hasn't acted on the last change yet; if it stays so, see 'seltzer logs operator'"
        return [Problem(name, "", "Outdated", message), *_untrue(name, status.conditions)]
    return _untrue(name, status.conditions)


def _untrue(name: str, conditions: Iterable[Condition]) -> list[Problem]:
    """All our conditions are good when they are True."""
    return [Problem(name, each.type, each.reason, each.message) for each in conditions if each.status != "True"]


def tree(picture: Picture, now: datetime) -> Branch:
    """The cluster for people."""
    cluster, jobs = picture.cluster, picture.cluster.status.jobs
    top = [Branch.titled("control plane", _components(cluster, now))]
    if picture.nodesets:
        top.append(Branch.titled("node sets", [Branch(_nodeset(each, cluster)) for each in picture.nodesets]))
    else:
        top.append(Branch.titled("node sets", after="  none, so no job can run; add a NodeSet"))
    top.append(Branch.titled("jobs", after=f"  {jobs.running} running, {jobs.pending} pending"))
    top += tree_controller.recovered(cluster, now)
    if recent := recent_events(picture.events, now):
        rows = [Branch(events.row(each, times.age(each.time, now))) for each in recent]
        top.append(Branch.titled("events", rows))
    if wrong := problems(picture):
        style = f"{colours.TITLE} {colours.BAD}"
        top.append(Branch.titled("problems", [Branch.of(_problem(each)) for each in wrong], style=style))
    return Branch.of(_headline(cluster, now), top)


def recent_events(found: Iterable[Event], now: datetime) -> list[Event]:
    """The newest Events of the last hour, the oldest first."""
    recent = [each for each in found if (when := times.parse(each.time)) and now - when <= RECENT]
    return sorted(recent, key=lambda each: each.time)[-MOST_EVENTS:]


def _headline(cluster: SlurmCluster, now: datetime) -> Line:
    version = cluster.status.slurm_version
    parts = [
        Cell(cluster.metadata.name, colours.TITLE),
        readiness(cluster),
        *([Cell(f"Slurm {version}")] if version is not UNSET else []),
        Cell(f"namespace {cluster.metadata.namespace}"),
        Cell(f"{times.age(cluster.metadata.creation_timestamp, now)} old"),
    ]
    return joined([(part,) for part in parts], "  ")


def readiness(cluster: SlurmCluster) -> Cell:
    """`Ready`, or the reason why it isn't."""
    ready = condition(cluster, "Ready")
    state = ready.status if ready else "Unknown"
    word = "Ready" if state == "True" else (ready.reason if ready else "Unknown")
    return Cell(word, colours.CONDITIONS[state])


def condition(item: SlurmCluster | NodeSet, kind: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((each for each in item.status.conditions if each.type == kind), None)


def _components(cluster: SlurmCluster, now: datetime) -> list[Branch]:
    rows = []
    for name, kind, well in ROWS:
        found = condition(cluster, kind)
        component = BY_NAME.get(name)
        if component and (why := component.unwanted(cluster)):
            state = Cell(f"none ({why})", colours.MINOR)
        elif found is None:
            state = Cell("unknown", colours.MINOR)
        else:
            state = Cell(well if found.status == "True" else found.reason, colours.CONDITIONS[found.status])
        more: Line = ()
        failover = cluster.status.last_failover_time
        if name == slurmctld.NAME and failover is not UNSET:
            more = line(Cell(f"  (last failover {times.age(failover, now)} ago)", colours.MINOR))
        below = tree_controller.details(cluster, now) if name == slurmctld.NAME else ()
        rows.append(Branch((line(name), (state, *more)), below))
    return rows


def _nodeset(nodeset: NodeSet, cluster: SlurmCluster) -> tuple[Line, ...]:
    status, wanted = nodeset.status, nodeset.size
    style = colours.GOOD if status.ready_replicas == wanted else colours.WARNING
    ready = line(Cell(f"{status.ready_replicas}/{wanted} ready", style))
    behind = status.replicas - status.updated_replicas
    updating = line(Cell(f"{behind} to update", colours.WARNING)) if behind > 0 else ()
    return line(_name(nodeset, cluster)), ready, _states(status.nodes), updating


def _name(nodeset: NodeSet, cluster: SlurmCluster) -> str:
    metadata = nodeset.metadata
    elsewhere = metadata.namespace != cluster.metadata.namespace
    return f"{metadata.namespace}/{metadata.name}" if elsewhere else metadata.name


def _states(nodes: NodeCounts) -> Line:
    counts = {state: getattr(nodes, state, 0) for state in colours.STATES}
    shown = [line(Cell(f"{count} {state}", colours.STATES[state])) for state, count in counts.items() if count]
    return joined(shown, ", ")


def _problem(problem: Problem) -> Line:
    message = " ".join(problem.message.split())
    source = f"{problem.condition}: {problem.reason}" if problem.condition else problem.reason
    return line(Cell(f"{problem.object}: ", colours.TITLE), message, Cell(f" ({source})", colours.MINOR))


def as_data(picture: Picture, now: datetime) -> dict[str, object]:
    """The same for programs: complete, and with RFC 3339 times."""
    cluster, status = picture.cluster, picture.cluster.status
    ready = condition(cluster, "Ready")
    return {
        "namespace": cluster.metadata.namespace,
        "name": cluster.metadata.name,
        "ready": ready is not None and ready.status == "True",
        "reason": ready.reason if ready else "",
        "message": ready.message if ready else "",
        "created": cluster.metadata.creation_timestamp,
        "slurmVersion": None if status.slurm_version is UNSET else status.slurm_version,
        "lastFailover": None if status.last_failover_time is UNSET else status.last_failover_time,
        **tree_controller.as_data(cluster),
        "components": {
            name: {"status": found.status, "reason": found.reason, "message": found.message}
            for name, kind, _ in ROWS
            if (found := condition(cluster, kind))
        },
        "nodes": to_builtins(status.nodes),
        "jobs": to_builtins(status.jobs),
        "nodeSets": [_nodeset_data(each) for each in picture.nodesets],
        "events": [events.as_data(each) for each in recent_events(picture.events, now)],
        "problems": [asdict(each) for each in problems(picture)],
    }


def _nodeset_data(nodeset: NodeSet) -> dict[str, object]:
    status, ready = nodeset.status, condition(nodeset, "Ready")
    return {
        "namespace": nodeset.metadata.namespace,
        "name": nodeset.metadata.name,
        "ready": ready is not None and ready.status == "True",
        "desiredReplicas": nodeset.size,
        "replicas": status.replicas,
        "readyReplicas": status.ready_replicas,
        "updatedReplicas": status.updated_replicas,
        "nodes": to_builtins(status.nodes),
    }
