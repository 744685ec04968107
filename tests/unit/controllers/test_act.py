"""What is checked again before something irreversible is done, and what is reported afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from tests.builders.objects import lease, nodeset
from tests.builders.slurm import node

from seltzer.api.core import Lease, ObjectMeta, Pod
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.controllers import batch
from seltzer.controllers.act import Actor, ActResult, Subject
from seltzer.controllers.children import Children
from seltzer.controllers.slurm_connection import SlurmConnection
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from seltzer.plan.actions import (
    Action,
    CreatePods,
    DeletePods,
    DeleteRecords,
    DownNodes,
    DrainNodes,
    PodRef,
    RemoveStuckPod,
    ResumeNodes,
)
from seltzer.plan.nodeset.nodeset_status import events
from seltzer.slurm.client import Outcome
from seltzer.slurm.models import Node


class Api:
    """An API server with this Lease."""

    def __init__(self, version: str) -> None:
        self._lease = lease(version=version)
        self.deleted: list[tuple[str, dict[str, Any]]] = []

    async def get(self, resource: object, name: str, namespace: str) -> Lease:
        assert (resource, name, namespace) == (kinds.LEASES, "demo-slurmctld", "ns")
        return self._lease

    async def delete(self, resource: object, name: str, namespace: str, **how: Any) -> None:
        assert (resource, namespace) == (kinds.PODS, "ns")
        self.deleted.append((name, how))


@pytest.mark.parametrize(
    ("why", "seen", "removed"),
    [
        ("its guard is as silent as it was", lease(version="7"), True),
        ("its guard has spoken since", lease(version="6"), False),
        ("its time is over, whatever its guard says", None, True),
    ],
)
async def test_a_silent_pod_is_removed_only_if_it_is_silent_still(why: str, seen: Lease | None, removed: bool) -> None:
    api = Api("7")
    subject = Subject(kinds.CLUSTERS, SlurmCluster(metadata=ObjectMeta(name="demo", namespace="ns")))
    actor = Actor(cast(Client, api), cast(Children, None), subject, None)
    done = await actor.act((RemoveStuckPod("ns", "c-a", "uid-a", "n1", "not heard of", seen),))
    assert not done.failures
    assert api.deleted == ([("c-a", {"uid": "uid-a", "grace_seconds": 0})] if removed else []), why
    assert bool(done.done) == removed


# --- what was really done --------------------------------------------------------------------------------------------


class Pods:
    """An API server that answers with an error where it is told to."""

    def __init__(self, refusals: Mapping[str, Exception]) -> None:
        self._refusals = refusals
        self.asked: list[str] = []

    def _answer(self, name: str) -> Pod:
        self.asked.append(name)
        if name in self._refusals:
            raise self._refusals[name]
        return Pod(metadata=ObjectMeta(name=name, namespace="ns"))

    async def create(self, resource: object, manifest: Mapping[str, Any], namespace: str) -> Pod:
        return self._answer(manifest["name"])

    async def delete(self, resource: object, name: str, namespace: str, **how: Any) -> Pod:
        return self._answer(name)


class Slurm:
    """A connection to a Slurm that has these nodes now, and refuses to change the ones that it is told."""

    view = None

    def __init__(self, *nodes: Node, refuses: tuple[str, ...] = (), answers: Mapping[str, bool] | None = None) -> None:
        self._nodes = {each.name: each for each in nodes}
        self._refuses = refuses
        self._answers = answers or {}

    def answers(self, nodes: Mapping[str, str]) -> Mapping[str, bool]:
        return {name: answer for name, answer in self._answers.items() if name in nodes}

    async def fresh(self, within: float = 0.0) -> Any:
        return SimpleNamespace(nodes=self._nodes)

    async def write(self, what: str, call: Callable[[Any], Any]) -> Outcome | None:
        return cast("Outcome | None", await call(self))

    async def drain(self, names: tuple[str, ...], reason: str) -> Outcome:
        return self._outcome(names)

    async def down(self, names: tuple[str, ...], reason: str) -> Outcome:
        return self._outcome(names)

    async def resume(self, names: tuple[str, ...]) -> Outcome:
        return self._outcome(names)

    async def delete(self, names: tuple[str, ...]) -> Outcome:
        return self._outcome(names)

    def _outcome(self, names: tuple[str, ...]) -> Outcome:
        done = frozenset(names).difference(self._refuses)
        return Outcome(done, {name: "busy" for name in names if name not in done})


async def act(*actions: Action, slurm: Slurm | None = None, **refusals: Exception) -> ActResult:
    api = Pods({name.replace("_", "-"): error for name, error in refusals.items()})
    subject = Subject(kinds.NODESETS, nodeset())
    connection = cast(SlurmConnection, slurm or Slurm())
    return await Actor(cast(Client, api), cast(Children, None), subject, connection, lambda name: {"name": name}).act(
        actions
    )


THREE = ("cpu-0", "cpu-1", "cpu-2")
GONERS = tuple(PodRef(name, f"uid-{name}") for name in THREE)
DRAINED = [node(name, "IDLE DRAIN", reason="seltzer: scale-in") for name in THREE]


async def test_pods_that_there_was_no_time_for_are_told_when_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PATIENCE", 0.0)
    names = tuple(f"cpu-{number}" for number in range(3000))
    done = await act(CreatePods(names))
    assert done.unfinished
    assert done.done == (CreatePods(names[: 1 + batch.IN_FLIGHT]),)
    (told,) = events(nodeset(), nodeset().status, done.done)
    assert told.message == "created cpu-[0-32]"


@pytest.mark.parametrize(
    ("why", "refusal", "fails"),
    [
        ("somebody else has made it", AlreadyExists(409, "AlreadyExists", "it is there"), False),
        ("the quota is used up", Forbidden(403, "Forbidden", "exceeded quota"), True),
    ],
)
async def test_a_pod_that_was_not_made_is_not_reported(why: str, refusal: Exception, fails: bool) -> None:
    done = await act(CreatePods(THREE), cpu_1=refusal)
    assert done.done == (CreatePods(("cpu-0", "cpu-2")),), why
    assert bool(done.failures) == fails


@pytest.mark.parametrize(
    ("why", "refusal"),
    [
        ("it was gone", NotFound(404, "NotFound", "no pod")),
        ("it is another one", Conflict(409, "Conflict", "the UID differs")),
    ],
)
async def test_a_pod_that_was_not_deleted_is_not_reported(why: str, refusal: Exception) -> None:
    done = await act(DeletePods(GONERS, ask=True), slurm=Slurm(*DRAINED), cpu_0=refusal)
    assert done.done == (DeletePods(GONERS[1:], ask=True),), why
    assert not done.failures


async def test_a_pod_that_stays_since_a_job_came_is_not_reported() -> None:
    slurm = Slurm(*DRAINED[:2], node("cpu-2", "MIXED"))
    assert (await act(DeletePods(GONERS, ask=True), slurm=slurm)).done == (DeletePods(GONERS[:2], ask=True),)


@pytest.mark.parametrize(
    ("action", "done"),
    [
        (DrainNodes(THREE, "seltzer: update"), DrainNodes(("cpu-0", "cpu-2"), "seltzer: update")),
        (ResumeNodes(THREE), ResumeNodes(("cpu-2",))),
    ],
)
async def test_nodes_that_somebody_else_has_changed_are_not_reported(action: Action, done: Action) -> None:
    slurm = Slurm(node("cpu-0"), node("cpu-1", "IDLE DRAIN", reason="disk"), DRAINED[2])
    assert (await act(action, slurm=slurm)).done == (done,)


async def test_who_answers_by_now_is_not_set_down_and_nor_is_whom_nobody_has_asked_since() -> None:
    addresses = {name: f"10.0.0.{number}" for number, name in enumerate(THREE)}
    slurm = Slurm(*(node(name, "MIXED") for name in THREE), answers={"cpu-0": False, "cpu-1": True})
    done = await act(DownNodes(THREE, "seltzer: lost", addresses), slurm=slurm)
    assert done.done == (DownNodes(("cpu-0",), "seltzer: lost"),)
    done = await act(DownNodes(THREE, "seltzer: update"), slurm=slurm)
    assert done.done == (DownNodes(THREE, "seltzer: update"),), "these are not given up for lost"


async def test_nodes_that_slurm_refused_are_not_reported() -> None:
    done = await act(DeleteRecords(THREE), slurm=Slurm(refuses=("cpu-1", "cpu-2")))
    assert done.done == (DeleteRecords(("cpu-0",)),)
    assert [failure.message for failure in done.failures] == ["cpu-1 (and 1 more): busy"]


async def test_of_what_was_not_done_nothing_is_reported_or_counted() -> None:
    def counted() -> float | None:
        return REGISTRY.get_sample_value("seltzer_actions_total", {"action": "DrainNodes", "outcome": "done"})

    drain = DrainNodes(THREE, "seltzer: update")
    await act(drain, slurm=Slurm(*map(node, THREE)))
    before = counted()
    assert before
    done = await act(drain, slurm=Slurm(*(node(name, "IDLE DRAIN", reason="disk") for name in THREE)))
    assert (done.done, done.failures) == ((), ())
    assert counted() == before
