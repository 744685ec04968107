"""Why a job is pending: Slurm's reason in plain words, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from seltzer.slurm import snapshot
from seltzer.slurm.snapshot import Job
from seltzer.view import nodes, times
from seltzer.view.explain import pool
from seltzer.view.facts import LOGIN_USER, Facts
from seltzer.wire import job_ids

_MOST_JOBS = 5

_PLAIN = {
    "": "Slurm hasn't looked at it yet",
    "Resources": "the nodes that it could run on are busy or out of service",
    "Nodes required for job are DOWN": "no node that it could run on takes jobs, or they are kept for others",
    "ReqNodeNotAvail": "a node that it needs isn't available",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node has what it asks for",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "JobHeldUser": "it is held",
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it was put back into the queue too often, and is held",
    "launch failed requeued held": "it couldn't be started, and is held",
    "job requeued in held state": "it was put back into the queue, and is held",
    "DependencyNeverSatisfied": "what it depends on can never happen any more",
    "Licenses": "the licences that it needs are taken",
    "Reservation": "its reservation hasn't begun, or is full",
    "ReservationDeleted": "its reservation is gone",
    "JobArrayTaskLimit": "as many tasks of its array run as may at once",
    "Cleaning": "its last run is still being cleaned up",
    "Prolog": "its nodes are being prepared",
    "InvalidAccount": "its account is unknown",
    "InvalidQOS": "its QOS is unknown",
    "QOSNotAllowed": "its partition doesn't allow its QOS",
    "AccountNotAllowed": "its partition doesn't allow its account",
    "AccountingPolicy": "a limit of its account or QOS stands in the way",
    "SystemFailure": "Slurm failed to start it, for reasons in slurmctld's log",
    "JobLaunchFailure": "it couldn't be started",
    "NonZeroExitCode": "it ended with an error",
    "DeadLine": "it can't end before its deadline any more",
    "OutOfMemory": "it took more memory than it had",
    "MaxMemPerLimit": "it asks for more memory than its partition gives",
    "MaxPoweredUpNodes": "as many nodes are powered up as may be at once",
    "SchedDefer": "it asked to be scheduled later",
}
_LIMITS = {"Assoc": " of its account or user", "QOS": " of its QOS", "Max": ""}
_HELD = (
    "JobHeldUser",
    "JobHeldAdmin",
    "JobHoldMaxRequeue",
    "launch failed requeued held",
    "job requeued in held state",
)
_CLOSED = ("PartitionDown", "PartitionInactive")
_TOO_MUCH = ("PartitionConfig", "PartitionNodeLimit")
_NEVER = "DependencyNeverSatisfied"
# These reasons don't depend on which nodes are free.
_ELSEWHERE = frozenset(
    (
        *(*_HELD, *_CLOSED, _NEVER, "BeginTime", "Dependency", "PartitionTimeLimit", "Licenses", "JobArrayTaskLimit"),
        *("Cleaning", "InvalidAccount", "InvalidQOS", "QOSNotAllowed", "AccountNotAllowed"),
    )
)


def is_elsewhere(job: Job) -> bool:
    """Whether it waits for something that doesn't depend on which nodes are free."""
    return _word(job) in _ELSEWHERE or _limit(job) is not None


def asks_too_much(job: Job) -> bool:
    """Whether it asks for more than its partition has."""
    return _word(job) in _TOO_MUCH


def _word(job: Job) -> str:
    """Slurm's reason without details, as in `ReqNodeNotAvail, UnavailableNodes:cpu-0`."""
    return job.reason.partition(",")[0]


def _limit(job: Job) -> str | None:
    """Whose limit it has reached, such as AssocGrpCpuLimit or MaxJobsPerAccount; None if none."""
    word = _word(job)
    return next((whose for prefix, whose in _LIMITS.items() if word.startswith(prefix) and word not in _PLAIN), None)


def plain(known: Facts, job: Job) -> str:
    """Slurm's reason in plain words."""
    special: dict[str, Callable[[Facts, Job], str]] = {
        "Priority": _priority,
        "Dependency": _dependency,
        "BeginTime": _begin,
        "PartitionTimeLimit": _too_long,
        **dict.fromkeys(_TOO_MUCH, _too_much),
    }
    if (word := _word(job)) in special:
        return special[word](known, job)
    if word in _PLAIN:
        return _PLAIN[word]
    if (whose := _limit(job)) is not None:
        return f"a limit{whose} stands in its way, which Slurm calls {word}"
    return f"Slurm says {job.reason!r}"


