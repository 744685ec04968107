"""`seltzer logs`: the logs of a cluster's daemons, of its nodes, and of the operator."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from seltzer.build.components import slurmd
from seltzer.build.components.table import CONTROL_PLANE
from seltzer.build.names import CLUSTER, COMPONENT, OPERATOR, of_component
from seltzer.cli import gather, kube, kubectl
from seltzer.cli.kube import Place
from seltzer.cli.options import SYSTEM_NAMESPACE, Context, Follow, Namespace
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import NotFound
from seltzer.view.text import suggestion

DAEMONS = tuple(component.name for component in CONTROL_PLANE)

Part = Annotated[str | None, Parameter(help=f"{', '.join(DAEMONS)}, operator, or the name of a node.")]


def logs(
    name: str,
    component: Part = None,
    /,
    *,
    follow: Follow = False,
    tail: Annotated[int, Parameter(help="How many of the newest lines to begin with; -1 for all.")] = 100,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print the log of a part of a cluster, of a node, or of the operator.

    `seltzer logs demo` is slurmctld's, `seltzer logs demo cpu-0` that of a node's slurmd, `seltzer logs operator` that
    of the operator that leads.

    Parameters
    ----------
    name
        The cluster; or operator.
    """
    if component is None and name == "operator":
        component = "operator"
    place = kube.locate(namespace, context)
    flags = [f"--tail={tail}", *(["--follow"] if follow else [])]
    if component == "operator":
        system = Place(place.config, namespace or SYSTEM_NAMESPACE, place.flags)
        pod = kube.talk(system, lambda client: _leader(client, system.namespace))
        kubectl.become(system, "logs", pod, *flags)
    namespace, pod, container = kube.talk(place, lambda client: _find(client, place, name, component or DAEMONS[0]))
    kubectl.become(Place(place.config, namespace, place.flags), "logs", pod, "--container", container, *flags)


async def _leader(client: Client, namespace: str) -> str:
    """The operator's pod that leads; if none does, any."""
    try:
        await client.get(kube.DEPLOYMENTS, OPERATOR, namespace)
    except NotFound:
        raise SeltzerError(
            f"there is no operator in namespace {namespace!r}; run 'seltzer install', or say with -n where it is"
        ) from None
    try:
        holder = (await client.get(kinds.LEASES, OPERATOR, namespace)).spec.holder_identity
        if holder:
            await client.get(kinds.PODS, holder, namespace)
            return f"pod/{holder}"
    except NotFound:
        pass  # there is no leader yet, or it isn't a pod
    return f"deployment/{OPERATOR}"


async def _find(client: Client, place: Place, name: str, component: str) -> tuple[str, str, str]:
    """The namespace, the pod or its Deployment, and the container."""
    cluster = await kube.cluster(client, place, name)
    deployments = {label: each.log for each in CONTROL_PLANE for label in each.labels(cluster)}
    if log := deployments.get(component):
        if log.pod == "lease":
            seen = await gather.controller(client, place.namespace, name)
            return place.namespace, seen.target(name), log.container
        return place.namespace, f"deployment/{of_component(cluster, component)}", log.container
    nodes: dict[str, str] = {}
    for namespace in dict.fromkeys((place.namespace, *cluster.spec.node_sets.namespaces)):
        selector = {"labelSelector": f"{CLUSTER}={name},{COMPONENT}={slurmd.NAME}"}
        found = await client.list_all(kinds.PODS, namespace, params=selector)
        nodes |= {pod.metadata.name: namespace for pod in found.items}
    if component not in nodes:
        known = suggestion(component, (*deployments, "operator", *sorted(nodes)))
        raise SeltzerError(f"{name} has no {component!r}; {known}")
    return nodes[component], f"pod/{component}", slurmd.COMPONENT.log.container
