"""The nodes that a job could run on: their states, those that are still starting, and the next to be free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seltzer.api.nodeset import NodeSet
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.nodeset.deletion import partition as own_partition
from seltzer.slurm import hostlist
from seltzer.slurm.snapshot import Job, Partition
from seltzer.view import facts, nodes, times
from seltzer.view.facts import Facts
from seltzer.view.text import natural

_MOST_GROUPS = 5
_LONGEST_LIST, _SHOWN = 60, 3
_PLURAL = {"is": "are", "isn't": "aren't", "has": "have"}


def names(known: Facts, job: Job) -> list[str]:
    """The nodes that the job asks for by name, or else all nodes of its partitions."""
    if known.slurm is None:
        return []
    places = set(job.partition.split(","))
    return [
        name
        for name in known.names
        if (node := known.node(name)) and places & set(node.partitions) and (not job.wants or name in job.wants)
    ]


def doing(known: Facts, job: Job) -> list[str]:
    """The states of these nodes, grouped."""
    found = names(known, job)
    gone = [name for name in job.wants if known.node(name) is None]
    missing = [f"It asks for {hostlist.fold(gone)}, which Slurm doesn't know."] if gone else []
    if not found:
        return missing or [f"Partition {job.partition} has no nodes."]
    parts = list(groups(known, found))
    parts = [*parts[:_MOST_GROUPS], *(["others are in other states"] if len(parts) > _MOST_GROUPS else [])]
    asked = f"Of the {len(found)} nodes of partition {job.partition}, " if not job.wants and len(found) > 1 else ""
    features = [f"It needs nodes with {job.features}."] if job.features else []
    return [*missing, f"{asked}{'; '.join(parts)}.", *features]


def groups(known: Facts, names: Sequence[str]) -> Iterator[str]:
    """Nodes in the same state, grouped: `cpu-[0-3] is drained (ann: new disk)`."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_state(known, name), []).append(name)
    for words, group in sorted(found.items(), key=lambda item: -len(item[1])):
        folded = hostlist.fold(group)
        if len(folded) <= _LONGEST_LIST:
            yield f"{folded} {words}"
        else:
            verb, _, rest = words.partition(" ")
            yield f"{', '.join(group[:_SHOWN])} and {len(group) - _SHOWN} more {_PLURAL[verb]} {rest}"


def _state(known: Facts, name: str) -> str:
    node = known.node(name)
    if node is None:
        return "isn't registered with slurmctld"
    if slurm_state.is_available(node):
        free = node.cpus - node.alloc_cpus
        return f"has {free} of {node.cpus} CPUs free" if free else "is full"
    reason = facts.blame(node) or nodes.remark(known, name)
    return f"is {nodes.state_words(node)}{f' ({reason})' if reason else ''}"


def nodesets(known: Facts, job: Job) -> list[NodeSet]:
    """The NodeSets whose nodes are in its partition, or will be."""
    places = set(job.partition.split(","))
    within = {known.nodeset(name) for name in names(known, job)}
    return [each for each in known.nodesets if own_partition(each) in places or each.metadata.name in within]


def starting(known: Facts, job: Job) -> list[str]:
    """NodeSets of its partition that are still starting, and what they wait for."""
    sentences = []
    for nodeset in nodesets(known, job) if known.pods is not None else ():
        name, wanted = nodeset.metadata.name, nodeset.size
        pods = [pod for each, pod in (known.pods or {}).items() if known.nodeset(each) == name]
        coming = [pod for pod in pods if not pod_state.deleting(pod) and known.node(pod.metadata.name) is None]
        lacking = wanted - sum(not pod_state.deleting(pod) for pod in pods)
        if trouble := pod_state.first_trouble(coming):
            sentences.append(f"NodeSet {name} waits for Kubernetes: {nodes.trouble_words(trouble, '')}.")
        elif coming:
            sentences.append(f"{hostlist.fold([pod.metadata.name for pod in coming])} of NodeSet {name} is starting.")
        elif lacking > 0:
            are = "is" if lacking == 1 else "are"
            sentences.append(f"NodeSet {name} is to have {wanted} nodes, and {lacking} of them {are} still to be made.")
    return sentences


def next_free(known: Facts, job: Job) -> list[str]:
    """Which node will be free first, judged by time limits."""
    busy = [name for name in names(known, job) if known.jobs_on(name) and not is_shut(known, name)]
    times = {name: at for name in busy if isinstance(at := known.free_at(name), int)}
    if times:
        name = min(times, key=lambda each: (times[each], natural(each)))
        return [f"The next node to be free is {name}, {nodes.deadline(known, times[name])}."]
    if busy:
        return ["The jobs on its nodes have no time limit, so nobody can tell when one will be free."]
    return []


def is_shut(known: Facts, name: str) -> bool:
    """Whether it accepts no new jobs."""
    node = known.node(name)
    return node is None or not slurm_state.is_available(node)


def partitions(known: Facts, job: Job) -> list[Partition]:
    """The partitions that it may run in."""
    there = known.slurm.partitions if known.slurm else {}
    return [there[name] for name in job.partition.split(",") if name in there]


def ago(known: Facts, when: int | None) -> str:
    """How long ago that was, by slurmctld's clock."""
    return times.span(max(0, known.slurm.now - when)) if known.slurm and when else "a moment"


def ahead(known: Facts, when: int | None) -> str:
    """How far in the future that is: `in 5m`."""
    return times.until(when - known.slurm.now) if known.slurm and when else "some time"