def _priority(known: Facts, job: Job) -> str:
    """Of two jobs with the same priority the older one is first. Jobs that wait for something else don't count."""
    places, mine = set(job.partition.split(",")), (-job.priority, job.number)
    first = [
        each.id
        for each in sorted(known.slurm.jobs if known.slurm else (), key=lambda each: (-each.priority, each.number))
        if each.pending and not is_elsewhere(each) and not asks_too_much(each) and (-each.priority, each.number) < mine
        if places & set(each.partition.split(","))
    ]
    if not first:
        return "other jobs come first"
    return f"job {first[0]} comes first" if len(first) == 1 else f"{len(first)} jobs come first ({some(first)})"


def _dependency(known: Facts, job: Job) -> str:
    jobs = {each.number: each for each in (known.slurm.jobs if known.slurm else ())}
    parts = []
    for kind, written in re.findall(r"(\w+):(\d+)", job.dependency):
        other = jobs.get(int(written))
        how = ""
        if other and other.active:
            ends = f" and ends {nodes.deadline(known, other.end)}" if other.end else ""
            how = f", which runs{ends}"
        elif other and other.pending:
            how = ", which waits itself"
        parts.append(f"job {written} ({kind}){how}")
    return f"it waits for {', and for '.join(parts)}" if parts else f"it waits for {job.dependency or 'other jobs'}"


def _begin(known: Facts, job: Job) -> str:
    return f"it may begin {pool.ahead(known, job.eligible or job.start)}, and not before"


def _too_much(known: Facts, job: Job) -> str:
    pooled = [node for name in pool.names(known, job) if (node := known.node(name))]
    limits = [each.most_nodes for each in pool.partitions(known, job) if each.most_nodes is not None]
    cpus = sum(node.cpus for node in pooled)
    if limits and job.node_count > max(limits):
        return f"it asks for {job.node_count} nodes, and its partition gives a job at most {max(limits)}"
    if not pooled:
        return "its partition has no nodes yet"
    if job.node_count > len(pooled):
        return f"it asks for {job.node_count} nodes, and its partition has {len(pooled)}"
    if job.cpus > cpus:
        return f"it asks for {job.cpus} CPUs, and all nodes of its partition have {cpus} together"
    return "its partition can't give it what it asks for, however long it waits"


def _too_long(known: Facts, job: Job) -> str:
    limits = [each.most_seconds for each in pool.partitions(known, job) if each.most_seconds is not None]
    if not limits or (job.limit is not None and job.limit <= max(limits)):
        return "it asks for more time than its partition allows"
    asked = f"for {times.span(job.limit)}" if job.limit is not None else "to run without a time limit"
    return f"it asks {asked}, and its partition allows {times.span(max(limits))}"


def advice(known: Facts, job: Job) -> list[str]:
    """Details about the reason, and what to do about it."""
    word = _word(job)
    name, owner = known.cluster.metadata.name, f"--user {job.user} " if job.user != LOGIN_USER else ""
    said = _history(known, job)
    if word in _HELD:
        who = owner if word == "JobHeldUser" else "--user root "
        return [*said, f"'seltzer scontrol {who}{name} release {job.number}' lets it go."]
    if word == "PartitionTimeLimit":
        update = f"update JobId={job.number} TimeLimit=MINUTES"
        return [*said, f"'seltzer scontrol {owner}{name} {update}' makes it shorter."]
    if word == _NEVER:
        return [*said, f"'seltzer scancel {owner}{name} {job.number}' takes it out of the queue."]
    if word in _CLOSED:
        update = f"update PartitionName={job.partition} State=UP"
        return [*said, f"'seltzer scontrol --user root {name} {update}' opens it again."]
    return [*said, *(_scale(known, job) if word in _TOO_MUCH else ())]


def _history(known: Facts, job: Job) -> list[str]:
    """That it was recovered after a crash of slurmctld, or an administrator's comment."""
    found = known.controller.report.recovered or None
    groups = [group for recovery in reversed(found.recoveries) for group in recovery.groups] if found else []
    why = next((group.why for group in groups if job.id in job_ids.expand(group.jobs)), "")
    if why:
        return [f"It was found again after a crash of slurmctld: {snapshot.tidy(why).rstrip('.')}."]
    return [f"An administrator noted: {job.note.rstrip('.')}."] if job.note else []


def _scale(known: Facts, job: Job) -> list[str]:
    sets = pool.nodesets(known, job)
    if job.wants or len(sets) != 1 or any(each.most_nodes is not None for each in pool.partitions(known, job)):
        return []
    name, has = sets[0].metadata.name, sets[0].size
    wanted = job.node_count - sum(known.nodeset(each) != name for each in pool.names(known, job))
    return [f"'seltzer scale {name} {wanted}' makes it possible."] if wanted > has else []


def some(ids: Sequence[str]) -> str:
    """The first of many IDs, and the number of the others."""
    more = f" and {len(ids) - _MOST_JOBS} more" if len(ids) > _MOST_JOBS else ""
    return f"{', '.join(ids[:_MOST_JOBS])}{more}"
