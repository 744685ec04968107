"""`seltzer scale`: change the number of nodes of a NodeSet."""

from __future__ import annotations

from seltzer.api.nodeset import NodeSet
from seltzer.cli import kube
from seltzer.cli.options import Context, Namespace, Timeout, Wait
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.progress import Progress
from seltzer.view.tree import condition

MOST = 65536


def scale(
    nodeset: str,
    replicas: int,
    /,
    *,
    wait: Wait = False,
    timeout: Timeout = 600.0,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Change the number of nodes in a NodeSet. Nodes are drained before they are removed: no job is lost.

    Parameters
    ----------
    nodeset
        The NodeSet.
    replicas
        How many nodes it should have.
    """
    if not 0 <= replicas <= MOST:
        raise SeltzerError(f"a NodeSet has between 0 and {MOST} nodes, not {replicas}")
    place = kube.locate(namespace, context)

    async def change(client: Client) -> None:
        before = await kube.one(client, kinds.NODESETS, place, nodeset)
        if before.per_node:
            raise SeltzerError(
                f"NodeSet {nodeset} has placement perNode, one node on each Kubernetes node that matches: label "
                "Kubernetes nodes, or change its podTemplate.spec.nodeSelector"
            )
        patch = {"spec": {"replicas": replicas}}
        path = kinds.NODESETS.path(place.namespace, nodeset, "scale")
        await client.call("PATCH", path, content=patch, kind="application/merge-patch+json")
        print(f"{nodeset}: {before.size} -> {replicas}", flush=True)
        if wait:
            await _wait(client)

    async def _wait(client: Client) -> None:
        async def look() -> str:
            return lacks(await client.get(kinds.NODESETS, nodeset, place.namespace))

        with Progress() as progress, progress.step(f"wait for {replicas} nodes of {nodeset}"):
            await kube.until(look, timeout, progress.note, f"{nodeset} isn't there yet")

    kube.talk(place, change)


def lacks(nodeset: NodeSet) -> str:
    """What a NodeSet still lacks; empty when it is complete."""
    status, wanted = nodeset.status, nodeset.size
    if status.observed_generation < nodeset.metadata.generation:
        return "the operator hasn't seen the change yet; see 'seltzer version' if it stays so"
    # A node is gone only when Slurm has no record of it either.
    there = max(status.replicas, status.nodes.total)
    if there == status.ready_replicas == wanted:
        return ""
    ready = condition(nodeset, "Ready")
    why = f": {ready.message}" if ready and ready.status != "True" and ready.message else ""
    if there > wanted:
        return f"{there - wanted} to go, {status.nodes.draining} draining{why}"
    return f"{status.ready_replicas} of {wanted} ready{why}"
