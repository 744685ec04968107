"""What is to be done about a SlurmCluster, and what is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest
from tests.builders import objects
from tests.builders import plan as plan_builders
from tests.builders import slurm as slurm_builders
from tests.builders.objects import NOW, time_at
from tests.builders.plan import slurm
from tests.fakes.plan_model.cluster_world import TrialPod, manifest

from seltzer.api.common import Condition
from seltzer.api.core import (
    ClaimStatus,
    Deployment,
    DeploymentStatus,
    Lease,
    ObjectCondition,
    ObjectMeta,
    PersistentVolumeClaim,
    Pod,
)
from seltzer.api.labels import CONFIG, LOGIN_CONFIG
from seltzer.api.login import Login
from seltzer.api.slurmcluster import (
    Controller,
    JobCounts,
    SlurmCluster,
    SlurmClusterSpec,
    SlurmClusterStatus,
    Storage,
)
from seltzer.api.volumes import Home
from seltzer.build.components import login, slurmrestd
from seltzer.build.components.table import CONTROL_PLANE, findings
from seltzer.plan.actions import Action, Apply, Create, Delete, DeleteRecords, DownNodes, RefreshVolumes, SetFinalizer
from seltzer.plan.cluster import cluster_status
from seltzer.plan.cluster.cluster_plan import CONTROLLER, Candidate, ClusterObservation, Mounted, decide
from seltzer.plan.cluster.cluster_status import status

REST, LOGIN = slurmrestd.NAME, login.NAME
CONFIG_MAP = manifest("ConfigMap", "demo-config", "d1")
TRIAL = (manifest("ConfigMap", "demo-trial-t1", "d1"), manifest("Pod", "demo-trial-t1", "d1"))
CONTROLLER_MANIFEST, SERVICE = manifest("Deployment", "demo-slurmctld", ""), manifest("Service", "demo-login", "")
CANDIDATE = Candidate(digest="d1", trusted=False, trial_id="t1", config_map=CONFIG_MAP, trial=TRIAL)
CLAIM = PersistentVolumeClaim(metadata=ObjectMeta(name="demo-slurmctld", namespace="ns", uid="u-claim"))
LEFTOVER = Delete("ConfigMap", "ns", "demo-trial-t1", "u-map")


def cluster(finalizer: bool = True, deleted: bool = False, spec: SlurmClusterSpec | None = None) -> SlurmCluster:
    return objects.cluster(spec, finalizer=finalizer, deleted=NOW if deleted else None)


def seen(item: SlurmCluster | None = None, **more: Any) -> ClusterObservation:
    """A cluster that runs with the configuration that it should have, unless it is said."""
    base = ClusterObservation(
        cluster=item or cluster(),
        candidate=CANDIDATE,
        refusal="",
        active="d1",
        pod="p1",
        active_pod="p1",
        drifted=(),
        absent=(),
        deployments={},
        pods={},
        trials=(),
        leftovers=(),
        claim=None,
        lease=None,
        slurm=slurm(),
        failure="",
        jobs=None,
        slurmds=0,
    )
    return replace(base, **more)


def tried(state: str, words: str = "", trial: str = "t1", deleting: bool = False) -> Pod:
    return TrialPod(trial, "u-trial", state, words, deleting).seen()


def actions(observation: ClusterObservation) -> tuple[Action, ...]:
    return decide(observation).actions


def delete_trial(trial: str = "t1") -> Delete:
    return Delete("Pod", "ns", f"demo-trial-{trial}", "u-trial")


TRY = (Apply(TRIAL[0]), Create(TRIAL[1]))


def test_what_the_spec_no_longer_asks_for_is_deleted() -> None:
    surplus = Delete("Deployment", "ns", "demo-login-gpu", "u")
    assert surplus in decide(seen(surplus=(surplus,))).actions
    assert surplus not in decide(seen(cluster(deleted=True), surplus=(surplus,))).actions, "Kubernetes deletes it"


def test_the_finalizer_comes_first_and_alone() -> None:
    assert actions(seen(cluster(finalizer=False), active=None, absent=(SERVICE,))) == (SetFinalizer(True),)


def test_what_is_missing_is_made_and_what_has_drifted_is_applied() -> None:
    assert actions(seen(absent=(SERVICE,), drifted=(SERVICE,))) == (Create(SERVICE), Apply(SERVICE))


def test_a_cluster_that_is_as_it_should_be_is_left_alone() -> None:
    assert actions(seen()) == ()


def test_a_trusted_configuration_is_rolled_out_at_once_with_the_controller() -> None:
    candidate = replace(CANDIDATE, trusted=True)
    observation = seen(candidate=candidate, active=None, active_pod=None, drifted=(CONTROLLER_MANIFEST,))
    assert actions(observation) == (Apply(CONTROLLER_MANIFEST), Apply(CONFIG_MAP))


@pytest.mark.parametrize(
    ("why", "trials", "leftovers", "expected"),
    [
        ("it is to be tried", (), (), TRY),
        ("it is being tried", (tried("waiting"),), (LEFTOVER,), ()),
        ("its trial waits for its files", (tried("waiting"),), (), TRY[:1]),
        ("it has failed", (tried("Failed", "fatal: no"),), (LEFTOVER,), ()),
        ("its trial was interrupted", (tried("Failed"),), (LEFTOVER,), (delete_trial(), *TRY)),
        ("another was tried", (tried("Succeeded", trial="t0"),), (), (delete_trial("t0"), *TRY)),
        ("its trial is going", (tried("Succeeded", deleting=True),), (LEFTOVER,), ()),
    ],
)
def test_a_configuration_isnt_rolled_out_while(
    why: str, trials: tuple[Pod, ...], leftovers: tuple[Delete, ...], expected: tuple[Action, ...]
) -> None:
    observation = seen(active="d0", trials=trials, leftovers=leftovers)
    assert actions(observation) == expected, why
    first = replace(observation, active=None, active_pod=None, drifted=(CONTROLLER_MANIFEST,))
    assert actions(first) == expected, f"{why}, and the controller waits for a configuration"


def test_one_that_passed_its_trial_is_rolled_out_and_then_the_trial_goes() -> None:
    passed = (tried("Succeeded"),)
    assert actions(seen(active="d0", trials=passed, leftovers=(LEFTOVER,))) == (Apply(CONFIG_MAP),)
    assert actions(seen(active="d1", trials=passed, leftovers=(LEFTOVER,))) == (delete_trial(), LEFTOVER)


def test_a_controller_pod_that_nobody_has_tried_replaces_none_that_runs() -> None:
    changed = seen(pod="p2", drifted=(CONTROLLER_MANIFEST, SERVICE))
    assert actions(changed) == (Apply(SERVICE), *TRY)
    assert actions(replace(changed, trials=(tried("Succeeded"),))) == (Apply(CONTROLLER_MANIFEST), Apply(SERVICE))


@pytest.mark.parametrize("active", ["d0", None])
def test_a_refused_configuration_changes_nothing_that_runs(active: str | None) -> None:
    drifted = (CONTROLLER_MANIFEST, SERVICE)
    found = actions(seen(candidate=None, refusal="no", active=active, drifted=drifted))
    assert found == tuple(Apply(each) for each in drifted if active or each == SERVICE)


def test_the_controllers_kubelet_is_told_of_a_new_configuration_once() -> None:
    metadata = ObjectMeta(name="c-1", namespace="ns", annotations={CONFIG: "d0"})
    told = Pod(metadata=ObjectMeta(name="c-2", namespace="ns", annotations={CONFIG: "d1"}))
    observation = seen(pods={CONTROLLER: (Pod(metadata=metadata), told)})
    assert actions(observation) == (RefreshVolumes("ns", "c-1", CONFIG, "d1"),)


def test_a_login_pod_is_refreshed_when_its_keys_change() -> None:
    told = Pod(metadata=ObjectMeta(name="l-1", namespace="ns", annotations={LOGIN_CONFIG: "k1"}))
    old, new = (Mounted(LOGIN, LOGIN_CONFIG, digest) for digest in ("k1", "k2"))
    assert actions(seen(pods={LOGIN: (told,)}, mounted=(old,))) == ()
    assert actions(seen(pods={LOGIN: (told,)}, mounted=(new,))) == (RefreshVolumes("ns", "l-1", LOGIN_CONFIG, "k2"),)


def test_a_deleted_cluster_waits_for_its_nodes_and_keeps_its_volume() -> None:
    gone = cluster(deleted=True)
    assert actions(seen(gone, slurmds=1, claim=CLAIM)) == ()
    assert actions(seen(gone, claim=CLAIM)) == (SetFinalizer(False),)
    assert actions(seen(cluster(deleted=True, finalizer=False), claim=CLAIM)) == ()


def test_it_waits_for_their_records_too_unless_slurm_is_gone() -> None:
    gone = cluster(deleted=True)
    assert SetFinalizer(False) not in actions(seen(gone, slurm=slurm(slurm_builders.node())))
    assert actions(seen(gone, slurm=slurm(slurm_builders.node(comment="an administrator's")))) == (SetFinalizer(False),)
    assert actions(seen(gone, slurm=plan_builders.UNKNOWN)) == ()
    assert actions(seen(gone, slurm=plan_builders.GONE)) == (SetFinalizer(False),)


def test_records_whose_nodeset_is_gone_are_removed_with_the_cluster() -> None:
    gone = cluster(deleted=True)
    assert actions(seen(gone, slurm=slurm(slurm_builders.node()))) == (DeleteRecords(("cpu-0",)),)
    busy = slurm_builders.node(state="MIXED")
    assert actions(seen(gone, slurm=slurm(busy))) == (DownNodes(("cpu-0",), "seltzer: its pod is gone"),)
    assert actions(seen(gone, slurm=slurm(busy), slurmds=1)) == (), "its NodeSet drains it"


def test_the_volume_goes_only_if_the_user_asked_for_that() -> None:
    spec = SlurmClusterSpec(controller=Controller(storage=Storage(on_delete="delete")))
    gone = cluster(deleted=True, spec=spec)
    claim = Delete("PersistentVolumeClaim", "ns", "demo-slurmctld", "u-claim")
    assert actions(seen(gone, claim=CLAIM)) == (claim, SetFinalizer(False))
    assert actions(seen(gone)) == (SetFinalizer(False),)


@pytest.mark.parametrize(("on_delete", "goes"), [("retain", False), ("delete", True)])
def test_peoples_files_go_only_if_the_user_asked_for_that(on_delete: Literal["retain", "delete"], goes: bool) -> None:
    gone = cluster(deleted=True, spec=SlurmClusterSpec(home=Home(on_delete=on_delete)))
    found = actions(seen(gone, home=CLAIM, home_name="demo-home"))
    assert any(isinstance(each, Delete) for each in found) == goes
    theirs = cluster(deleted=True, spec=SlurmClusterSpec(home=Home(claim="files", on_delete=on_delete)))
    assert actions(seen(theirs, home=CLAIM, home_name="files")) == (SetFinalizer(False),)


# --- what is told ----------------------------------------------------------------------------------------------------


def deployment(ready: int = 1, failure: str = "") -> Deployment:
    conditions = (ObjectCondition(type="ReplicaFailure", status="True", reason="FailedCreate", message=failure),)
    found = DeploymentStatus(ready_replicas=ready, conditions=conditions if failure else ())
    return Deployment(metadata=ObjectMeta(name="d"), status=found)


def lease(transitions: int = 0, **told: str) -> Lease:
    found: dict[str, Any] = {"config": "d1", **told}
    return objects.lease("demo-slurmctld-x", transitions=transitions, acquired="then", **found)


RUNNING = {each.name: deployment() for each in CONTROL_PLANE}
ACTIVE = objects.pod("demo-slurmctld-x", template="")


def running(item: SlurmCluster | None = None, **more: Any) -> ClusterObservation:
    pods = {CONTROLLER: (told_of(ACTIVE),), **more.pop("pods", {})}
    return seen(
        item, **{"deployments": RUNNING, "lease": lease(phase="running", slurm_version="26.05.5"), "pods": pods, **more}
    )


def told_of(pod: Pod) -> Pod:
    """The pod, whose kubelet has the configuration."""
    metadata = msgspec.structs.replace(pod.metadata, annotations={CONFIG: "d1"})
    return msgspec.structs.replace(pod, metadata=metadata)


def told(observation: ClusterObservation, *failures: str) -> SlurmClusterStatus:
    return status(observation, decide(observation), findings(observation), failures, time_at(NOW))


def condition(of: SlurmClusterStatus, type_: str) -> Condition:
    return next(each for each in of.conditions if each.type == type_)


def without(component: str) -> dict[str, Deployment]:
    return {**RUNNING, component: deployment(0)}


PENDING = PersistentVolumeClaim(metadata=CLAIM.metadata, status=ClaimStatus(phase="Pending"))
NO_LOGIN = cluster(spec=SlurmClusterSpec(login=Login(replicas=0)))
LOST = objects.pod("demo-slurmctld-x", state="Unschedulable", words="unbound claim")
NO_IMAGE = objects.pod("demo-login-x", state="ErrImagePull", words="not found")


@pytest.mark.parametrize(
    ("type_", "observation", "expected", "reason", "words"),
    [
        ("Ready", running(), "True", "Running", "jobs can be submitted"),
        ("Ready", running(deployments=without(REST)), "False", "Starting", "slurmrestd is starting"),
        (
            "Ready",
            running(cluster(deleted=True), slurmds=2),
            "False",
            "Deleting",
            "2 nodes are drained and removed first",
        ),
        ("Ready", seen(candidate=None, refusal="bad key", active=None), "False", "ConfigRefused", "bad key; correct"),
        ("ControllerReady", running(), "True", "Running", "slurmctld 26.05.5 answers"),
        ("ControllerReady", running(lease=lease(phase="crashed", message="fatal: x")), "False", "Crashed", "fatal: x"),
        (
            "ControllerReady",
            running(lease=lease(phase="blocked", message="full")),
            "False",
            "Blocked",
            "slurmctld: full",
        ),
        (
            "ControllerReady",
            seen(pods={CONTROLLER: (LOST,)}, claim=PENDING),
            "False",
            "VolumePending",
            "with a controller.s",
        ),
        ("ControllerReady", seen(pods={CONTROLLER: (LOST,)}), "False", "Unschedulable", "unbound claim"),
        (
            "RestReady",
            running(slurm=plan_builders.UNKNOWN, failure="502"),
            "Unknown",
            "Unreachable",
            "can't be asked: 502",
        ),
        ("RestReady", running(), "True", "Running", "slurmrestd answers"),
        ("LoginReady", running(NO_LOGIN, deployments=without(LOGIN)), "True", "NotWanted", "replicas is 0"),
        (
            "LoginReady",
            running(deployments=without(LOGIN), pods={LOGIN: (NO_IMAGE,)}),
            "False",
            "ErrImagePull",
            "check the image's name",
        ),
        (
            "LoginReady",
            running(deployments={LOGIN: deployment(0, "exceeded quota")}),
            "False",
            "FailedCreate",
            "exceeded quota",
        ),
        ("ConfigValid", running(), "True", "Applied", "slurmctld runs with it"),
        ("ConfigValid", running(lease=lease(config="d0")), "True", "RollingOut", "about to read it"),
        ("ConfigValid", running(active="d0"), "Unknown", "Trying", "about to be tried"),
        ("ConfigValid", running(active="d0", trials=(tried("waiting"),)), "Unknown", "Trying", "a trial starts"),
        ("ConfigValid", running(active="d0", trials=(tried("Failed"),)), "Unknown", "Trying", "interrupted"),
        ("ConfigValid", running(candidate=None, refusal="bad key"), "False", "Refused", "bad key; the cluster goes on"),
        (
            "ConfigValid",
            running(active="d0", trials=(tried("Failed", "error: x\nfatal: y"),)),
            "False",
            "SlurmRefused",
            "doesn't start with it: error: x fatal: y; the cluster goes on with the one before",
        ),
    ],
)
def test_conditions(type_: str, observation: ClusterObservation, expected: str, reason: str, words: str) -> None:
    found = condition(told(observation), type_)
    assert (found.status, found.reason) == (expected, reason)
    assert words in found.message


def test_who_refused_something_is_quoted() -> None:
    assert any(each.message == "exceeded quota" for each in told(running(), "exceeded quota").conditions)


def test_the_numbers_are_slurms() -> None:
    found = told(
        running(
            slurm=slurm(slurm_builders.node(), slurm_builders.node("cpu-1", "MIXED")),
            jobs=JobCounts(running=1, pending=2),
        )
    )
    assert (found.nodes.total, found.nodes.idle, found.nodes.mixed) == (2, 1, 1)
    assert (found.jobs.running, found.jobs.pending, found.slurm_version) == (1, 2, "26.05.5")


def events(observation: ClusterObservation, before: SlurmCluster | None = None) -> list[str]:
    found = cluster_status.events(before or observation.cluster, told(observation), observation, decide(observation))
    return [each.reason for each in found]


def test_a_restart_is_announced_and_so_is_a_reconfigure() -> None:
    settled = replace_status(cluster(), told(running()))
    passed = running(settled, active="d0", trials=(tried("Succeeded"),), lease=lease(config="d0", phase="running"))
    assert events(passed) == ["Reconfiguring"]
    assert events(replace(passed, candidate=replace(CANDIDATE, restarts=("SelectType",)))) == ["Restarting"]


def test_a_failover_is_reported_once() -> None:
    after = running(lease=lease(1, phase="running"))
    assert "FailedOver" in events(after)
    assert events(replace(after, cluster=replace_status(cluster(), told(after)))) == []


def replace_status(item: SlurmCluster, found: SlurmClusterStatus) -> SlurmCluster:
    return SlurmCluster(metadata=item.metadata, spec=item.spec, status=found)
