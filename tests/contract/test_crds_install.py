"""Our own client makes our kinds known, and writes and reads them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.harness import Sandbox

from seltzer.api import crd
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.kube.client import Client
from seltzer.kube.config import from_kubeconfig
from seltzer.kube.crds import CRDS, install
from seltzer.kube.errors import NotFound
from seltzer.kube.resource import Resource

CLUSTERS = Resource("seltzer.dev", "v1alpha1", "slurmclusters", "SlurmCluster", SlurmCluster)
NODESETS = Resource("seltzer.dev", "v1alpha1", "nodesets", "NodeSet", NodeSet)


async def generations(client: Client) -> list[int]:
    return [(await client.get(CRDS, each["metadata"]["name"])).metadata.generation for each in crd.manifests()]


async def test_our_client_installs_the_crds_and_uses_them(unattended: Sandbox) -> None:
    config = from_kubeconfig([Path(unattended.kubeconfig)])
    async with Client(config) as client:
        try:
            await install(client, crd.manifests())
            first = await generations(client)
            await install(client, crd.manifests())
            assert await generations(client) == first, "the second time changes nothing"
            metadata = {"name": "mine", "namespace": "default"}
            cluster = await client.apply(CLUSTERS, {"metadata": metadata, "spec": {}})
            assert cluster.spec == SlurmCluster(metadata=cluster.metadata).spec, "the server's defaults are ours"
            nodeset = await client.apply(NODESETS, {"metadata": metadata, "spec": {"clusterRef": {"name": "mine"}}})
            assert nodeset.spec.cluster_ref.name == "mine"
            status = {"metadata": metadata, "status": {"observedGeneration": 1}}
            assert (await client.apply(CLUSTERS, status, subresource="status")).metadata.generation == 1
            assert [each.metadata.name for each in (await client.list_all(CLUSTERS, "default")).items] == ["mine"]
        finally:
            with suppress(NotFound):
                await client.delete(NODESETS, "mine", "default")
            with suppress(NotFound):
                await client.delete(CLUSTERS, "mine", "default")
