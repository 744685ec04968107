"""A NodeSet's status and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from seltzer.api.common import NodeCounts
from seltzer.api.nodeset import NodeSet, NodeSetStatus
from seltzer.plan import conditions, pod_state, slurm_state
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    KillJobs,
    PlannedEvent,
    ResumeNodes,
    SetAddress,
)
from seltzer.plan.conditions import Finding
from seltzer.plan.nodeset import machine_labels, node_records, pod_selection
from seltzer.plan.nodeset.deletion import deleted, partition
from seltzer.plan.nodeset.nodeset_plan import NodeSetDecision
from seltzer.plan.nodeset.observation import NodeSetObservation
from seltzer.plan.nodeset.pod_selection import Candidates
from seltzer.slurm import hostlist

# Events with the same reason in one pass.
_MOST_OF_A_REASON = 20


def status(seen: NodeSetObservation, decision: NodeSetDecision, failures: Sequence[str], now: str) -> NodeSetStatus:
    """The status. `failures` are the errors of actions that failed just now."""
    nodeset = seen.nodeset
    pool = Candidates(decision.staying, seen.slurm.nodes or {}, {})
    outside = outside_partition(seen) | machine_labels.unplaced(seen)
    available = sum(pool.available(pod) and pod.metadata.name not in outside for pod in decision.staying)
    alive = [pod for pod in seen.pods if not pod_state.deleting(pod)]
    updated = sum(pod_selection.template_of(pod) == seen.template for pod in alive)
    accepted = Finding(
        "Accepted", "True" if seen.membership.accepted else "False", seen.membership.reason, seen.membership.message
    )
    findings = [_ready(seen, decision, available, failures), accepted, _updated(seen, decision, updated)]
    findings += [seen.home] if seen.home else []
    findings += [*_placed(seen), *machine_labels.finding(decision.staying, seen)]
    return NodeSetStatus(
        observed_generation=nodeset.metadata.generation,
        conditions=conditions.settle(nodeset.status.conditions, findings, nodeset.metadata.generation, now),
        desired_replicas=decision.target,
        replicas=len(alive),
        ready_replicas=available,
        updated_replicas=updated,
        selector=f"seltzer.dev/nodeset={nodeset.metadata.name}",
        nodes=slurm_state.count(node_records.of(seen)) if seen.slurm.nodes is not None else NodeCounts(),
    )


def _ready(seen: NodeSetObservation, decision: NodeSetDecision, available: int, failures: Sequence[str]) -> Finding:
    def no(reason: str, message: str) -> Finding:
        return Finding("Ready", "False", reason, message)

    if deleted(seen.nodeset) or seen.closing:
        return no("Deleting", _waiting(seen, decision) or _going(seen))
    if not seen.membership.accepted:
        return no(seen.membership.reason, seen.membership.message)
    if seen.template is None:
        return no("TemplateRefused", seen.refusal)
    if failures:
        return no("Refused", failures[0])
    if found := pod_state.first_trouble(decision.staying):
        return no(found.reason, found.message)
    if seen.slurm.gone:
        return no("ClusterStarting", "slurmctld has not started yet; see the conditions of the SlurmCluster")
    if seen.slurm.nodes is None:
        words = "Slurm can't be asked, so nothing is changed; see the conditions of the SlurmCluster"
        return Finding("Ready", "Unknown", "SlurmUnreachable", words)
    if available < decision.target:
        starting = decision.missing or not all(pod_state.ready(pod) for pod in decision.staying)
        why = "Updating" if decision.replacing else "Starting" if starting else "NotAvailable"
        return no(why, f"{available} of {decision.target} nodes take jobs{_others(seen, decision)}")
    waiting = _waiting(seen, decision)
    return Finding("Ready", "True", "AllAvailable", f"{_all(available)}{f'; {waiting}' if waiting else ''}")


def _placed(seen: NodeSetObservation) -> list[Finding]:
    """With placement perNode: whether each selected machine can have a node."""
    if seen.places is None:
        return []
    count = len(seen.places.wanted)
    if clashing := seen.places.clashing:
        words = (
            f"{', '.join(clashing[:3])}{f' and {len(clashing) - 3} more' if len(clashing) > 3 else ''}: another "
            "Kubernetes node has the same host name, and so the name of the node is taken: rename it"
        )
        return [Finding("Placed", "False", "HostNameTaken", words)]
    if not count:
        words = "no Kubernetes node is selected: see podTemplate.spec.nodeSelector, affinity and tolerations"
        return [Finding("Placed", "True", "NoneSelected", words)]
    return [Finding("Placed", "True", "OnSelected", f"{count} Kubernetes nodes are selected")]


def _going(seen: NodeSetObservation) -> str:
    if seen.pods:
        return f"{_fold([pod.metadata.name for pod in seen.pods])} is going"
    return "its pods are gone"


def outside_partition(seen: NodeSetObservation) -> frozenset[str]:
    """Nodes that aren't in their partition yet: slurmctld hasn't read the configuration that says so."""
    wanted = partition(seen.nodeset)
    return frozenset(node.name for node in node_records.of(seen) if wanted and wanted not in node.partitions)


def _all(count: int) -> str:
    return {0: "no nodes are wanted", 1: "the node takes jobs"}.get(count, f"all {count} nodes take jobs")


def _others(seen: NodeSetObservation, decision: NodeSetDecision) -> str:
    """Why some nodes take no jobs, as far as their pods and Slurm's records show it."""
    nodes = seen.slurm.nodes or {}
    names = [pod.metadata.name for pod in decision.staying]
    elsewhere = outside_partition(seen)
    outside = [name for name in names if name in elsewhere]
    drained = [name for name in names if name in nodes and slurm_state.drained_by_others(nodes[name])]
    waiting = [pod.metadata.name for pod in decision.staying if pod_state.awaits_volumes(pod)]
    known = {*nodes, *waiting}
    missing = [name for name in names if name not in known]
    parts = []
    if drained:
        reason = nodes[drained[0]].reason or "no reason given"
        parts.append(
            f"{_fold(drained)} is drained in Slurm ({reason}): resume it with 'seltzer resume' when it is well"
        )
    if outside:
        where = partition(seen.nodeset)
        parts.append(f"{_fold(outside)} waits for partition {where}: see the condition ConfigValid of the SlurmCluster")
    if waiting:
        parts.append(
            f"{_fold(waiting)} waits for its volumes or its network; if that takes long, 'kubectl describe pod "
            f"{waiting[0]}' says why"
        )
    if missing:
        parts.append(f"{_fold(missing)} has not registered with slurmctld yet")
    return "; " + "; ".join(parts) if parts else ""


