"""Asks Slurm and Kubernetes for everything that is known of a cluster, and joins the answers into `Facts`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from seltzer.api.common import API_VERSION
from seltzer.api.core import Pod
from seltzer.api.labels import CLUSTER, CLUSTER_NAMESPACE, COMPONENT
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import kube, kubectl
from seltzer.cli.kube import Place
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import Forbidden, NotFound
from seltzer.kube.resource import Resource
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.slurm import snapshot
from seltzer.slurm.snapshot import Snapshot
from seltzer.view import controller as view_controller
from seltzer.view import events as view_events
from seltzer.view.controller import ControllerFacts
from seltzer.view.events import Event
from seltzer.view.facts import Facts

EVENTS: Resource[Event] = Resource("", "v1", "events", "Event", Event)
OURS = {"fieldSelector": f"involvedObject.apiVersion={API_VERSION}"}
"""The parameter that selects Events about our kinds."""

T = TypeVar("T")

# Phases in which the guard keeps slurmctld from running.
_KEPT_DOWN = ("held", "blocked")


async def facts(client: Client, place: Place, name: str, *, ended: bool = False, happened: bool = True) -> Facts:
    """Asks both sides at once. Raises only if there is no such cluster, or no API server.

    `ended` includes completed jobs, as long as Slurm remembers them; `happened` includes Events.
    """
    cluster = await kube.cluster(client, place, name)
    gaps: list[str] = []
    (seen, slurm, silence), nodesets, pods, machines, found = await asyncio.gather(
        _asked(client, place, cluster, ended, gaps),
        kube.nodesets(client, cluster),
        _pods(client, cluster, gaps),
        _may(client.list_all(kinds.NODES), "Kubernetes' nodes", gaps),
        _may(events(client, cluster), "Events", gaps) if happened else _nothing(),
    )
    return Facts(
        cluster,
        datetime.now(UTC),
        nodesets,
        pods,
        None if machines is None else {each.metadata.name: each for each in machines.items},
        seen,
        view_events.of_cluster(found or (), cluster, nodesets),
        slurm,
        silence,
        tuple([silence, *gaps] if silence else gaps),
    )


async def _may(asked: Awaitable[T], what: str, gaps: list[str]) -> T | None:
    try:
        return await asked
    except Forbidden:
        gaps.append(f"you may not see {what}")
        return None


async def _nothing() -> None:
    return None


async def _pods(client: Client, cluster: SlurmCluster, gaps: list[str]) -> dict[str, Pod] | None:
    """slurmd's pods of all NodeSets; None if one namespace can't be listed: any pod could be missing."""
    home, name = cluster.metadata.namespace, cluster.metadata.name
    params = {"labelSelector": f"{CLUSTER}={name},{CLUSTER_NAMESPACE}={home},{COMPONENT}=slurmd"}
    namespaces = list(dict.fromkeys((home, *cluster.spec.node_sets.namespaces)))
    found = await asyncio.gather(
        *(
            _may(client.list_all(kinds.PODS, each, params=params), f"the pods in namespace {each}", gaps)
            for each in namespaces
        )
    )
    if any(each is None for each in found):
        return None
    return {pod.metadata.name: pod for listing in found if listing for pod in listing.items}


async def _asked(
    client: Client, place: Place, cluster: SlurmCluster, ended: bool, gaps: list[str]
) -> tuple[ControllerFacts, Snapshot | None, str]:
    """What the guard reports, and Slurm's own answer or the reason why there is none."""
    name, home = cluster.metadata.name, cluster.metadata.namespace
    seen = await _may(controller(client, home, name), "slurmctld's Lease and pods", gaps) or ControllerFacts()

    def run(command: Sequence[str]) -> str:
        return kubectl.output(Place(place.config, home, place.flags), seen.target(name), "slurmctld", command)

    down = view_controller.down(seen.report, name)
    if down and seen.report.phase in _KEPT_DOWN:
        return seen, None, down  # asking would fail, and Slurm's commands take ten seconds for that
    try:
        return seen, await asyncio.to_thread(snapshot.ask, run, ended=ended), ""
    except SeltzerError as error:
        why = "you may not run commands in slurmctld's pod" if "(Forbidden)" in str(error) else str(error)
        return seen, None, down or f"Slurm can't be asked: {why}"


async def controller(client: Client, namespace: str, cluster: str) -> ControllerFacts:
    """The controller's Lease and pods."""
    try:
        lease = await client.get(kinds.LEASES, f"{cluster}-slurmctld", namespace)
    except NotFound:
        lease = None
    params = {"labelSelector": f"{CLUSTER}={cluster},{COMPONENT}=slurmctld"}
    found = await client.list_all(kinds.PODS, namespace, params=params)
    return ControllerFacts(GuardReport(lease), {pod.metadata.name: pod for pod in found.items})


async def events(client: Client, cluster: SlurmCluster) -> list[Event]:
    """All Events about our kinds in the namespaces of the cluster and its NodeSets."""
    found: list[Event] = []
    for namespace in dict.fromkeys((cluster.metadata.namespace, *cluster.spec.node_sets.namespaces)):
        found += (await client.list_all(EVENTS, namespace, params=OURS)).items
    return found
