"""The plan for a SlurmCluster: its objects, its configuration, its deletion.

Guarantees, whatever the observation:

- A configuration that contains anything from the user is rolled out only after a slurmctld has started with it. The
  same holds for a change of the controller's pod: an image that doesn't exist never replaces one that runs.
- The control plane stays until the cluster has no slurmd pod left: every node can be drained.
- The volume with the queue is deleted only if the user asked for that.
- A pod is removed without its kubelet's confirmation only if it is the controller's, its node isn't ready, and either
  it is being deleted or both its node and its guard are silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seltzer.api.core import Deployment, Lease, Node, PersistentVolumeClaim, Pod
from seltzer.api.labels import CONFIG, FINALIZER, TRIAL
from seltzer.api.slurmcluster import JobCounts, SlurmCluster
from seltzer.plan import home, pod_state, slurm_state
from seltzer.plan.actions import (
    Action,
    Apply,
    Create,
    Delete,
    DeleteRecords,
    DownNodes,
    Hold,
    Manifest,
    RefreshVolumes,
    SetFinalizer,
)
from seltzer.plan.cluster import stuck_pods
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.slurm_presence import SlurmState
from seltzer.plan.slurm_state import MARK, OURS
from seltzer.plan.users.users_status import UsersOutcome
from seltzer.plan.wakeup import Wakeup

CONTROLLER = "slurmctld"


@dataclass(frozen=True)
class Candidate:
    """The configuration that the spec asks for, with the objects to try it and to roll it out."""

    digest: str
    # It contains nothing from the user: our own tests start such configurations.
    trusted: bool
    # Identifies a trial of it with the wanted pod of the controller.
    trial_id: str
    config_map: Manifest
    trial: tuple[Manifest, ...]
    # Keys of slurm.conf that differ from the active configuration and need a restart of slurmctld.
    restarts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mounted:
    """A ConfigMap that a component's pods mount, and the annotation that makes their kubelets sync it."""

    component: str
    annotation: str
    digest: str


@dataclass(frozen=True)
class ClusterObservation:
    """The input of a plan."""

    cluster: SlurmCluster
    # None if the configuration can't be rendered; `refusal` says why.
    candidate: Candidate | None
    refusal: str
    # The digest of the configuration that is rolled out.
    active: str | None
    # The IDs of the controller's wanted pod template and of its Deployment's; None: there is no Deployment.
    pod: str
    active_pod: str | None
    # Managed objects that have drifted, and missing ones that are created only once.
    drifted: tuple[Manifest, ...]
    absent: tuple[Manifest, ...]
    deployments: Mapping[str, Deployment]
    # The control plane's pods by component, and the trial pods.
    pods: Mapping[str, tuple[Pod, ...]]
    trials: tuple[Pod, ...]
    # The trial pods' ConfigMaps.
    leftovers: tuple[Delete, ...]
    claim: PersistentVolumeClaim | None
    lease: Lease | None
    slurm: SlurmState
    # Why Slurm doesn't answer.
    failure: str
    jobs: JobCounts | None
    # How many slurmd pods the cluster has, in all namespaces.
    slurmds: int
    # Objects that the spec doesn't ask for any more.
    surplus: tuple[Delete, ...] = ()
    # The claim with the home directories, ours or the user's; its name; and the binder's pods.
    home: PersistentVolumeClaim | None = None
    home_name: str = ""
    binder: Manifest | None = None
    binders: tuple[Pod, ...] = ()
    # The ConfigMaps that components' pods mount, without the cluster's configuration.
    mounted: tuple[Mounted, ...] = ()
    # What has to be done about the users.
    users: UsersOutcome = field(default_factory=UsersOutcome)
    # The Kubernetes nodes of the controller's pods, as far as they exist.
    nodes: Mapping[str, Node] = field(default_factory=dict)
    # For how many seconds the Lease hasn't changed, by our own clock.
    silence: float = 0.0
    now: float = 0.0


@dataclass(frozen=True)
class Trial:
    """The result of the candidate's trial."""

    # None: there is no result yet.
    passed: bool | None
    message: str = ""


@dataclass(frozen=True)
class ClusterDecision:
    """The actions, and the input of the status."""

    actions: tuple[Action, ...]
    trial: Trial
    rolling_out: bool


def deleted(cluster: SlurmCluster) -> bool:
    return cluster.metadata.deletion_timestamp is not None