def _waiting(seen: NodeSetObservation, decision: NodeSetDecision) -> str:
    """What a removal waits for."""
    removal, drain = decision.removal, seen.nodeset.spec.drain
    if removal.overdue and drain.on_timeout == "wait":
        return (
            f"jobs on {_fold(removal.overdue)} take longer than drain.timeout={drain.timeout}; they are waited for: "
            "set drain.onTimeout to requeue or kill to end that"
        )
    if removal.busy:
        return f"waiting for the jobs on {_fold(removal.busy)} to end"
    if removal.unknown and seen.slurm.nodes is None:
        return (
            f"Slurm can't be asked whether {_fold(removal.unknown)} has jobs, so it stays; to delete it all the same, "
            "set drain: {timeout: 1s, onTimeout: kill}"
        )
    if deleted(seen.nodeset) and not seen.pods and not seen.closing:
        return _queue(seen)
    return ""


def _queue(seen: NodeSetObservation) -> str:
    """The waiting jobs that keep a NodeSet which is being deleted."""
    named = sorted(node.name for node in node_records.orphaned(seen) if node.name in (seen.named or ()))
    advice = "move them ('scontrol update job') or cancel them, or set drain: {timeout: 1s, onTimeout: kill}"
    if seen.named is None and node_records.orphaned(seen):
        return "which nodes waiting jobs name isn't known yet, so their records stay"
    if named:
        return f"jobs in the queue ask for {_fold(named)} by name and would be lost: {advice}"
    if seen.queued:
        where = partition(seen.nodeset)
        return f"{seen.queued} jobs wait in partition {where}, which goes with it, and would be lost: {advice}"
    return ""


