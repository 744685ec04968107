"""What to do about a SlurmCluster: its objects, its configuration, its end.

Guarantees, whatever the observation:

- A configuration with anything of the user's in it is rolled out only after a slurmctld has started with it, and so is
  a change of the controller's pod: an image that doesn't exist never replaces one that runs.
- The control plane stays until no slurmd pod of the cluster is left, so that every node can be drained.
- The volume with the queue is deleted only if the user asked for that.
- A pod is removed without its node's consent only if it is the controller's and its node isn't ready; and if it should
  go, or neither its node nor its guard is heard of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seltzer.api.core import Deployment, Lease, Node, PersistentVolumeClaim, Pod
from seltzer.api.labels import CONFIG, FINALIZER, TRIAL
from seltzer.api.slurmcluster import JobCounts, SlurmCluster
from seltzer.plan import pod_state, slurm_state
from seltzer.plan.actions import (
    Action,
    Apply,
    Create,
    Delete,
    DeleteRecords,
    DownNodes,
    Hold,
    Manifest,
    Poke,
    SetFinalizer,
)
from seltzer.plan.cluster import stuck_pods
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.slurm_presence import SlurmState
from seltzer.plan.slurm_state import MARK, OURS
from seltzer.plan.wakeup import Wakeup

CONTROLLER = "slurmctld"


@dataclass(frozen=True)
class Candidate:
    """The configuration that the spec asks for, and what it takes to try it and to roll it out."""

    digest: str
    # Nothing of the user's is in it: it is one of those that our own tests start.
    trusted: bool
    # What a trial of it with the controller's pod as it should be is known by.
    trial_id: str
    config_map: Manifest
    trial: tuple[Manifest, ...]
    # Keys of slurm.conf that differ from what is rolled out and need a restart of slurmctld.
    restarts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mounted:
    """A ConfigMap that a component's pods mount, and the annotation that makes their kubelets read it."""

    component: str
    annotation: str
    digest: str


@dataclass(frozen=True)
class ClusterObservation:
    """Everything that a plan looks at."""

    cluster: SlurmCluster
    # None where the configuration can't be written, and `refusal` says why.
    candidate: Candidate | None
    refusal: str
    # The digest of what is rolled out.
    active: str | None
    # The controller's pod as it should be, and as its Deployment makes it; None: there is none.
    pod: str
    active_pod: str | None
    # Objects that aren't as they should be, and those that have to be made once.
    drifted: tuple[Manifest, ...]
    absent: tuple[Manifest, ...]
    deployments: Mapping[str, Deployment]
    # Pods of the control plane by component, and those that try configurations.
    pods: Mapping[str, tuple[Pod, ...]]
    trials: tuple[Pod, ...]
    # Trial pods' ConfigMaps.
    leftovers: tuple[Delete, ...]
    claim: PersistentVolumeClaim | None
    lease: Lease | None
    slurm: SlurmState
    # Why Slurm couldn't be asked.
    failure: str
    jobs: JobCounts | None
    # How many slurmd pods the cluster has, in all namespaces.
    slurmds: int
    # The ConfigMaps that components' pods mount, beside the cluster's configuration.
    mounted: tuple[Mounted, ...] = ()
    # The Kubernetes nodes on which the controller's pods are, as far as there are such nodes.
    nodes: Mapping[str, Node] = field(default_factory=dict)
    # For how long the Lease hasn't changed, by our own clock.
    silence: float = 0.0
    now: float = 0.0


@dataclass(frozen=True)
class Trial:
    """How the candidate does."""

    # None: not known yet.
    passed: bool | None
    message: str = ""


@dataclass(frozen=True)
class ClusterDecision:
    """What is to be done, and what the status is made from."""

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
        return ClusterDecision((*_controllers(seen), *_end(seen)) if present else (), trial, rolling_out=False)
    if not present:
        return ClusterDecision((SetFinalizer(True),), trial, rolling_out=False)
    rolling_out = seen.candidate is not None and seen.candidate.digest != seen.active and trial.passed is True
    # Without a configuration it would only wait for one, and then for longer and longer.
    startable = rolling_out or seen.active is not None
    startable = startable and (trial.passed is True or seen.pod == seen.active_pod)
    actions: list[Action] = [Create(manifest) for manifest in seen.absent]
    actions += [Apply(manifest) for manifest in seen.drifted if startable or not _is_controller(manifest)]
    if rolling_out and seen.candidate:
        actions.append(Apply(seen.candidate.config_map))
    actions += _trials(seen, trial)
    actions += _pokes(seen)
    actions += _controllers(seen)
    return ClusterDecision(tuple(actions), trial, rolling_out)


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
            return Trial(False, _verdict(pod)) if _verdict(pod) else Trial(None, "the trial was interrupted")
        found = pod_state.trouble(pod)
        return Trial(None, found.message if found else "slurmctld is being started with it, to see whether it does")
    return Trial(None, "it is about to be tried")


def _needs_trial(seen: ClusterObservation) -> bool:
    """Whether what is wanted differs from what runs in something that may not start."""
    candidate = seen.candidate
    if candidate is None:
        return False
    new_config = candidate.digest != seen.active and not candidate.trusted
    return new_config or seen.active_pod not in (None, seen.pod)


def _is_current(pod: Pod, candidate: Candidate) -> bool:
    return pod.metadata.labels.get(TRIAL) == candidate.trial_id