def decide(seen: ClusterObservation) -> ClusterDecision:
    """The plan."""
    trial = _trial(seen)
    present = FINALIZER in seen.cluster.metadata.finalizers
    if deleted(seen.cluster):
        ending = [*_controller_actions(seen), *_deletion(seen)] if present else []
        return ClusterDecision(tuple(ending), trial, rolling_out=False)
    if not present:
        return ClusterDecision((SetFinalizer(True),), trial, rolling_out=False)
    rolling_out = seen.candidate is not None and seen.candidate.digest != seen.active and trial.passed is True
    # Without a configuration the controller's pod would wait for one, with a growing back-off.
    startable = rolling_out or seen.active is not None
    startable = startable and (trial.passed is True or seen.pod == seen.active_pod)
    actions: list[Action] = [Create(manifest) for manifest in seen.absent]
    actions += [Apply(manifest) for manifest in seen.drifted if _may_apply(manifest, seen, startable=startable)]
    actions += seen.surplus
    actions += home.binding(seen.cluster, seen.home, seen.binders, seen.binder)
    if rolling_out and seen.candidate:
        actions.append(Apply(seen.candidate.config_map))
    actions += _trial_actions(seen, trial)
    actions += seen.users.actions
    actions += _config_syncs(seen)
    actions += _controller_actions(seen)
    return ClusterDecision(tuple(actions), trial, rolling_out)


def _may_apply(manifest: Manifest, seen: ClusterObservation, *, startable: bool) -> bool:
    if _is_controller(manifest):
        return startable
    is_home = manifest["kind"] == "PersistentVolumeClaim" and manifest["metadata"]["name"] == seen.home_name
    return not (is_home and home.is_replaced(seen.cluster, seen.home))


def _is_controller(manifest: Manifest) -> bool:
    name: str = manifest["metadata"]["name"]
    return manifest["kind"] == "Deployment" and name.endswith(f"-{CONTROLLER}")


def _trial(seen: ClusterObservation) -> Trial:
    candidate = seen.candidate
    if candidate is None:
        return Trial(False, seen.refusal)
    if not _needs_trial(seen):
        return Trial(True)
    for pod in seen.trials:
        if not _is_current(pod, candidate) or pod_state.deleting(pod):
            continue
        if pod.status.phase == "Succeeded":
            return Trial(True)
        if pod.status.phase == "Failed":
            failure = _trial_failure(pod)
            return Trial(False, failure) if failure else Trial(None, "the trial was interrupted")
        found = pod_state.trouble(pod)
        return Trial(None, found.message if found else "a trial starts slurmctld with it")
    return Trial(None, "it is about to be tried")


def _needs_trial(seen: ClusterObservation) -> bool:
    """Whether the wanted configuration or pod differs from the active one in a way that may not start."""
    candidate = seen.candidate
    if candidate is None:
        return False
    new_config = candidate.digest != seen.active and not candidate.trusted
    return new_config or seen.active_pod not in (None, seen.pod)


def _is_current(pod: Pod, candidate: Candidate) -> bool:
    return pod.metadata.labels.get(TRIAL) == candidate.trial_id


def _trial_failure(pod: Pod) -> str:
    """Slurm's message about why it didn't start, or else its exit code. Empty: the pod was evicted or removed."""
    for status in pod.status.container_statuses:
        ended = status.state.terminated
        if ended and ended.message.strip():
            return " ".join(ended.message.split())
        if ended and ended.reason and not pod.status.reason:
            return f"{ended.reason}, exit code {ended.exit_code}"
    return ""


def _trial_actions(seen: ClusterObservation, trial: Trial) -> list[Action]:
    """Starts the trial if one is needed, and removes old ones. A failed trial stays, so that its log can be read."""
    candidate = seen.candidate
    needed = _needs_trial(seen)
    actions: list[Action] = []
    running = False
    for pod in seen.trials:
        current = needed and candidate is not None and _is_current(pod, candidate)
        interrupted = pod.status.phase == "Failed" and not _trial_failure(pod)
        if current and not interrupted:
            running = True
        elif not pod_state.deleting(pod):
            metadata = pod.metadata
            actions.append(Delete("Pod", metadata.namespace, metadata.name, metadata.uid))
    if needed and candidate and trial.passed is None:
        # The pod may exist without the ConfigMap that it mounts, and waits for it.
        existing = {each.name for each in seen.leftovers} if running else set()
        inputs = [each for each in candidate.trial if each["kind"] != "Pod"]
        actions += [Apply(each) for each in inputs if each["metadata"]["name"] not in existing]
        actions += [Create(each) for each in candidate.trial if each["kind"] == "Pod" and not running]
    if not needed:
        actions += seen.leftovers
    return actions


def _config_syncs(seen: ClusterObservation) -> list[Action]:
    """Annotates pods whose ConfigMap changed: kubelets sync it within a minute, or at once if the pod changes too."""
    config = (Mounted(CONTROLLER, CONFIG, seen.active),) if seen.active else ()
    return [
        RefreshVolumes(pod.metadata.namespace, pod.metadata.name, each.annotation, each.digest)
        for each in (*config, *seen.mounted)
        for pod in seen.pods.get(each.component, ())
        if not pod_state.deleting(pod) and pod.metadata.annotations.get(each.annotation) != each.digest
    ]


