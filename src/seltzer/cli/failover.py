"""`seltzer failover`: move slurmctld to another pod."""

from __future__ import annotations

import sys
import time
from typing import Annotated

from cyclopts import Parameter

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import gather, kube, show
from seltzer.cli.options import Context, Namespace, Output, OutputFlag, Timeout
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.plan import pod_state
from seltzer.progress import Progress
from seltzer.view.controller import ControllerFacts

_POLL = 0.1


def failover(
    name: Annotated[str, Parameter(help="The cluster.")],
    /,
    *,
    timeout: Timeout = 180.0,
    namespace: Namespace = None,
    context: Context = None,
    output: OutputFlag = Output.text,
) -> None:
    """Move slurmctld to another pod, and wait until it runs there. It saves its state first, so no job is lost.

    Running jobs go on. With a standby (spec.controller.standby) that one takes over, otherwise a new pod.
    """
    place = kube.locate(namespace, context)

    async def move(client: Client) -> tuple[ControllerFacts, ControllerFacts, float]:
        cluster = await kube.cluster(client, place, name)
        before = await gather.controller(client, place.namespace, name)
        if why := obstacle(cluster, before):
            raise SeltzerError(why)
        if cluster.spec.controller.standby and not standbys(before):
            print("note: no standby is ready, so a new pod has to start first", file=sys.stderr)
        pod = before.active
        assert pod
        started = time.monotonic()
        await client.delete(kinds.PODS, pod.metadata.name, place.namespace, uid=pod.metadata.uid)
        after = before

        async def pending() -> str:
            nonlocal after
            after = await gather.controller(client, place.namespace, name)
            return awaited(before.report.holder, after)

        advice = f"{name} hasn't failed over (see 'seltzer status {name}' and 'seltzer logs {name}')"
        with Progress() as progress, progress.step(f"move slurmctld from {before.where(before.report.holder)}"):
            await kube.until(pending, timeout, progress.note, advice, poll=_POLL)
        return before, after, time.monotonic() - started

    before, after, took = kube.talk(place, move)
    old, new = before.report.holder, after.report.holder
    if output is Output.text:
        print(f"{name}: {before.where(old)} -> {after.where(new)} in {took:.1f} s")
        return
    sides = {"from": {"pod": old, "node": before.node(old)}, "to": {"pod": new, "node": after.node(new)}}
    show.data({"cluster": name, **sides, "seconds": round(took, 2)}, output)


def obstacle(cluster: SlurmCluster, seen: ControllerFacts) -> str:
    """Why slurmctld can't be moved now, and what to do; empty if it can."""
    name, report, pod = cluster.metadata.name, seen.report, seen.active
    if cluster.metadata.deletion_timestamp:
        return f"{name} is being deleted; see 'seltzer status {name}'"
    if cluster.spec.controller.hold or report.phase == "held":
        return f"{name} is held for debugging; release it first with 'seltzer debug {name} --release'"
    if not report.holder:
        return f"nobody is the controller of {name} right now; see 'seltzer status {name}'"
    if pod is None or pod_state.deleting(pod) or report.phase == "stopping":
        return f"{name} is already failing over from {report.holder}; watch it with 'seltzer events {name} -f'"
    if report.phase == "starting":
        return (
            f"slurmctld of {name} is just starting on {report.holder}; wait until 'seltzer status {name}' has it ready"
        )
    return ""


def standbys(seen: ControllerFacts) -> list[str]:
    """The pods that are ready to take over."""
    return [name for name, pod in seen.pods.items() if name != seen.report.holder and pod_state.ready(pod)]


def awaited(old: str, seen: ControllerFacts) -> str:
    """What the command still waits for; empty when another pod runs slurmctld."""
    report = seen.report
    if report.holder == old:
        return f"{old} writes its state and ends"
    if not report.holder:
        coming = [name for name, pod in seen.pods.items() if not pod_state.deleting(pod)]
        found = pod_state.first_trouble(pod for pod in seen.pods.values())
        return found.message if found else f"waiting for {', '.join(sorted(coming)) or 'a new pod'}"
    if report.phase != "running":
        return f"{seen.where(report.holder)} is {report.phase}" + (f": {report.message}" if report.message else "")
    return ""
