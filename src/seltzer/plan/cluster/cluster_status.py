"""The status of a SlurmCluster, and its events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from seltzer.api.common import NodeCounts
from seltzer.api.labels import CONFIG, MESSAGE
from seltzer.api.labels import SLURM_VERSION as VERSION
from seltzer.api.slurmcluster import JobCounts, SlurmCluster, SlurmClusterStatus
from seltzer.plan import conditions, home, slurm_state
from seltzer.plan.actions import PlannedEvent, RemoveStuckPod
from seltzer.plan.cluster import controller_events, controller_status, stuck_pods
from seltzer.plan.cluster.cluster_plan import ClusterDecision, ClusterObservation, deleted, obstacle
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.conditions import Finding


def status(
    seen: ClusterObservation,
    decision: ClusterDecision,
    components: Sequence[Finding],
    failures: Sequence[str],
    now: str,
) -> SlurmClusterStatus:
    """The status after a pass.

    `components` are the conditions of its components. `failures` are the errors of the API server or of Slurm for the
    actions that failed in this pass.
    """
    cluster = seen.cluster
    config = _config(seen, decision)
    standby = controller_status.standing_by(seen)
    findings = [_ready(seen, components, config), *components, config]
    findings += [controller_status.state_safe(seen), _reconciled(failures)]
    home_ready = home.of_cluster(cluster, seen.home, seen.home_name, seen.now)
    names = controller_status.names_ready(seen)
    findings += [each for each in (standby, names, home_ready, seen.users.finding) if each]
    lease = seen.lease
    annotations = lease.metadata.annotations if lease else {}
    failed_over = lease is not None and lease.spec.lease_transitions > 0 and lease.spec.acquire_time
    nodes = seen.slurm.nodes
    return SlurmClusterStatus(
        observed_generation=cluster.metadata.generation,
        conditions=conditions.settle(cluster.status.conditions, findings, cluster.metadata.generation, now),
        slurm_version=annotations.get(VERSION, msgspec.UNSET),
        nodes=slurm_state.count(nodes.values()) if nodes is not None else NodeCounts(),
        jobs=seen.jobs or JobCounts(),
        users=seen.users.status,
        last_failover_time=lease.spec.acquire_time if lease and failed_over else msgspec.UNSET,  # type: ignore[arg-type]
        controller=controller_status.controller(seen),
        volume=controller_status.volume(seen),
        crash=controller_status.crash(seen),
        recovered=controller_status.recovered(seen),
        last_news_time=controller_status.last_news_time(seen),
    )


def _reconciled(failures: Sequence[str]) -> Finding:
    if failures:
        return Finding("Reconciled", "False", "Refused", failures[0])
    return Finding("Reconciled", "True", "UpToDate", "everything is as the spec says, or on its way")


def _ready(seen: ClusterObservation, components: Sequence[Finding], config: Finding) -> Finding:
    if deleted(seen.cluster):
        return Finding("Ready", "False", "Deleting", obstacle(seen) or "its objects are being deleted")
    if seen.active is None and not config.holds:
        return Finding("Ready", "False", f"Config{config.reason}", config.message)
    for component in components:
        if not component.holds:
            return Finding("Ready", component.status, component.reason, component.message)
    return Finding("Ready", "True", "Running", "jobs can be submitted")


def _config(seen: ClusterObservation, decision: ClusterDecision) -> Finding:
    candidate, trial = seen.candidate, decision.trial
    if candidate is None:
        return Finding("ConfigValid", "False", "Refused", f"{seen.refusal}; {_consequence(seen)}")
    if trial.passed is None:
        return Finding("ConfigValid", "Unknown", "Trying", trial.message)
    if not trial.passed:
        words = f"slurmctld doesn't start with it: {trial.message}; {_consequence(seen)}"
        return Finding("ConfigValid", "False", "SlurmRefused", words)
    report = seen.lease.metadata.annotations if seen.lease else {}
    if candidate.digest != seen.active or report.get(CONFIG) != seen.active:
        if report.get(MESSAGE) and report.get(CONFIG) and candidate.digest == seen.active:
            words = f"slurmctld went back to the configuration before it: {report[MESSAGE]}"
            return Finding("ConfigValid", "False", "SlurmRefused", words)
        return Finding("ConfigValid", "True", "RollingOut", "slurmctld is about to read it")
    return Finding("ConfigValid", "True", "Applied", "slurmctld runs with it")


def _consequence(seen: ClusterObservation) -> str:
    return "the cluster goes on with the one before" if seen.active else "correct spec.config"


def events(
    before: SlurmCluster, after: SlurmClusterStatus, seen: ClusterObservation, decision: ClusterDecision
) -> list[PlannedEvent]:
    """Events for actions of this pass, and for conditions that changed for better or worse."""
    found: list[PlannedEvent] = []
    if decision.rolling_out and seen.active is not None and seen.candidate:
        if seen.candidate.restarts:
            keys = ", ".join(seen.candidate.restarts)
            words = f"slurmctld restarts, since {keys} can't change otherwise; running jobs go on"
            found.append(PlannedEvent("Normal", "Restarting", words))
        else:
            found.append(PlannedEvent("Normal", "Reconfiguring", "slurmctld reads a new configuration; jobs go on"))
    found += seen.users.events
    found += controller_events.events(before, after)
    found += controller_events.guard_events(before.status, GuardReport(seen.lease).events)
    for condition in after.conditions:
        old = conditions.find(before.status.conditions, condition.type)
        if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
            continue
        if condition.status == "False" and condition.reason not in _without_event(after):
            found.append(PlannedEvent("Warning", condition.reason, condition.message))
        elif condition.type == "Ready" and condition.status == "True" and old and old.status != "True":
            found.append(PlannedEvent("Normal", "Ready", condition.message))
    return list(dict.fromkeys(found))


def _without_event(after: SlurmClusterStatus) -> tuple[str, ...]:
    """Reasons that occur in normal operation, or that have a more detailed event of their own."""
    return ("Starting", "Deleting", "Held", *(["Crashed"] if after.crash else []))


def announcements(decision: ClusterDecision) -> list[PlannedEvent]:
    """Events to record before their actions: afterwards no trace of the removed pods is left."""
    return [stuck_pods.event(action) for action in decision.actions if isinstance(action, RemoveStuckPod)]
