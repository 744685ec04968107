"""`seltzer drain` and `seltzer resume`: take nodes out of service, and bring them back."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Sequence
from typing import Annotated

from cyclopts import Parameter

from seltzer.api.core import Pod
from seltzer.build.names import CLUSTER, CLUSTER_NAMESPACE, COMPONENT
from seltzer.cli import controller, kube, kubectl
from seltzer.cli.kube import Place
from seltzer.cli.options import Context, Namespace
from seltzer.controllers import resources
from seltzer.errors import SeltzerError
from seltzer.kube.client import Client
from seltzer.slurm import hostlist

OPERATORS = "seltzer:"
"""How the reasons begin of drains that the operator made, and undoes; a person's it never undoes."""

_NOTHING_TO_RESUME = "Invalid node state transition"

Nodes = Annotated[str, Parameter(help="The node, or a hostlist such as cpu-[0-3].")]


def drain(
    node: Nodes,
    /,
    *,
    reason: Annotated[str | None, Parameter(help="Why, for all who see it in Slurm.")] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Let a node take no new jobs; those that run on it go on. Seltzer never undoes this by itself."""
    words = checked_reason(reason)
    folded, cluster = _update(node, ("State=DRAIN", f"Reason={words}"), namespace, context)
    print(f"{folded} of {cluster} takes no new jobs ({words}); 'seltzer resume {folded}' undoes it")


def resume(node: Nodes, /, *, namespace: Namespace = None, context: Context = None) -> None:
    """Let a node that was drained or down take jobs again."""
    try:
        folded, cluster = _update(node, ("State=RESUME",), namespace, context)
    except SeltzerError as error:
        if _NOTHING_TO_RESUME in str(error):
            raise SeltzerError(f"{node} is neither drained nor down, so there is nothing to resume") from None
        raise
    print(f"{folded} of {cluster} takes jobs again")


def checked_reason(reason: str | None) -> str:
    """One line that can't be taken for the operator's."""
    words = " ".join((reason if reason is not None else f"seltzer drain by {_user()}").split())
    if not words:
        raise SeltzerError("Slurm wants a reason for a drain; leave --reason out, or put some words into it")
    if words.lower().startswith(OPERATORS):
        raise SeltzerError(f"a reason that begins with {OPERATORS!r} is the operator's, who would undo it; use another")
    return words


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


def _update(node: str, changes: Sequence[str], namespace: str | None, context: str | None) -> tuple[str, str]:
    wanted = hostlist.expand(node)
    place = kube.locate(namespace, context)

    async def find(client: Client) -> tuple[str, str, str]:
        cluster, home = cluster_of(wanted, await _slurmds(client, place), place.namespace)
        return cluster, home, await controller.target(client, home, cluster)

    cluster, home, pod = kube.talk(place, find)
    folded = hostlist.fold(wanted)
    command = ("scontrol", "update", f"NodeName={folded}", *changes)
    kubectl.output(Place(place.config, home, place.flags), pod, "slurmctld", command)
    return folded, cluster


async def _slurmds(client: Client, place: Place) -> list[Pod]:
    await kube.every(client, resources.NODESETS, place.namespace)  # tells if there is no Seltzer here
    params = {"labelSelector": f"{CLUSTER},{COMPONENT}=slurmd"}
    return (await client.list_all(resources.PODS, place.namespace, params=params)).items


def cluster_of(wanted: Sequence[str], pods: Iterable[Pod], namespace: str) -> tuple[str, str]:
    """The one cluster that all these nodes belong to, and its namespace."""
    labels = {pod.metadata.name: pod.metadata.labels for pod in pods}
    unknown = [name for name in wanted if name not in labels]
    if unknown:
        raise SeltzerError(
            f"there is no node {unknown[0]!r} in namespace {namespace!r}; "
            f"{kube.meant(unknown[0], sorted(labels)) if labels else 'no NodeSet has any there'}"
        )
    homes = {(labels[name][CLUSTER], labels[name].get(CLUSTER_NAMESPACE, namespace)) for name in wanted}
    if len(homes) != 1:
        raise SeltzerError(f"these nodes belong to {len(homes)} clusters; name those of one at a time")
    return homes.pop()
