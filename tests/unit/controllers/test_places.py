"""Nodes follow machines and their labels, on the fakes: the operator as it is, from label to record."""

from __future__ import annotations

from typing import Any

from tests.fakes.operator_rig import Rig, rigged

SPEC: dict[str, Any] = {
    "placement": "perNode",
    "featuresFromLabels": ["x.com/model"],
    "podTemplate": {"spec": {"nodeSelector": {"pool": "hpc"}}},
}


def topologies(rig: Rig) -> dict[str, str]:
    return {name: node["topology"] for name, node in rig.slurm.nodes.items()}


def nodes(rig: Rig) -> tuple[set[str], set[str]]:
    return set(rig.pods()), set(rig.slurm.nodes)


async def begin(rig: Rig) -> None:
    """A node on n1."""
    rig.label("n1", pool="hpc", zone="a", **{"x.com/model": "h100"})
    await rig.cluster(topology={"labels": ["zone"]})
    await rig.nodeset(**SPEC)
    await rig.until("n1 has a node", lambda: rig.ready("nodesets", "cpu"))


async def test_nodes_come_and_go_with_the_labels_of_machines() -> None:
    async with rigged() as rig:
        await begin(rig)
        assert nodes(rig) == ({"cpu--n1"}, {"cpu--n1"})
        rig.label("n2", pool="hpc")
        both = {"cpu--n1", "cpu--n2"}
        await rig.until("n2 has one, too", lambda: nodes(rig) == (both, both) and rig.ready("nodesets", "cpu"))
        assert {pod["spec"]["nodeName"] for pod in rig.pods().values()} == {"n1", "n2"}
        rig.label("n1", pool=None)
        await rig.until("n1 has none", lambda: nodes(rig) == ({"cpu--n2"}, {"cpu--n2"}))
        rig.remove_machine("n2")
        await rig.until("there is none", lambda: nodes(rig) == (set(), set()))


async def test_records_say_what_labels_say() -> None:
    async with rigged() as rig:
        await begin(rig)
        await rig.until("it has a place", lambda: topologies(rig) == {"cpu--n1": "default:/:a"})
        await rig.until("it has a feature", lambda: "h100" in rig.slurm.nodes["cpu--n1"]["active_features"])
        rig.label("n1", zone="b", **{"x.com/model": "b200"})
        await rig.until("it has moved", lambda: topologies(rig) == {"cpu--n1": "default:/:b"})
        record = rig.slurm.nodes["cpu--n1"]
        await rig.until("it has another", lambda: record["features"] == ["cpu", "set_cpu", "b200"])
        await rig.cluster()
        await rig.until("it has no place", lambda: topologies(rig) == {"cpu--n1": ""})


async def test_a_cordoned_machine_gets_its_node() -> None:
    """As with a DaemonSet: its pod may have been replaced for another reason."""
    async with rigged() as rig:
        await begin(rig)
        before = rig.pods()["cpu--n1"]["metadata"]["uid"]
        rig.cordon("cpu--n1")
        await rig.until("it is drained", lambda: "DRAIN" in rig.slurm.nodes["cpu--n1"]["state"])
        assert rig.pods()["cpu--n1"]["metadata"]["uid"] == before
