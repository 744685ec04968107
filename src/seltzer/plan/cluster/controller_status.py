"""The controller's part of the status: which pod is active, which stand by, and whether the state is safe."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from seltzer.api.core import Pod
from seltzer.api.status import ControllerStatus, Crash, Recovered, Standby, VolumeStatus
from seltzer.plan import conditions, pod_state
from seltzer.plan.cluster import deployment_status, stuck_pods
from seltzer.plan.cluster.cluster_plan import CONTROLLER, ClusterObservation
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.conditions import Finding

READY = "ControllerReady"
_MOST_STANDBYS = 16


def active(seen: ClusterObservation) -> Pod | None:
    """The active pod; None if it no longer exists."""
    holder = GuardReport(seen.lease).holder
    return next((pod for pod in seen.pods.get(CONTROLLER, ()) if holder and pod.metadata.name == holder), None)


def others(seen: ClusterObservation) -> list[Pod]:
    """The controller's other pods that aren't being deleted, by name."""
    holder = GuardReport(seen.lease).holder
    pods = (pod for pod in seen.pods.get(CONTROLLER, ()) if pod.metadata.name != holder)
    return sorted((pod for pod in pods if not pod_state.deleting(pod)), key=lambda pod: pod.metadata.name)


def standbys(seen: ClusterObservation) -> list[Pod]:
    """The pods that can take over. Without an active pod there is no standby: one of them is about to become active."""
    return [pod for pod in others(seen) if pod_state.ready(pod)] if GuardReport(seen.lease).holder else []


# --- the status ---------------------------------------------------------------------------------------------------


def controller(seen: ClusterObservation) -> ControllerStatus | UnsetType:
    """Shows the last active pod until another is active. An empty phase: none is."""
    if seen.lease is None:
        return UNSET
    report, pod, known = GuardReport(seen.lease), active(seen), seen.cluster.status.controller or ControllerStatus()
    same = report.holder in ("", known.pod)
    return ControllerStatus(
        pod=report.holder or known.pod,
        node=pod.spec.node_name if pod else known.node if same else "",
        phase=report.phase,
        epoch=report.epoch,
        restarts=report.restarts,
        failovers=report.failovers,
        standbys=tuple(
            Standby(pod=each.metadata.name, node=each.spec.node_name) for each in standbys(seen)[:_MOST_STANDBYS]
        ),
    )


def volume(seen: ClusterObservation) -> VolumeStatus | UnsetType:
    """As last reported: a new guard reports after a moment, and the volume is the same."""
    return GuardReport(seen.lease).volume or seen.cluster.status.volume


def crash(seen: ClusterObservation) -> Crash | UnsetType:
    """The last crash, also after a guard took over that doesn't know of it."""
    return GuardReport(seen.lease).crash or seen.cluster.status.crash


def recovered(seen: ClusterObservation) -> Recovered | UnsetType:
    """The last recovery that found jobs, likewise."""
    return GuardReport(seen.lease).recovered or seen.cluster.status.recovered


def last_news_time(seen: ClusterObservation) -> str | UnsetType:
    """The time of the guard's newest event. A new guard has none yet: the known time stays."""
    events = GuardReport(seen.lease).events
    return events[-1].time if events else seen.cluster.status.last_news_time


# --- conditions ---------------------------------------------------------------------------------------------------


def ready(seen: ClusterObservation) -> Finding:
    """ControllerReady: from the guard's report, or else why there is none."""
    if report := in_charge(seen):
        return report
    found = pod_state.first_trouble(seen.pods.get(CONTROLLER, ()))
    if found and seen.claim is not None and seen.claim.status.phase == "Pending":
        asked = seen.cluster.spec.controller.storage.class_name
        which = f"StorageClass {asked}" if asked else "default StorageClass"
        words = f"the volume claim {seen.claim.metadata.name} is pending: {found.message}"
        # The class of a claim can't change, and a cluster that never ran loses nothing if it is created again.
        advice = f"if there is no {which}, add it, or delete the cluster and create it with"
        words = f"{words}; {advice} {'another' if asked else 'a'} controller.storage.className"
        return _no(READY, "VolumePending", words)
    return deployment_status.not_ready(seen, CONTROLLER, READY)


