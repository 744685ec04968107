"""`seltzer debug`: hold slurmctld down and find out why it crashed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.api.status import Crash
from seltzer.cli import gather, kube, kubectl
from seltzer.cli.kube import Place
from seltzer.cli.options import Context, Namespace, Timeout
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.progress import Progress
from seltzer.view.controller import ControllerFacts
from seltzer.view.times import age

_STATE = "/run/slurmctld-state"
_CORES = "/run/cores"


def debug(
    name: Annotated[str, Parameter(help="The cluster.")],
    /,
    *,
    release: Annotated[bool, Parameter(negative="", help="Let slurmctld run again.")] = False,
    no_shell: Annotated[bool, Parameter(negative="", help="Open no shell, also on a terminal.")] = False,
    timeout: Timeout = 120.0,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Hold slurmctld down for debugging, and open a shell in its container, where cores, logs and gdb are.

    Running jobs go on, nobody can submit, and no other pod takes over until `seltzer debug NAME --release`. The same as
    spec.controller.hold.
    """
    place = kube.locate(namespace, context)
    cluster, seen = kube.talk(place, lambda client: _set_hold(client, place, name, not release, timeout))
    if release:
        print(f"{name} goes on: slurmctld runs in {seen.where(seen.report.holder)}")
        return
    for line in summary(cluster, seen, datetime.now(UTC)):
        print(line)
    if not no_shell and sys.stdin.isatty() and sys.stdout.isatty():
        kubectl.enter(place, f"pod/{seen.report.holder}", "slurmctld", ["bash"])


async def _set_hold(
    client: Client, place: Place, name: str, hold: bool, timeout: float
) -> tuple[SlurmCluster, ControllerFacts]:
    """Holds or releases slurmctld, and waits until it is held or runs."""
    cluster = await kube.cluster(client, place, name)
    patch = {"spec": {"controller": {"hold": hold}}}
    if cluster.spec.controller.hold != hold:
        cluster = await client.patch(kinds.CLUSTERS, name, place.namespace, patch=patch)
    seen = await gather.controller(client, place.namespace, name)

    async def pending() -> str:
        nonlocal seen
        seen = await gather.controller(client, place.namespace, name)
        return awaited(seen, hold)

    what = f"{'hold' if hold else 'release'} slurmctld of {name}"
    with Progress() as progress, progress.step(what):
        failed = f"{name} isn't {'held' if hold else 'running'} (see 'seltzer status {name}')"
        await kube.until(pending, timeout, progress.note, failed)
    return await kube.cluster(client, place, name), seen


def awaited(seen: ControllerFacts, hold: bool) -> str:
    """What the command still waits for; empty when slurmctld is held, or runs."""
    report = seen.report
    if report.hold != hold:
        return "the operator hasn't passed it on to the guard yet; see 'seltzer version' if it stays so"
    if not report.holder:
        return "nobody is the controller right now; waiting for a pod"
    if report.phase == ("held" if hold else "running"):
        return ""
    return f"{seen.where(report.holder)} is {report.phase or 'silent'}" + (
        f": {report.message}" if report.message else ""
    )


def summary(cluster: SlurmCluster, seen: ControllerFacts, now: datetime) -> list[str]:
    """Where cores, logs and state are, for the user of the shell."""
    name, crash = cluster.metadata.name, seen.report.crash or cluster.status.crash or None
    core = crash.core if crash and crash.core else ""
    binary = f"gdb slurmctld {core}" if core else "gdb --args slurmctld -D -f /etc/slurm/slurm.conf"
    rows = [
        ("held", f"slurmctld is down in {seen.where(seen.report.holder)}; jobs that run go on, nobody can submit"),
        *(_crash(crash, now) if crash else [("crash", "none is known")]),
        ("core", core or f"none; they would be in {_CORES}"),
        ("gdb", binary),
        ("logs", f"{_STATE}/slurmctld.log; 'seltzer logs {name}' has the guard's"),
        ("state", f"{_STATE}; all epochs are in /var/spool/slurmctld"),
        ("go on", f"end what you started, then 'seltzer debug {name} --release'"),
    ]
    return [f"{key:<6} {value}" for key, value in rows]


def _crash(crash: Crash, now: datetime) -> list[tuple[str, str]]:
    rows = [("crash", f"{age(crash.time, now)} ago: slurmctld {crash.how or 'ended'}")]
    rows += [("said" if not at else "", line) for at, line in enumerate(crash.lines.splitlines()[-5:])]
    rows += [("in" if not at else "", line) for at, line in enumerate(crash.backtrace.splitlines()[:10])]
    return rows
