"""`seltzer users`: who may use a cluster, who no longer may, and which entries of a source are refused."""

from __future__ import annotations

import sys

from seltzer.api.core import ConfigMap
from seltzer.api.labels import CLUSTER, COMPONENT
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build.users import COMPONENT as USERS
from seltzer.cli import kube, show
from seltzer.cli.options import Context, Namespace, Output, OutputFlag
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.view import users as view
from seltzer.view.tree import condition


def users(
    name: str,
    /,
    *,
    namespace: Namespace = None,
    context: Context = None,
    output: OutputFlag = Output.text,
) -> None:
    """List the users of a cluster: their IDs, groups, source and number of SSH keys.

    Includes removed users, whose IDs stay reserved, and entries of sources that are refused, with the reason.

    Parameters
    ----------
    name
        The cluster.
    """
    place = kube.locate(namespace, context)

    async def ask(client: Client) -> tuple[SlurmCluster, list[ConfigMap]]:
        cluster = await kube.cluster(client, place, name)
        params = {"labelSelector": f"{CLUSTER}={name},{COMPONENT}={USERS}"}
        found = await client.list_all(kinds.CONFIG_MAPS, place.namespace, params=params)
        return cluster, list(found.items)

    cluster, config_maps = kube.talk(place, ask)
    found = view.rows(cluster, config_maps)
    if output is not Output.text:
        show.data(view.as_data(found), output)
        return
    console = show.console()
    for line in show.aligned([[*map(show.text, row)] for row in view.lines(found)]):
        console.print(line)
    ready = condition(cluster, view.READY)
    if ready is not None and ready.status != "True":
        print(f"note: {ready.message}", file=sys.stderr)
