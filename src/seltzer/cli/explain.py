"""`seltzer explain`: why a job is pending, or why a node accepts no jobs."""

from __future__ import annotations

import re
import textwrap
from typing import Annotated

from cyclopts import Parameter

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import drain, gather, kube, show
from seltzer.cli.kube import Place
from seltzer.cli.options import Context, Namespace, Output, OutputFlag
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.slurm import hostlist
from seltzer.view.explain import job, node
from seltzer.view.facts import Facts

_JOB = re.compile(r"[0-9]+([_+].*)?")


def explain(
    what: Annotated[str, Parameter(help="A job, such as 42 or 42_7, or a node, such as cpu-0.")],
    /,
    *,
    cluster: Annotated[
        str | None, Parameter(help="The cluster; needed for a job where the namespace has several.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    output: OutputFlag = Output.text,
) -> None:
    """Tell why a job waits or where it runs, or why a node takes no jobs and what would bring it back."""
    place = kube.locate(namespace, context)
    is_job = _JOB.fullmatch(what) is not None
    if not is_job and hostlist.expand(what) != [what]:
        raise SeltzerError(f"{what!r} isn't one job or node; name one at a time, or see 'seltzer nodes'")
    known = kube.talk(place, lambda client: _look(client, place, what, cluster, is_job=is_job))
    explained = job.explain(known, what) if is_job else node.explain(known, what)
    if output is not Output.text:
        show.data({"cluster": known.cluster.metadata.name, "unknown": list(known.gaps), **explained.data()}, output)
        return
    # Not with the console, which breaks names of nodes at their hyphens.
    print(
        textwrap.fill(
            " ".join(explained.sentences), show.console().width, break_long_words=False, break_on_hyphens=False
        )
    )


async def _look(client: Client, place: Place, what: str, name: str | None, *, is_job: bool) -> Facts:
    if name is not None:
        return await gather.facts(client, place, name, ended=is_job, happened=False)
    if is_job:
        clusters = await kube.every(client, kinds.CLUSTERS, place.namespace)
        return await gather.facts(client, place, the_one(clusters, place.namespace), ended=True, happened=False)
    return await _of_node(client, place, what)


def the_one(clusters: list[SlurmCluster], namespace: str) -> str:
    """The only cluster of the namespace. Raises SeltzerError if there are several, or none."""
    names = [each.metadata.name for each in clusters]
    if not names:
        raise SeltzerError(
            f"there is no SlurmCluster in namespace {namespace!r}; say where it is with -n, or make one with "
            "'seltzer create NAME'"
        )
    if len(names) > 1:
        raise SeltzerError(
            f"there are {len(names)} clusters in namespace {namespace!r}, each with jobs of its own; "
            f"say with --cluster which one: {', '.join(names)}"
        )
    return names[0]


async def _of_node(client: Client, place: Place, what: str) -> Facts:
    """The facts of a node's cluster, found by its pod. A node without a pod has to be of the only cluster here."""
    nodesets = await kube.every(client, kinds.NODESETS, place.namespace)
    pods = await drain.slurmds(client, place)
    sets = [each.metadata.name for each in nodesets]
    try:
        cluster, home = drain.cluster_of([what], pods, place.namespace, sets)
    except SeltzerError:
        if what in sets:
            raise SeltzerError(f"{what} is a NodeSet; name one of its nodes, or see 'seltzer nodes'") from None
        clusters = await kube.every(client, kinds.CLUSTERS, place.namespace)
        if len(clusters) != 1:
            raise
        known = await gather.facts(client, place, clusters[0].metadata.name, happened=False)
        if known.slurm is not None and what not in known.names:
            raise
        return known
    return await gather.facts(client, Place(place.config, home, place.flags), cluster, happened=False)