def _controller_actions(seen: ClusterObservation) -> list[Action]:
    """Passes `hold` on to the guard, and removes stuck pods that block the controller."""
    actions: list[Action] = []
    held = seen.cluster.spec.controller.hold
    if seen.lease is not None and GuardReport(seen.lease).hold != held:
        actions.append(Hold(seen.lease.metadata.namespace, seen.lease.metadata.name, held))
    pods, patient = seen.pods.get(CONTROLLER, ()), _stays_on_lost_nodes(seen.cluster)
    return [
        *actions,
        *stuck_pods.removals(pods, seen.nodes, seen.lease, seen.now, silence=seen.silence, patient=patient),
    ]


def _stays_on_lost_nodes(cluster: SlurmCluster) -> bool:
    """Whether the user sets how long the controller's pod stays on an unreachable node."""
    tolerations = cluster.spec.controller.pod_template.spec.get("tolerations") or ()
    return any(each.get("key") == "node.kubernetes.io/unreachable" for each in tolerations)


def wakeups(seen: ClusterObservation) -> tuple[Wakeup, ...]:
    """Reasons to reconcile again although nothing changes."""
    found = []
    if any(stuck_pods.lost(pod, seen.nodes, seen.lease) for pod in seen.pods.get(CONTROLLER, ())):
        found.append(Wakeup("a controller's pod is on a Kubernetes node that may be dead", 1.0))
    if waits := home.awaited(seen.cluster, seen.home, seen.now):
        found.append(waits)
    if deleted(seen.cluster) and obstacle(seen):
        # If Slurm stays silent, a deleted cluster stops waiting after some minutes.
        found.append(Wakeup("a deleted cluster waits for its nodes", 5.0))
    return tuple(found)


def remaining_records(seen: ClusterObservation) -> list[str]:
    """The names of Slurm's node records that NodeSets created."""
    known = (seen.slurm.nodes or {}).values()
    return sorted(node.name for node in known if node.comment.startswith(MARK) and slurm_state.is_dynamic(node))


def obstacle(seen: ClusterObservation) -> str:
    """What a deleted cluster waits for before its control plane is removed; empty: nothing."""
    if seen.slurm.nodes is None and not seen.slurm.gone and seen.cluster.spec.controller.hold:
        name = seen.cluster.metadata.name
        return f"slurmctld is held, so its nodes can't be drained; run 'seltzer debug {name} --release'"
    if seen.slurmds:
        return f"{seen.slurmds} nodes are drained and removed first"
    if seen.slurm.nodes is None and not seen.slurm.gone:
        return (
            "Slurm can't be asked whether its nodes are gone; without an answer it ends some minutes after its deletion"
        )
    if records := remaining_records(seen):
        # They would stay on the volume, and a new cluster on it would find their names taken.
        return f"the records of {len(records)} nodes are removed first"
    return ""


def _orphaned_records(seen: ClusterObservation) -> list[Action]:
    """Removes records without pods. Their NodeSets do so too, but may no longer exist."""
    names = frozenset(remaining_records(seen))
    nodes = [node for node in (seen.slurm.nodes or {}).values() if node.name in names]
    busy = sorted(node.name for node in nodes if node.occupied and node.base != "DOWN")
    idle = sorted(node.name for node in nodes if not node.occupied)
    actions: list[Action] = [DownNodes(tuple(busy), f"{OURS}its pod is gone")] if busy else []
    return [*actions, DeleteRecords(tuple(idle))] if idle else actions


def _deletion(seen: ClusterObservation) -> list[Action]:
    """First the NodeSets drain the nodes. Then Kubernetes deletes all objects that the cluster owns."""
    if obstacle(seen):
        return [] if seen.slurmds else _orphaned_records(seen)
    actions: list[Action] = []
    if seen.cluster.spec.controller.storage.on_delete == "delete":
        if seen.claim is not None:
            metadata = seen.claim.metadata
            actions.append(Delete("PersistentVolumeClaim", metadata.namespace, metadata.name, metadata.uid))
        actions += [seen.users.ledger] if seen.users.ledger else []
    wanted = seen.cluster.spec.home
    if wanted and not wanted.claim and wanted.on_delete == "delete" and seen.home is not None:
        metadata = seen.home.metadata
        actions.append(Delete("PersistentVolumeClaim", metadata.namespace, metadata.name, metadata.uid))
    return [*actions, SetFinalizer(False)]
