"""A changed NodeSet replaces its pods: no more at once than may, after their jobs, and never by what doesn't start."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

REPLICAS = 3
TAKES_JOBS = {"IDLE", "MIXED", "ALLOCATED"}
DOES_NOT = {"DRAIN", "DOWN", "NOT_RESPONDING"}


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "updates", "demo")
    cluster.create(cpu={"replicas": REPLICAS, "update": {"maxUnavailable": 1}})
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


class Watch:
    """Asks slurmctld again and again how many nodes take jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self.fewest = REPLICAS
        self.looks = 0
        self._cluster = cluster
        self._key = cluster.key()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                nodes = self._cluster.rest("nodes/", key=self._key)["nodes"]
            except (AssertionError, ValueError, OSError, HTTPException):
                continue  # slurmrestd didn't answer, or somebody else did in its place: that is no look
            self.fewest = min(self.fewest, sum(takes_jobs(set(node["state"])) for node in nodes))
            self.looks += 1

    @contextmanager
    def looking(self) -> Iterator[Watch]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


def takes_jobs(states: set[str]) -> bool:
    return bool(states & TAKES_JOBS) and not states & DOES_NOT


def update(cluster: Cluster, **spec: Any) -> None:
    cluster.patch("nodeset", "cpu", {"spec": spec})


def uids(cluster: Cluster) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in cluster.pods("cpu").items()}


def updated(cluster: Cluster) -> dict[str, str]:
    """The condition Updated, once it is about the NodeSet as it is."""
    generation = cluster.nodeset("cpu")["metadata"]["generation"]
    return until(
        "Updated is up to date",
        lambda: found if (found := cluster.condition("nodeset/cpu", "Updated"))["observedGeneration"] == generation
        else None,
    )  # fmt: skip


def test_a_rolling_update_waits_for_the_job_and_takes_one_node_at_a_time(cluster: Cluster) -> None:
    job = cluster.hold("--nodelist=cpu-1")
    before = uids(cluster)
    with Watch(cluster).looking() as watch:
        update(cluster, features=["fast"])
        until("the idle nodes are replaced", lambda: replaced(cluster, before) == {"cpu-0", "cpu-2"})
        until("the busy one is drained", lambda: "DRAIN" in cluster.slurm_nodes()["cpu-1"])
        until("it says whom it waits for", lambda: "waiting for the jobs on cpu-1" in updated(cluster)["message"])
        assert uids(cluster)["cpu-1"] == before["cpu-1"]
        cluster.release(job)
        cluster.wait("nodeset/cpu", "Updated")
        cluster.wait("nodeset/cpu", "Ready")
    assert watch.looks > 20
    assert watch.fewest == REPLICAS - 1
    assert replaced(cluster, before) == set(before)
    record = cluster.job(job)
    assert (record["JobState"], record["Restarts"], record["NodeList"]) == ("COMPLETED", "0", "cpu-1")
    assert len(cluster.login("srun", "--nodes=3", "--constraint=fast", "hostname").split()) == REPLICAS
    assert "Draining" in cluster.told("NodeSet", "cpu")


def replaced(cluster: Cluster, before: dict[str, str]) -> set[str]:
    """The names of those pods that are new and ready."""
    return {
        name
        for name, pod in cluster.pods("cpu").items()
        if pod["metadata"]["uid"] != before[name]
        and any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
    }


def test_a_paused_update_changes_nothing_until_it_goes_on(cluster: Cluster) -> None:
    before = uids(cluster)
    update(cluster, features=["faster"], update={"paused": True})
    found = updated(cluster)
    assert (found["status"], found["reason"]) == ("False", "Paused")
    cluster.wait("nodeset/cpu", "Ready")
    assert uids(cluster) == before
    assert not any("DRAIN" in state for state in cluster.slurm_nodes().values())
    with Watch(cluster).looking() as watch:
        update(cluster, update={"paused": False, "maxUnavailable": "67%"})
        cluster.wait("nodeset/cpu", "Updated")
        cluster.wait("nodeset/cpu", "Ready")
    assert watch.fewest >= REPLICAS - 2
    assert not set(uids(cluster).values()) & set(before.values())
    assert "faster" in cluster.slurm_node("cpu-0")["ActiveFeatures"]
    update(cluster, update={"maxUnavailable": 1})


def stuck(cluster: Cluster) -> dict[str, str] | None:
    """The condition Updated, once it says that the update is stuck."""
    found = updated(cluster)
    return found if found["reason"] == "Stuck" else None


BROKEN: dict[str, dict[str, Any]] = {
    # Nobody listens there, so that it fails at once.
    "an image that doesn't exist": {"image": "127.0.0.1:1/slurmd:nonsense"},
    "a slurmd that doesn't start": {"args": ["--nonsense"]},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_an_update_stops_at_its_first_pod_with(cluster: Cluster, broken: str) -> None:
    """And goes on when it is corrected."""
    job = cluster.hold("--nodelist=cpu-0")
    before = uids(cluster)
    with Watch(cluster).looking() as watch:
        template = {"spec": {"containers": [{"name": "slurmd", **BROKEN[broken]}]}}
        update(cluster, podTemplate=template)
        found = until("it says so", lambda: stuck(cluster))
        assert found["status"] == "False"
        new = [name for name, uid in uids(cluster).items() if uid != before[name]]
        assert len(new) == 1 and new[0] in found["message"], found
        assert cluster.condition("nodeset/cpu", "Ready")["status"] == "False"
        assert new[0] in cluster.told("NodeSet", "cpu")["Stuck"]
        # The others work, and stay.
        assert len(cluster.login("srun", "--nodes=2", "hostname").split()) == 2
        assert len([name for name, uid in uids(cluster).items() if uid == before[name]]) == 2
        assert cluster.jobs()[job] == "RUNNING"
        update(cluster, podTemplate=None)
        cluster.wait("nodeset/cpu", "Updated")
        cluster.wait("nodeset/cpu", "Ready")
    assert watch.fewest == REPLICAS - 1
    kept = [name for name, uid in uids(cluster).items() if uid == before[name]]
    assert len(kept) == 2, "those that were never changed needn't be replaced"
    cluster.release(job)
    assert cluster.job(job)["Restarts"] == "0"
