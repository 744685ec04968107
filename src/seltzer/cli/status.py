"""`seltzer status`: a cluster at a glance."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import gather, kube, show
from seltzer.cli.kube import Place
from seltzer.cli.options import Context, Namespace, Output, OutputFlag
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.view import colours, events, tree
from seltzer.view.text import suggestion

NOT_WELL = 3


def status(
    name: str | None = None,
    /,
    *,
    everywhere: Annotated[
        bool, Parameter(name=["--all-namespaces", "-A"], negative="", help="The clusters of all namespaces.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    output: OutputFlag = Output.text,
) -> None:
    """Show a cluster, or all of them: its parts, its nodes by state, its jobs, what happened, what is wrong.

    Exits with 0 if all is well, with 3 if there are problems, with 1 if there is no such cluster.

    Parameters
    ----------
    name
        The cluster; without it, all of the namespace.
    """
    place = kube.locate(namespace, context)
    pictures, orphans = kube.talk(place, lambda client: _look(client, place, name, everywhere))
    now = datetime.now(UTC)
    if output is Output.text:
        _print(pictures, orphans, "all namespaces" if everywhere else f"namespace {place.namespace!r}", now)
    else:
        lost = [f"{each.metadata.namespace}/{each.metadata.name}" for each in orphans]
        clusters = [tree.as_data(each, now) for each in pictures]
        show.data({"clusters": clusters, "nodeSetsWithoutCluster": lost}, output)
    if orphans or any(tree.problems(each) for each in pictures):
        sys.exit(NOT_WELL)


async def _look(
    client: Client, place: Place, name: str | None, everywhere: bool
) -> tuple[list[tree.Picture], list[NodeSet]]:
    """The wanted clusters; if all are wanted, also the NodeSets whose cluster doesn't exist."""
    if name is not None and not everywhere:
        return [await _picture(client, await kube.cluster(client, place, name))], []
    where = "" if everywhere else place.namespace
    clusters, nodesets = await asyncio.gather(
        kube.every(client, kinds.CLUSTERS, where), kube.every(client, kinds.NODESETS, where)
    )
    if name is not None:
        known, nodesets = [each.metadata.name for each in clusters], []
        clusters = [each for each in clusters if each.metadata.name == name]
        if not clusters:
            raise SeltzerError(f"there is no SlurmCluster {name!r} in any namespace; {suggestion(name, known)}")
    pictures = await asyncio.gather(*(_picture(client, each) for each in clusters))
    return list(pictures), orphans(nodesets, clusters, where)


async def _picture(client: Client, cluster: SlurmCluster) -> tree.Picture:
    nodesets, happened = await asyncio.gather(kube.nodesets(client, cluster), gather.events(client, cluster))
    return tree.Picture(cluster, nodesets, events.of_cluster(happened, cluster, nodesets))


def orphans(nodesets: Iterable[NodeSet], clusters: Sequence[SlurmCluster], namespace: str) -> list[NodeSet]:
    """NodeSets whose cluster should be among these and isn't. Clusters of other namespaces are unknown."""

    def is_orphan(nodeset: NodeSet) -> bool:
        home = nodeset.spec.cluster_ref.namespace or nodeset.metadata.namespace
        return namespace in ("", home) and not any(kube.belongs(nodeset, cluster) for cluster in clusters)

    return [each for each in nodesets if is_orphan(each)]


def _print(pictures: Sequence[tree.Picture], lost: Sequence[NodeSet], where: str, now: datetime) -> None:
    console = show.console()
    for picture in pictures:
        console.print(show.tree(tree.tree(picture, now)))
    for nodeset in lost:
        ref = nodeset.spec.cluster_ref
        console.print(
            f"NodeSet {nodeset.metadata.name} belongs to SlurmCluster {ref.name!r}, which isn't there; "
            f"make it with 'seltzer create {ref.name}', or delete the NodeSet",
            style=colours.WARNING,
        )
    if not pictures and not lost:
        print(f"there is no SlurmCluster in {where}; make one with 'seltzer create NAME'", file=sys.stderr)
