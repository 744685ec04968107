"""A cluster as a tree for people, and as data for programs. No I/O: objects in, answer out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from msgspec import UNSET, to_builtins
from rich.text import Text
from rich.tree import Tree

from seltzer.api.common import Condition, NodeCounts
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build.components import slurmctld
from seltzer.build.components.table import BY_NAME, CONTROL_PLANE
from seltzer.cli import events, show
from seltzer.cli.events import Event
from seltzer.view import tree_controller

MOST_EVENTS = 10
RECENT = timedelta(hours=1)

# A row's name, its condition, and its word while the condition is true.
ROWS = (
    *((each.name, each.condition.type, "ready") for each in CONTROL_PLANE if each.condition),
    ("config", "ConfigValid", "valid"),
    ("state", "StateSafe", "safe"),
)
_COLOURS = {"True": "green", "False": "red", "Unknown": "yellow"}
_STATES = {
    "idle": "green",
    "mixed": "cyan",
    "allocated": "cyan",
    "draining": "yellow",
    "drained": "yellow",
    "down": "red",
    "other": "magenta",
}


@dataclass(frozen=True)
class Picture:
    """A cluster and all that belongs to it, at one moment."""

    cluster: SlurmCluster
    nodesets: Sequence[NodeSet] = ()
    events: Sequence[Event] = ()


@dataclass(frozen=True)
class Problem:
    """Something that isn't as it should be; the message says what to do about it."""

    object: str
    condition: str
    reason: str
    message: str


def problems(picture: Picture) -> list[Problem]:
    """All of them, each told once: Ready often only repeats what a component said, and one component another."""
    found = _of_object(picture.cluster, f"SlurmCluster {picture.cluster.metadata.name}")
    for nodeset in picture.nodesets:
        found += _of_object(nodeset, f"NodeSet {_name(nodeset, picture.cluster)}")
    told = {(each.object, each.message): each for each in reversed(found) if each.condition != "Ready"}
    return [each for each in found if told.get((each.object, each.message), each) is each]


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
    """Every condition of ours is good when it is True."""
    return [Problem(name, each.type, each.reason, each.message) for each in conditions if each.status != "True"]


def tree(picture: Picture, now: datetime) -> Tree:
    """The cluster for a person to look at."""
    top = Tree(_headline(picture.cluster, now), guide_style="dim")
    parts = _branch(top, "control plane", _components(picture.cluster, now))
    row = [name for name, _, _ in ROWS].index(slurmctld.NAME)
    tree_controller.add_details(parts.children[row], picture.cluster, now)
    if picture.nodesets:
        _branch(top, "node sets", show.aligned([_nodeset(each, picture.cluster) for each in picture.nodesets]))
    else:
        top.add(Text.assemble(("node sets", "bold"), "  none, so no job can run; add a NodeSet"))
    jobs = picture.cluster.status.jobs
    top.add(Text.assemble(("jobs", "bold"), f"  {jobs.running} running, {jobs.pending} pending"))
    tree_controller.add_recovered(top, picture.cluster, now)
    if recent := recent_events(picture.events, now):
        _branch(top, "events", events.table(recent, now))
    if wrong := problems(picture):
        _branch(top, "problems", [_problem(each) for each in wrong], "bold red")
    return top


def recent_events(found: Iterable[Event], now: datetime) -> list[Event]:
    """The newest of the last hour, the oldest of them first."""
    recent = [each for each in found if (when := show.parse(each.time)) and now - when <= RECENT]
    return sorted(recent, key=lambda each: each.time)[-MOST_EVENTS:]


def _branch(top: Tree, title: str, rows: Iterable[Text], style: str = "bold") -> Tree:
    branch = top.add(Text(title, style))
    for row in rows:
        branch.add(row)
    return branch


def _headline(cluster: SlurmCluster, now: datetime) -> Text:
    ready = condition(cluster, "Ready")
    state = ready.status if ready else "Unknown"
    word = "Ready" if state == "True" else (ready.reason if ready else "Unknown")
    version = cluster.status.slurm_version
    parts = [
        Text(cluster.metadata.name, "bold"),
        Text(word, _COLOURS[state]),
        *([Text(f"Slurm {version}")] if version is not UNSET else []),
        Text(f"namespace {cluster.metadata.namespace}"),
        Text(f"{show.age(cluster.metadata.creation_timestamp, now)} old"),
    ]
    return Text("  ").join(parts)


def condition(item: SlurmCluster | NodeSet, kind: str) -> Condition | None:
    return next((each for each in item.status.conditions if each.type == kind), None)


def _components(cluster: SlurmCluster, now: datetime) -> list[Text]:
    rows = []
    for name, kind, well in ROWS:
        found = condition(cluster, kind)
        component = BY_NAME.get(name)
        if component and (why := component.unwanted(cluster)):
            state = Text(f"none ({why})", "dim")
        elif found is None:
            state = Text("unknown", "dim")
        else:
            state = Text(well if found.status == "True" else found.reason, _COLOURS[found.status])
        failover = cluster.status.last_failover_time
        if name == slurmctld.NAME and failover is not UNSET:
            state = Text.assemble(state, (f"  (last failover {show.age(failover, now)} ago)", "dim"))
        rows.append((Text(name), state))
    return show.aligned(rows)


def _nodeset(nodeset: NodeSet, cluster: SlurmCluster) -> tuple[Text, ...]:
    status, wanted = nodeset.status, nodeset.spec.replicas
    ready = Text(f"{status.ready_replicas}/{wanted} ready", "green" if status.ready_replicas == wanted else "yellow")
    behind = status.replicas - status.updated_replicas
    updating = Text(f"{behind} to update", "yellow") if behind > 0 else Text()
    return Text(_name(nodeset, cluster)), ready, _states(status.nodes), updating


def _name(nodeset: NodeSet, cluster: SlurmCluster) -> str:
    metadata = nodeset.metadata
    elsewhere = metadata.namespace != cluster.metadata.namespace
    return f"{metadata.namespace}/{metadata.name}" if elsewhere else metadata.name


def _states(nodes: NodeCounts) -> Text:
    counts = {state: getattr(nodes, state) for state in _STATES}
    shown = [Text(f"{count} {state}", _STATES[state]) for state, count in counts.items() if count]
    return Text(", ").join(shown)


def _problem(problem: Problem) -> Text:
    message = " ".join(problem.message.split())
    source = f"{problem.condition}: {problem.reason}" if problem.condition else problem.reason
    return Text.assemble((f"{problem.object}: ", "bold"), message, (f" ({source})", "dim"))


def as_data(picture: Picture, now: datetime) -> dict[str, object]:
    """The same for programs: nothing is left out, times are times."""
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
        "desiredReplicas": nodeset.spec.replicas,
        "replicas": status.replicas,
        "readyReplicas": status.ready_replicas,
        "updatedReplicas": status.updated_replicas,
        "nodes": to_builtins(status.nodes),
    }