def _updated(seen: NodeSetObservation, decision: NodeSetDecision, updated: int) -> Finding:
    old = [pod for pod in decision.staying if pod_selection.template_of(pod) != seen.template]
    if seen.template is None:
        return Finding("Updated", "False", "TemplateRefused", seen.refusal)
    if not old:
        return Finding("Updated", "True", "UpToDate", "all pods are made from the NodeSet as it is now")
    progress = f"{len(old)} of {len(decision.staying)} pods are still to be replaced"
    if seen.nodeset.spec.update.paused:
        return Finding("Updated", "False", "Paused", f"{progress}; update.paused is true")
    fresh = [pod for pod in decision.staying if pod_selection.template_of(pod) == seen.template]
    if found := pod_state.first_trouble(fresh):
        return Finding("Updated", "False", "Stuck", f"{progress}; stopped, since {found.message}")
    held = pod_selection.held(Candidates(decision.staying, seen.slurm.nodes or {}, {}), seen.template)
    if held and not decision.replacing:
        words = f"{progress}; {_fold(held)} is drained in Slurm by somebody else, and replaced when it is resumed"
        return Finding("Updated", "False", "Held", words)
    waiting = _waiting(seen, decision)
    return Finding("Updated", "False", "RollingOut", f"{progress}{f'; {waiting}' if waiting else ''}")


def events(before: NodeSet, after: NodeSetStatus, done: Sequence[Action]) -> list[PlannedEvent]:
    """Events for what was done, and for conditions that became better or worse."""
    found = [each for action in done for each in _events_of(action)]
    for condition in after.conditions:
        old = conditions.find(before.status.conditions, condition.type)
        changed = old is None or (old.status, old.reason) != (condition.status, condition.reason)
        if not changed:
            continue
        if condition.status == "False" and condition.reason not in _ROUTINE:
            found.append(PlannedEvent("Warning", condition.reason, condition.message))
        elif condition.type == "Ready" and condition.status == "True" and old and old.status != "True":
            found.append(PlannedEvent("Normal", "Ready", condition.message))
    # Two conditions may say the same.
    return _limited(dict.fromkeys(found))


def _limited(events: Iterable[PlannedEvent]) -> list[PlannedEvent]:
    """A few events of each reason: what happens to thousands of nodes at once is also in Slurm and on the pods."""
    reasons: dict[tuple[str, str], list[PlannedEvent]] = {}
    for each in events:
        reasons.setdefault((each.kind, each.reason), []).append(each)
    found: list[PlannedEvent] = []
    for some in reasons.values():
        found += some[:_MOST_OF_A_REASON]
        if (left := len(some) - _MOST_OF_A_REASON) > 0:
            found.append(replace(some[0], message=f"and {left} more like these"))
    return found


# Reasons that are part of every NodeSet's life: actions have events of their own.
_ROUTINE = frozenset(
    {"Starting", "VolumePending", "Updating", "RollingOut", "Deleting", "NotAvailable", "Paused", "ClusterStarting"}
)


def _events_of(action: Action) -> list[PlannedEvent]:
    if isinstance(action, ResumeNodes):
        # One call to Slurm, for nodes with different causes.
        causes: dict[str, list[str]] = {}
        for name in action.names:
            causes.setdefault(action.why.get(name, ""), []).append(name)
        return [_resumed(names, why) for why, names in sorted(causes.items())]
    event = _event_of(action)
    return [event] if event else []


def _resumed(names: Sequence[str], why: str) -> PlannedEvent:
    return PlannedEvent("Normal", "Resumed", f"resumed {_fold(names)}{_because(why)}")


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _event_of(action: Action) -> PlannedEvent | None:
    match action:
        case CreatePods(names):
            return PlannedEvent("Normal", "Created", f"created {_fold(names)}")
        case DrainNodes(names, reason):
            return PlannedEvent("Normal", "Draining", f"drained {_fold(names)} ({reason}): no new jobs")
        case DownNodes(names, reason):
            return PlannedEvent("Warning", "Requeued", f"took the jobs off {_fold(names)} ({reason})")
        case KillJobs(names):
            return PlannedEvent("Warning", "Killed", f"ended the jobs on {_fold(names)}, which took too long")
        case DeletePods(pods, why=why):
            return PlannedEvent("Normal", "Removed", f"removed {_fold([pod.name for pod in pods])}{_because(why)}")
        case DeleteRecords(names):
            return PlannedEvent("Normal", "Unregistered", f"Slurm has no {_fold(names)} any more: no pod is left of it")
        case SetAddress(names, address):
            return PlannedEvent("Normal", "Readdressed", f"told Slurm that {_fold(names)} is at {address} now")
    return None


def _fold(names: Sequence[str]) -> str:
    return hostlist.fold(names)