def in_charge(seen: ClusterObservation) -> Finding | None:
    """ControllerReady, from the active guard's report; None if that doesn't decide it."""
    report, pod, name = GuardReport(seen.lease), active(seen), seen.cluster.metadata.name
    if report.phase == "held":
        words = f"slurmctld is held; 'seltzer debug {name}' opens a shell beside it, with --release it goes on"
        return _no(READY, "Held", words)
    if report.phase in ("crashed", "blocked"):
        return _no(READY, report.phase.capitalize(), _guard_message(report))
    if pod is not None and report.phase == "running" and pod_state.ready(pod):
        wanted = seen.cluster.spec.controller.standby
        ready = f"; {len(standbys(seen))} of {wanted} standbys are ready" if wanted else ""
        return Finding(READY, "True", "Running", f"slurmctld {report.version}".strip() + f" answers{ready}")
    if pod is not None and not stuck_pods.is_ready(seen.nodes.get(pod.spec.node_name)):
        words = f"{_where(pod)}, which isn't ready; another pod takes over if it stays so"
        if standing := standbys(seen):
            words = f"{_where(pod)}, which isn't ready; {standing[0].metadata.name} takes over"
        return _no(READY, "NodeLost", words)
    return None


def standing_by(seen: ClusterObservation) -> Finding | None:
    """StandbyReady; None if no standby is wanted."""
    wanted, found = seen.cluster.spec.controller.standby, standbys(seen)
    if wanted == 0:
        return None
    if len(found) >= wanted:
        return Finding("StandbyReady", "True", "StandingBy", ", ".join(map(_where, found)))
    count = f"{len(found)} of {wanted} standbys are ready"
    if not GuardReport(seen.lease).holder:
        return _no("StandbyReady", "Starting", count)  # ControllerReady says what is wrong
    if trouble := pod_state.first_trouble(others(seen)):
        return _no("StandbyReady", trouble.reason, f"{count}: {trouble.message}")
    deployment = seen.deployments.get(CONTROLLER)
    for condition in deployment.status.conditions if deployment else ():
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return _no("StandbyReady", condition.reason, f"{count}: {condition.message}")
    return _no("StandbyReady", "Starting", count)


def state_safe(seen: ClusterObservation) -> Finding:
    """StateSafe: whether Slurm can save what it acknowledges on the volume."""
    report, known = GuardReport(seen.lease), volume(seen)
    if report.phase == "blocked":
        return _no("StateSafe", "Blocked", _guard_message(report))
    if known is UNSET or not known:
        return Finding("StateSafe", "Unknown", "Starting", "the state volume hasn't been looked at yet")
    room = f"{size(known.free)} of {size(known.size)} are free on the state volume"
    if known.low and known.files is not UNSET:
        words = f"the state volume takes only {known.files} more files; remove from it what isn't Slurm's"
        return _no("StateSafe", "LowSpace", f"{words}, or move to one with more inodes")
    if known.low:
        words = (
            f"only {room}, and Slurm can't save jobs on a full one; set controller.storage.size to more, or remove "
            "from it what isn't Slurm's"
        )
        return _no("StateSafe", "LowSpace", words)
    return Finding("StateSafe", "True", "EnoughSpace", room)


def names_ready(seen: ClusterObservation) -> Finding | None:
    """NamesReady: whether DNS answers slurmctld's pod; None if it always has."""
    trouble = GuardReport(seen.lease).names
    if not trouble:
        known = conditions.find(seen.cluster.status.conditions, "NamesReady")
        return Finding("NamesReady", "True", "Answering", "DNS answers") if known else None
    words = (
        f"in slurmctld's pod, {trouble}: running jobs go on, but Slurm's commands and new steps wait or fail; look at "
        "the DNS of Kubernetes, usually 'kubectl -n kube-system get pods -l k8s-app=kube-dns'"
    )
    return _no("NamesReady", "DNSDown", words)


def _guard_message(report: GuardReport) -> str:
    return f"slurmctld: {report.message or 'no reason given'}; see 'seltzer logs'"


def _where(pod: Pod) -> str:
    return f"{pod.metadata.name} on {pod.spec.node_name}"


def _no(type_: str, reason: str, message: str) -> Finding:
    return Finding(type_, "False", reason, message)


def size(count: int) -> str:
    """Bytes, for people."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:.0f} {unit}"
