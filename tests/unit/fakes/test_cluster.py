"""The fake rest of a cluster: pods of Slurm's parts do what the real ones do to Kubernetes and to Slurm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.fakes.apiserver.server import FakeApiServer
from tests.fakes.apiserver.state import Id, Object
from tests.fakes.apiserver.things import DEPLOYMENTS, MAPS, PODS, SLICES, until
from tests.fakes.kubelet.cluster import FakeCluster
from tests.fakes.slurmrestd import KEY, FakeSlurmrestd

from seltzer.kube.client import Client
from seltzer.kube.errors import NotFound
from seltzer.kube.lease import LEASES
from seltzer.kube.resource import Resource
from seltzer.slurm import jobs, metrics
from seltzer.slurm.client import SlurmClient
from seltzer.slurm.errors import Unavailable
from seltzer.slurm.http import Http
from seltzer.slurm.token import TokenSource, sign


class Rig:
    def __init__(self, server: FakeApiServer, slurm: FakeSlurmrestd, cluster: FakeCluster, client: Client) -> None:
        self.server = server
        self.slurm = slurm
        self.cluster = cluster
        self.client = client

    async def apply(self, resource: Resource[Any], name: str, **parts: Any) -> None:
        metadata = {"name": name, "namespace": "ns", **parts.pop("metadata", {})}
        await self.client.apply(resource, {"metadata": metadata, **parts})

    async def pod(self, name: str, component: str, args: list[str] | None = None, **spec: Any) -> None:
        labels = {"app.kubernetes.io/component": component, "seltzer.dev/cluster": "demo"}
        container = {"name": component, "image": "some", "args": args or []}
        await self.apply(PODS, name, metadata={"labels": labels}, spec={"containers": [container], **spec})

    def found(self, name: str) -> Object:
        return self.server.state.get(Id("", "pods", "ns", name))

    async def phase(self, name: str, phase: str) -> Object:
        async def is_there() -> Object | None:
            pod = self.found(name)
            return pod if pod["status"]["phase"] == phase else None

        return await until(f"{name} is {phase}", is_there)

    async def gone(self, name: str) -> None:
        async def missing() -> bool:
            return self.server.state.find(Id("", "pods", "ns", name)) is None

        await until(f"{name} is gone", missing)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with (
        FakeApiServer() as server,
        FakeSlurmrestd() as slurm,
        FakeCluster(server.state, slurm) as cluster,
        Client(server.config()) as client,
    ):
        yield Rig(server, slurm, cluster, client)


def slurmd(conf: str) -> list[str]:
    return ["-Z", "-N", "$(POD_NAME)", "--conf-server", "demo-slurmctld.ns.svc:6817", "--conf", conf]


async def test_a_slurmd_joins_and_its_record_outlives_it(rig: Rig) -> None:
    await rig.pod("cpu-0", "slurmd", slurmd("CPUs=4 RealMemory=1000 Weight=3 Feature=cpu,set_cpu"))
    pod = await rig.phase("cpu-0", "Running")
    node = rig.slurm.nodes["cpu-0"]
    assert node["state"] == ["IDLE", "DYNAMIC_NORM"]
    assert (node["cpus"], node["real_memory"], node["weight"]) == (4, 1000, 3)
    assert (node["features"], node["address"]) == (["cpu", "set_cpu"], pod["status"]["podIP"])
    await rig.client.delete(PODS, "cpu-0", "ns")
    await rig.gone("cpu-0")
    assert rig.slurm.nodes["cpu-0"]["state"] == ["IDLE", "DYNAMIC_NORM"], "slurmctld hasn't noticed"
    rig.slurm.lost("cpu-0")
    assert {"DOWN", "NOT_RESPONDING"} <= set(rig.slurm.nodes["cpu-0"]["state"])


async def test_a_record_that_is_there_already_keeps_its_settings_and_its_drain(rig: Rig) -> None:
    rig.slurm.register("cpu-0", {"CPUs": "2", "Feature": "old"}, "10.0.0.1")
    client = SlurmClient(Http(rig.slurm.url), TokenSource(lambda: KEY))
    await client.drain(["cpu-0"], "mine")
    rig.slurm.lost("cpu-0")
    rig.slurm.register("cpu-0", {"CPUs": "2", "Feature": "new"}, "10.0.0.2")
    node = rig.slurm.nodes["cpu-0"]
    assert (node["features"], node["reason"], node["address"]) == (["old"], "mine", "10.0.0.2")
    assert set(node["state"]) == {"IDLE", "DRAIN", "DYNAMIC_NORM"}
    rig.slurm.register("cpu-0", {"CPUs": "1", "Feature": "new"}, "10.0.0.2")
    assert "INVALID_REG" in node["state"] and "Low CPUs" in node["reason"]
    await client.delete(["cpu-0"])
    rig.slurm.register("cpu-0", {"CPUs": "1", "Feature": "new"}, "10.0.0.2")
    assert rig.slurm.nodes["cpu-0"]["features"] == ["new"]


async def test_jobs_come_and_go(rig: Rig) -> None:
    rig.slurm.add("cpu-[0-1]")
    rig.slurm.occupy("cpu-0", cpus=2)
    rig.slurm.occupy("cpu-1")
    assert [rig.slurm.nodes[name]["state"][0] for name in ("cpu-0", "cpu-1")] == ["ALLOCATED", "MIXED"]
    http = Http(rig.slurm.url)
    assert (await metrics.job_counts(http)).running == 2
    answer = await http.exchange("GET", "/jobs/cpu-%5B0-1%5D", headers={"X-SLURM-USER-TOKEN": sign(KEY, "slurm")})
    assert [job.nodes for job in jobs.parse(answer.body.decode())] == [("cpu-0",), ("cpu-1",)]
    assert (await http.exchange("GET", "/jobs/cpu-0")).status == 401
    rig.slurm.release("cpu-[0-1]")
    assert [rig.slurm.nodes[name]["state"][0] for name in ("cpu-0", "cpu-1")] == ["IDLE", "IDLE"]
    assert (await metrics.job_counts(http)).running == 0


@pytest.mark.parametrize(("conf", "phase"), [("ClusterName=x\n", "Succeeded"), ("BogusKey=1\n", "Failed")])
async def test_a_trial_ends_as_its_configuration_deserves(rig: Rig, conf: str, phase: str) -> None:
    volume = {"name": "config", "projected": {"sources": [{"configMap": {"name": "demo-trial-1"}}]}}
    await rig.pod("demo-trial-1", "trial", volumes=[volume], restartPolicy="Never")
    await rig.apply(MAPS, "demo-trial-1", data={"slurm.conf": conf})
    pod = await rig.phase("demo-trial-1", phase)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"] == 0) == (phase == "Succeeded")
    assert ended.get("message", "").startswith("fatal: ") == (phase == "Failed")
    await rig.client.delete(PODS, "demo-trial-1", "ns")
    with pytest.raises(NotFound):
        await rig.client.get(PODS, "demo-trial-1", "ns")


def controller(**labels: str) -> dict[str, Any]:
    own = {"app.kubernetes.io/component": "slurmctld", "seltzer.dev/cluster": "demo"}
    container = {"name": "slurmctld", "image": "some"}
    return {
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": own},
        "template": {"metadata": {"labels": own | labels}, "spec": {"containers": [container]}},
    }


async def test_the_guard_takes_the_lease_and_tells_what_slurmctld_runs_with(rig: Rig) -> None:
    await rig.apply(DEPLOYMENTS, "demo-slurmctld", spec=controller())
    await rig.apply(LEASES, "demo-slurmctld")
    await rig.apply(SLICES, "demo-slurmctld", addressType="IPv4", endpoints=[])
    await rig.apply(MAPS, "demo-config", data={"seltzer.digest": "one"})

    def told(digest: str, epoch: str) -> Any:
        async def ask() -> Object | None:
            lease = rig.server.state.get(Id("coordination.k8s.io", "leases", "ns", "demo-slurmctld"))
            said = lease["metadata"].get("annotations", {})
            found = said.get("seltzer.dev/config"), said.get("seltzer.dev/epoch"), said.get("seltzer.dev/phase")
            return lease if found == (digest, epoch, "running") else None

        return ask

    first = (await until("it runs", told("one", "1")))["spec"]["holderIdentity"]
    assert rig.server.state.get(Id("discovery.k8s.io", "endpointslices", "ns", "demo-slurmctld"))["endpoints"] == [
        {"addresses": [rig.found(first)["status"]["podIP"]], "conditions": {"ready": True}}
    ]
    await rig.apply(MAPS, "demo-config", data={"seltzer.digest": "two"})
    await until("it has taken up the change", told("two", "1"))
    await rig.apply(DEPLOYMENTS, "demo-slurmctld", spec=controller(new="yes"))
    second = (await until("another one runs", told("two", "2")))["spec"]["holderIdentity"]
    assert second != first and rig.server.state.find(Id("", "pods", "ns", first)) is None


async def test_pods_are_held_where_a_test_wants_them(rig: Rig) -> None:
    rig.cluster.unschedulable.add("a")
    rig.cluster.stuck_starting.add("b")
    rig.cluster.stuck_ending.add("c")
    for name in "abc":
        await rig.pod(name, "slurmd")
    await rig.phase("c", "Running")
    assert "nodeName" not in rig.found("a")["spec"] and rig.found("b")["status"]["phase"] == "Pending"
    await rig.client.delete(PODS, "c", "ns")
    assert rig.found("c")["metadata"]["deletionGracePeriodSeconds"] == 30
    for held in (rig.cluster.unschedulable, rig.cluster.stuck_starting, rig.cluster.stuck_ending):
        held.clear()
    rig.cluster.look()
    await rig.phase("a", "Running")
    await rig.phase("b", "Running")
    await rig.gone("c")


async def test_a_write_to_slurm_is_listed_and_can_be_the_last(rig: Rig) -> None:
    rig.slurm.add("cpu-[0-1]")
    client = SlurmClient(Http(rig.slurm.url), TokenSource(lambda: KEY), deadline=1.0)
    rig.slurm.writes.crash_after(2, lambda _: None, lost_answer=True)
    await client.drain(["cpu-0"], "first")
    with pytest.raises(Unavailable):
        await client.drain(["cpu-1"], "second")
    assert rig.slurm.nodes["cpu-1"]["reason"] == "second", "it was done"
    with pytest.raises(Unavailable):
        await client.delete(["cpu-0"])
    assert "cpu-0" in rig.slurm.nodes
    rig.slurm.writes.restarted()
    await client.delete(["cpu-0"])
    assert [(write.server, write.method) for write in rig.slurm.writes.all] == [
        ("slurm", "POST"),
        ("slurm", "POST"),
        ("slurm", "DELETE"),
    ]