def _verdict(pod: Pod) -> str:
    """Slurm's own words on why it didn't start; how it ended, where it had none. Empty: the pod was taken away."""
    for status in pod.status.container_statuses:
        ended = status.state.terminated
        if ended and ended.message.strip():
            return " ".join(ended.message.split())
        if ended and ended.reason and not pod.status.reason:
            return f"{ended.reason}, exit code {ended.exit_code}"
    return ""


def _trials(seen: ClusterObservation, trial: Trial) -> list[Action]:
    """Try what isn't known to be good. A trial that failed stays, for whoever wants to see its log."""
    candidate = seen.candidate
    needed = _needs_trial(seen)
    actions: list[Action] = []
    running = False
    for pod in seen.trials:
        current = needed and candidate is not None and _is_current(pod, candidate)
        interrupted = pod.status.phase == "Failed" and not _verdict(pod)
        if current and not interrupted:
            running = True
        elif not pod_state.deleting(pod):
            metadata = pod.metadata
            actions.append(Delete("Pod", metadata.namespace, metadata.name, metadata.uid))
    if needed and candidate and trial.passed is None:
        # The pod may be there without what it mounts: it waits for that.
        there = {each.name for each in seen.leftovers} if running else set()
        inputs = [each for each in candidate.trial if each["kind"] != "Pod"]
        actions += [Apply(each) for each in inputs if each["metadata"]["name"] not in there]
        actions += [Create(each) for each in candidate.trial if each["kind"] == "Pod" and not running]
    if not needed:
        actions += seen.leftovers
    return actions


def _pokes(seen: ClusterObservation) -> list[Action]:
    """A pod's kubelet brings a changed ConfigMap within a minute, or at once if the pod changes too."""
    config = (Mounted(CONTROLLER, CONFIG, seen.active),) if seen.active else ()
    return [
        Poke(pod.metadata.namespace, pod.metadata.name, each.annotation, each.digest)
        for each in (*config, *seen.mounted)
        for pod in seen.pods.get(each.component, ())
        if not pod_state.deleting(pod) and pod.metadata.annotations.get(each.annotation) != each.digest
    ]


def _controllers(seen: ClusterObservation) -> list[Action]:
    """Whether slurmctld is held, and pods that stand in its way."""
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
    """Whether its user says how long the controller's pod stays on a node that isn't heard of."""
    tolerations = cluster.spec.controller.pod_template.spec.get("tolerations") or ()
    return any(each.get("key") == "node.kubernetes.io/unreachable" for each in tolerations)


def wakeups(seen: ClusterObservation) -> tuple[Wakeup, ...]:
    """Why to look again even if nothing changes."""
    found = []
    if any(stuck_pods.lost(pod, seen.nodes, seen.lease) for pod in seen.pods.get(CONTROLLER, ())):
        found.append(Wakeup("a controller's pod is on a Kubernetes node that may be dead", 1.0))
    if deleted(seen.cluster) and obstacle(seen):
        # A deleted cluster whose Slurm stays silent is given up after some minutes.
        found.append(Wakeup("a deleted cluster waits for its nodes", 5.0))
    return tuple(found)


def lingering(seen: ClusterObservation) -> list[str]:
    """The nodes that Slurm has records of and that NodeSets have made."""
    known = (seen.slurm.nodes or {}).values()
    return sorted(node.name for node in known if node.comment.startswith(MARK) and slurm_state.is_dynamic(node))


def obstacle(seen: ClusterObservation) -> str:
    """What has to be over before the control plane of a deleted cluster goes."""
    if seen.slurm.nodes is None and not seen.slurm.gone and seen.cluster.spec.controller.hold:
        name = seen.cluster.metadata.name
        return f"slurmctld is held, so its nodes can't be drained; run 'seltzer debug {name} --release'"
    if seen.slurmds:
        return f"{seen.slurmds} nodes are drained and removed first"
    if seen.slurm.nodes is None and not seen.slurm.gone:
        return (
            "Slurm can't be asked whether its nodes are gone; without an answer it ends some minutes after its deletion"
        )
    if records := lingering(seen):
        # They would be in the volume, and their names taken when a cluster comes back to it.
        return f"the records of {len(records)} nodes are removed first"
    return ""


def _abandoned(seen: ClusterObservation) -> list[Action]:
    """Records without pods. Their NodeSets remove them, and we do in case there is no such NodeSet any more."""
    names = frozenset(lingering(seen))
    nodes = [node for node in (seen.slurm.nodes or {}).values() if node.name in names]
    busy = sorted(node.name for node in nodes if node.occupied and node.base != "DOWN")
    over = sorted(node.name for node in nodes if not node.occupied)
    actions: list[Action] = [DownNodes(tuple(busy), f"{OURS}its pod is gone")] if busy else []
    return [*actions, DeleteRecords(tuple(over))] if over else actions


def _end(seen: ClusterObservation) -> list[Action]:
    """First the nodes, drained by their NodeSets; then everything that belongs to the cluster, by its owner."""
    if obstacle(seen):
        return [] if seen.slurmds else _abandoned(seen)
    actions: list[Action] = []
    if seen.cluster.spec.controller.storage.on_delete == "delete" and seen.claim is not None:
        metadata = seen.claim.metadata
        actions.append(Delete("PersistentVolumeClaim", metadata.namespace, metadata.name, metadata.uid))
    return [*actions, SetFinalizer(False)]
