"""What is told about a SlurmCluster: its status, and the events that a person would want to know of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from seltzer.api.common import NodeCounts
from seltzer.api.labels import CONFIG, MESSAGE
from seltzer.api.labels import SLURM_VERSION as VERSION
from seltzer.api.slurmcluster import JobCounts, SlurmCluster, SlurmClusterStatus
from seltzer.plan import conditions, pod_state, slurm_state
from seltzer.plan.actions import PlannedEvent, RemoveStuckPod
from seltzer.plan.cluster import controller_events, controller_status, stuck_pods
from seltzer.plan.cluster.cluster_plan import (
    CONTROLLER,
    LOGIN,
    REST,
    ClusterDecision,
    ClusterObservation,
    deleted,
    obstacle,
)
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.conditions import Finding


def status(
    seen: ClusterObservation, decision: ClusterDecision, failures: Sequence[str], now: str
) -> SlurmClusterStatus:
    """What is true of the cluster. `failures` is what could not be done just now, in the words of who refused it."""
    cluster = seen.cluster
    controller, rest, login = _controller(seen), _rest(seen), _login(seen)
    config = _config(seen, decision)
    parts = (controller, rest, login, config)
    standby = controller_status.standing_by(seen)
    findings = [_ready(seen, parts), *parts, controller_status.state_safe(seen), _reconciled(failures)]
    findings += [standby] if standby else []
    lease = seen.lease
    told = lease.metadata.annotations if lease else {}
    failed_over = lease is not None and lease.spec.lease_transitions > 0 and lease.spec.acquire_time
    nodes = seen.slurm.nodes
    return SlurmClusterStatus(
        observed_generation=cluster.metadata.generation,
        conditions=conditions.settle(cluster.status.conditions, findings, cluster.metadata.generation, now),
        slurm_version=told.get(VERSION, msgspec.UNSET),
        nodes=slurm_state.count(nodes.values()) if nodes is not None else NodeCounts(),
        jobs=seen.jobs or JobCounts(),
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


def _ready(seen: ClusterObservation, parts: Sequence[Finding]) -> Finding:
    if deleted(seen.cluster):
        return Finding("Ready", "False", "Deleting", obstacle(seen) or "its objects are going")
    controller, rest, login, config = parts
    if seen.active is None and not config.holds:
        return Finding("Ready", "False", f"Config{config.reason}", config.message)
    for part in (controller, rest, login):
        if not part.holds:
            return Finding("Ready", part.status, part.reason, part.message)
    return Finding("Ready", "True", "Running", "jobs can be submitted")


def _controller(seen: ClusterObservation) -> Finding:
    if told := controller_status.in_charge(seen):
        return told
    found = pod_state.first_trouble(seen.pods.get(CONTROLLER, ()))
    if found and seen.claim is not None and seen.claim.status.phase == "Pending":
        asked = seen.cluster.spec.controller.storage.class_name
        which = f"StorageClass {asked}" if asked else "default StorageClass"
        words = f"the volume claim {seen.claim.metadata.name} is pending: {found.message}"
        # The class of a claim can't change, and a cluster that never ran loses nothing when it is made anew.
        advice = f"if there is no {which}, add it, or delete the cluster and create it with"
        words = f"{words}; {advice} {'another' if asked else 'a'} controller.storage.className"
        return Finding("ControllerReady", "False", "VolumePending", words)
    return _not_ready(seen, "ControllerReady", CONTROLLER)


def _rest(seen: ClusterObservation) -> Finding:
    if not _ready_count(seen, REST):
        return _not_ready(seen, "RestReady", REST)
    if seen.slurm.nodes is None:
        why = seen.failure or "it has not been asked yet"
        return Finding("RestReady", "Unknown", "Unreachable", f"slurmrestd runs, but Slurm can't be asked: {why}")
    return Finding("RestReady", "True", "Running", "slurmrestd answers")


def _login(seen: ClusterObservation) -> Finding:
    if seen.cluster.spec.login.replicas == 0:
        return Finding("LoginReady", "True", "NotWanted", "spec.login.replicas is 0")
    if not _ready_count(seen, LOGIN):
        return _not_ready(seen, "LoginReady", LOGIN)
    return Finding("LoginReady", "True", "Running", "people can log in")


def _ready_count(seen: ClusterObservation, component: str) -> int:
    deployment = seen.deployments.get(component)
    return deployment.status.ready_replicas if deployment else 0


def _not_ready(seen: ClusterObservation, type_: str, component: str) -> Finding:
    if found := pod_state.first_trouble(seen.pods.get(component, ())):
        return Finding(type_, "False", found.reason, found.message)
    deployment = seen.deployments.get(component)
    for condition in deployment.status.conditions if deployment else ():
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return Finding(type_, "False", condition.reason, condition.message)
    return Finding(type_, "False", "Starting", f"{component} is starting")


def _config(seen: ClusterObservation, decision: ClusterDecision) -> Finding:
    candidate, trial = seen.candidate, decision.trial
    if candidate is None:
        return Finding("ConfigValid", "False", "Refused", f"{seen.refusal}; {_goes_on(seen)}")
    if trial.passed is None:
        return Finding("ConfigValid", "Unknown", "Trying", trial.message)
    if not trial.passed:
        words = f"slurmctld doesn't start with it: {trial.message}; {_goes_on(seen)}"
        return Finding("ConfigValid", "False", "SlurmRefused", words)
    told = seen.lease.metadata.annotations if seen.lease else {}
    if candidate.digest != seen.active or told.get(CONFIG) != seen.active:
        if told.get(MESSAGE) and told.get(CONFIG) and candidate.digest == seen.active:
            words = f"slurmctld went back to the configuration before it: {told[MESSAGE]}"
            return Finding("ConfigValid", "False", "SlurmRefused", words)
        return Finding("ConfigValid", "True", "RollingOut", "slurmctld is about to read it")
    return Finding("ConfigValid", "True", "Applied", "slurmctld runs with it")


def _goes_on(seen: ClusterObservation) -> str:
    return "the cluster goes on with the one before" if seen.active else "correct spec.config"


def happenings(
    before: SlurmCluster, after: SlurmClusterStatus, seen: ClusterObservation, decision: ClusterDecision
) -> list[PlannedEvent]:
    """Events for what was done, and for conditions that changed for better or worse."""
    told: list[PlannedEvent] = []
    if decision.rolling_out and seen.active is not None and seen.candidate:
        if seen.candidate.restarts:
            keys = ", ".join(seen.candidate.restarts)
            words = f"slurmctld restarts, since {keys} can't change otherwise; running jobs go on"
            told.append(PlannedEvent("Normal", "Restarting", words))
        else:
            told.append(PlannedEvent("Normal", "Reconfiguring", "slurmctld reads a new configuration; jobs go on"))
    told += controller_events.happenings(before, after)
    told += controller_events.news(before.status, GuardReport(seen.lease).news)
    for condition in after.conditions:
        old = conditions.find(before.status.conditions, condition.type)
        if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
            continue
        if condition.status == "False" and condition.reason not in _quiet(after):
            told.append(PlannedEvent("Warning", condition.reason, condition.message))
        elif condition.type == "Ready" and condition.status == "True" and old and old.status != "True":
            told.append(PlannedEvent("Normal", "Ready", condition.message))
    return list(dict.fromkeys(told))


def _quiet(after: SlurmClusterStatus) -> tuple[str, ...]:
    """The reasons that are part of every life, or are told elsewhere with more."""
    return ("Starting", "Deleting", "Held", *(["Crashed"] if after.crash else []))


def announcements(decision: ClusterDecision) -> list[PlannedEvent]:
    """What has to be told before it is done: afterwards nothing would be left that tells of it."""
    return [stuck_pods.told(action) for action in decision.actions if isinstance(action, RemoveStuckPod)]
