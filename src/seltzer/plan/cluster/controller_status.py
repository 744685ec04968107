"""What is told about the controller: who is in charge, who stands by, and whether its state is safe."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from seltzer.api.core import Pod
from seltzer.api.status import ControllerStatus, Crash, Recovered, Standby, VolumeStatus
from seltzer.plan import pod_state
from seltzer.plan.cluster import deployment_status, stuck_pods
from seltzer.plan.cluster.cluster_plan import CONTROLLER, ClusterObservation
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.conditions import Finding

READY = "ControllerReady"
_MOST_STANDBYS = 16


def active(seen: ClusterObservation) -> Pod | None:
    """The pod in charge, if there still is such a pod."""
    holder = GuardReport(seen.lease).holder
    return next((pod for pod in seen.pods.get(CONTROLLER, ()) if holder and pod.metadata.name == holder), None)


def others(seen: ClusterObservation) -> list[Pod]:
    """The controller's pods that aren't in charge and aren't going, by name."""
    holder = GuardReport(seen.lease).holder
    pods = (pod for pod in seen.pods.get(CONTROLLER, ()) if pod.metadata.name != holder)
    return sorted((pod for pod in pods if not pod_state.deleting(pod)), key=lambda pod: pod.metadata.name)


def standbys(seen: ClusterObservation) -> list[Pod]:
    """Those that could take over. Without somebody in charge nobody stands by: one of them is about to be."""
    return [pod for pod in others(seen) if pod_state.ready(pod)] if GuardReport(seen.lease).holder else []


# --- the status ---------------------------------------------------------------------------------------------------


def controller(seen: ClusterObservation) -> ControllerStatus | UnsetType:
    """Who was last in charge stays, until somebody else is; an empty phase tells that nobody is."""
    if seen.lease is None:
        return UNSET
    told, pod, known = GuardReport(seen.lease), active(seen), seen.cluster.status.controller or ControllerStatus()
    same = told.holder in ("", known.pod)
    return ControllerStatus(
        pod=told.holder or known.pod,
        node=pod.spec.node_name if pod else known.node if same else "",
        phase=told.phase,
        epoch=told.epoch,
        restarts=told.restarts,
        failovers=told.failovers,
        standbys=tuple(
            Standby(pod=each.metadata.name, node=each.spec.node_name) for each in standbys(seen)[:_MOST_STANDBYS]
        ),
    )


def volume(seen: ClusterObservation) -> VolumeStatus | UnsetType:
    """As last told: the next guard tells anew after a moment only, and the volume is the same."""
    return GuardReport(seen.lease).volume or seen.cluster.status.volume


def crash(seen: ClusterObservation) -> Crash | UnsetType:
    """The last one, also when another guard has taken over, who knows nothing of it."""
    return GuardReport(seen.lease).crash or seen.cluster.status.crash


def recovered(seen: ClusterObservation) -> Recovered | UnsetType:
    """What the last start found that found anything, likewise."""
    return GuardReport(seen.lease).recovered or seen.cluster.status.recovered


def last_news_time(seen: ClusterObservation) -> str | UnsetType:
    """Of the newest; a guard that has just begun tells nothing yet, which makes nothing new."""
    news = GuardReport(seen.lease).news
    return news[-1].time if news else seen.cluster.status.last_news_time


# --- conditions ---------------------------------------------------------------------------------------------------


def ready(seen: ClusterObservation) -> Finding:
    """ControllerReady: from the guard's report, or else why there is none."""
    if told := in_charge(seen):
        return told
    found = pod_state.first_trouble(seen.pods.get(CONTROLLER, ()))
    if found and seen.claim is not None and seen.claim.status.phase == "Pending":
        asked = seen.cluster.spec.controller.storage.class_name
        which = f"StorageClass {asked}" if asked else "default StorageClass"
        words = f"the volume claim {seen.claim.metadata.name} is pending: {found.message}"
        # The class of a claim can't change, and a cluster that never ran loses nothing when it is made anew.
        advice = f"if there is no {which}, add it, or delete the cluster and create it with"
        words = f"{words}; {advice} {'another' if asked else 'a'} controller.storage.className"
        return _no(READY, "VolumePending", words)
    return deployment_status.not_ready(seen, CONTROLLER, READY)


def in_charge(seen: ClusterObservation) -> Finding | None:
    """ControllerReady, from what the one in charge tells; None where it tells nothing that matters."""
    told, pod, name = GuardReport(seen.lease), active(seen), seen.cluster.metadata.name
    if told.phase == "held":
        words = f"slurmctld is held; 'seltzer debug {name}' opens a shell beside it, with --release it goes on"
        return _no(READY, "Held", words)
    if told.phase in ("crashed", "blocked"):
        return _no(READY, told.phase.capitalize(), _trouble(told))
    if pod is not None and told.phase == "running" and pod_state.ready(pod):
        wanted = seen.cluster.spec.controller.standby
        ready = f"; {len(standbys(seen))} of {wanted} standbys are there" if wanted else ""
        return Finding(READY, "True", "Running", f"slurmctld {told.version}".strip() + f" answers{ready}")
    if pod is not None and not stuck_pods.is_ready(seen.nodes.get(pod.spec.node_name)):
        words = f"{_where(pod)}, which isn't ready; another pod takes over if it stays so"
        if standing := standbys(seen):
            words = f"{_where(pod)}, which isn't ready; {standing[0].metadata.name} takes over"
        return _no(READY, "NodeLost", words)
    return None


def standing_by(seen: ClusterObservation) -> Finding | None:
    """StandbyReady; None where no standby is wanted."""
    wanted, there = seen.cluster.spec.controller.standby, standbys(seen)
    if wanted == 0:
        return None
    if len(there) >= wanted:
        return Finding("StandbyReady", "True", "StandingBy", ", ".join(map(_where, there)))
    count = f"{len(there)} of {wanted} standbys are there"
    if not GuardReport(seen.lease).holder:
        return _no("StandbyReady", "Starting", count)  # what is in the way is told of the controller
    if found := pod_state.first_trouble(others(seen)):
        return _no("StandbyReady", found.reason, f"{count}: {found.message}")
    deployment = seen.deployments.get(CONTROLLER)
    for condition in deployment.status.conditions if deployment else ():
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return _no("StandbyReady", condition.reason, f"{count}: {condition.message}")
    return _no("StandbyReady", "Starting", count)


def state_safe(seen: ClusterObservation) -> Finding:
    """StateSafe: whether what Slurm acknowledges will be on the volume."""
    told, known = GuardReport(seen.lease), volume(seen)
    if told.phase == "blocked":
        return _no("StateSafe", "Blocked", _trouble(told))
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


def _trouble(told: GuardReport) -> str:
    return f"slurmctld: {told.message or 'no reason given'}; see 'seltzer logs'"


def _where(pod: Pod) -> str:
    return f"{pod.metadata.name} on {pod.spec.node_name}"


def _no(type_: str, reason: str, message: str) -> Finding:
    return Finding(type_, "False", reason, message)


def size(count: int) -> str:
    """Bytes for a person."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if value < 10 and unit != "B" else f"{value:.0f} {unit}"
