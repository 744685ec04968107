"""Who isn't allowed into a cluster gets nothing of it, on the fakes."""

from __future__ import annotations

from typing import Any

from tests.fakes.apiserver.things import NODESETS
from tests.fakes.operator_rig import Rig, rigged

from seltzer.kube import kinds

LABELS = {"app.kubernetes.io/managed-by": "seltzer", "seltzer.dev/nodeset": "cpu"}


async def test_whoever_makes_a_nodeset_and_a_pod_elsewhere_gets_no_key_of_the_cluster() -> None:
    """The key makes its owner root in Slurm. A pod by hand is enough for the NodeSet to have one that stays."""
    async with rigged() as rig:
        await rig.cluster()
        await rig.until("the cluster is there", lambda: rig.ready("slurmclusters", "demo"))
        await rig.apply_in("elsewhere", NODESETS, "cpu", {"clusterRef": {"name": "demo", "namespace": "ns"}})
        metadata: dict[str, Any] = {"name": "cpu-0", "namespace": "elsewhere", "labels": LABELS}
        await rig.create(kinds.PODS, {"metadata": metadata, "spec": {"containers": [{"name": "x", "image": "x"}]}})
        await rig.until("its pod is protected, so it was looked at", lambda: "cpu-busy" in theirs(rig, "poddisruption"))
        assert "cpu-0" in theirs(rig, "pods")
        assert not theirs(rig, "secrets")


def theirs(rig: Rig, plural: str) -> list[str]:
    return [id_.name for id_ in rig.everything() if id_.namespace == "elsewhere" and id_.plural.startswith(plural)]
