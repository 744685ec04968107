"""All that Slurm and Kubernetes know of a cluster, joined into one value: what `nodes`, `explain` and `top` look at.

Either side may be unknown, and then the value says so: `None` is never the same as "there are none".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal, TypeVar

from seltzer.api.core import Node as Machine
from seltzer.api.core import Pod
from seltzer.api.labels import CLUSTER, CLUSTER_NAMESPACE, COMPONENT, NODESET, UNLIMITED
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import controller, events, kube, kubectl, show
from seltzer.cli.controller import ControllerFacts
from seltzer.cli.events import Event
from seltzer.cli.kube import Place
from seltzer.errors import SeltzerError
from seltzer.kube import kinds
from seltzer.kube.client import Client
from seltzer.kube.errors import Forbidden
from seltzer.plan.cluster.guard_report import GuardReport
from seltzer.plan.nodeset import drain_causes, pod_conditions
from seltzer.plan.slurm_state import MARK, OURS, is_ours
from seltzer.slurm import snapshot
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Job, Snapshot

SELTZER, SLURM = "Seltzer", "Slurm"
"""Who set a reason, where it was no person."""
SLURM_USER = "slurm"
NOBODY = ControllerFacts(GuardReport(None), {})
"""Nothing is known of slurmctld."""

T = TypeVar("T")

# How `seltzer drain` signs a reason: what runs beside slurmctld is Slurm's own user to Slurm, whoever asked for it.
_SIGNED = re.compile(r"(?P<words>.*?) ?\[(?P<by>[^][]+)\]", re.DOTALL)
_BARE = re.compile(r"seltzer drain by (?P<by>.+)")

# Phases of slurmctld in which its guard keeps it from running.
_KEPT_DOWN = ("held", "blocked")


@dataclass(frozen=True)
class Facts:
    """A cluster at one moment. Slurm's nodes and their pods go by the same name."""

    cluster: SlurmCluster
    now: datetime
    """Our own clock; what Slurm tells goes by `slurm.now`."""
    nodesets: Sequence[NodeSet] = ()
    pods: Mapping[str, Pod] | None = None
    """slurmd's, by name; None where they can't be listed."""
    machines: Mapping[str, Machine] | None = None
    """Kubernetes' nodes, by name; None where they can't be listed."""
    controller: ControllerFacts = NOBODY
    """slurmctld's pods and what its guard tells."""
    events: Sequence[Event] = ()
    """Of the cluster and its NodeSets, the oldest first."""
    slurm: Snapshot | None = None
    """None where Slurm didn't answer."""
    silence: str = ""
    """Why it didn't."""
    gaps: Sequence[str] = ()
    """All that isn't known, and why, each a sentence for a person."""

    @property
    def slurmctld(self) -> str:
        """What to tell kubectl to reach the slurmctld in charge."""
        return _reach(self.controller, self.cluster.metadata.name)

    @cached_property
    def names(self) -> list[str]:
        """All nodes that either side knows, in natural order: cpu-2 before cpu-10."""
        return sorted({*(self.slurm.nodes if self.slurm else ()), *(self.pods or ())}, key=natural)

    def node(self, name: str) -> Node | None:
        """Slurm's record; None where there is none, and where Slurm didn't answer."""
        return self.slurm.nodes.get(name) if self.slurm else None

    def pod(self, name: str) -> Pod | None:
        return self.pods.get(name) if self.pods else None

    def machine(self, name: str) -> Machine | None:
        """The Kubernetes node that a Slurm node is on."""
        pod = self.pod(name)
        return (self.machines or {}).get(pod.spec.node_name) if pod else None

    def ailment(self, name: str) -> str:
        """What is the matter with a node's Kubernetes node, as the end of a sentence about that: `is cordoned`.

        As the operator judges it, who drains the node for it. Empty if nothing is, and if nobody knows.
        """
        pod = self.pod(name)
        if pod is None or not pod.spec.node_name or self.machines is None:
            return ""
        pool = next((each for each in self.nodesets if each.metadata.name == self.nodeset(name)), None)
        tolerations = (pool.spec.pod_template.spec.get("tolerations") if pool else None) or ()
        where = pod.spec.node_name
        reason = drain_causes.of_machine(where, drain_causes.Machine(self.machines.get(where)), tolerations)
        return reason.partition(f" {where} ")[2]

    def last_told(self, name: str) -> tuple[str, str]:
        """The state and reason that Slurm last told of a node, for when it can't be asked; empty where it never did."""
        pod = self.pod(name)
        return pod_conditions.last_told(pod) if pod else ("", "")

    def nodeset(self, name: str) -> str:
        """The NodeSet of a node, by its pod's label or the mark on its record; empty for a node of slurm.conf."""
        pod, node = self.pod(name), self.node(name)
        if pod:
            return pod.metadata.labels.get(NODESET, "")
        mark = node.comment if node else ""
        return mark.removeprefix(MARK).rpartition("/")[2] if mark.startswith(MARK) else ""

    @cached_property
    def _on(self) -> Mapping[str, Sequence[Job]]:
        found: dict[str, list[Job]] = {}
        for job in self.slurm.jobs if self.slurm else ():
            for name in job.nodes if job.active else ():
                found.setdefault(name, []).append(job)
        return found

    def jobs_on(self, name: str) -> Sequence[Job]:
        """The jobs that are on a node."""
        return self._on.get(name, ())

    def free_at(self, name: str) -> int | Literal["unlimited"] | None:
        """When the longest job on a node reaches its time limit, by slurmctld's clock; None where none is on it."""
        jobs = self.jobs_on(name)
        if any(job.end is None for job in jobs):
            return UNLIMITED
        return max((job.end or 0 for job in jobs), default=None)


def natural(name: str) -> tuple[tuple[str, int, str], ...]:
    """A key that puts numbers in numeric order."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [*parts[1::2], ""]
    return tuple((words, int(digits or 0), digits) for words, digits in zip(parts[::2], numbers, strict=True))


def span(seconds: int) -> str:
    """How long that is, in one or two units: 42s, 5m, 3h20m, 12d."""
    start = datetime.fromtimestamp(0, UTC)
    return show.age(start.isoformat(), start + timedelta(seconds=seconds))


def who(node: Node) -> str:
    """Who set a node's reason: Seltzer, Slurm itself, or a person by name; empty where it has none."""
    if not node.reason:
        return ""
    if node.reason.startswith(OURS):
        return SELTZER if is_ours(node.reason) else SLURM
    if node.reason_set_by_user not in ("", SLURM_USER):
        return node.reason_set_by_user
    found = _SIGNED.fullmatch(node.reason) or _BARE.fullmatch(node.reason)
    return found["by"] if found else SLURM


def why(node: Node) -> str:
    """A node's reason without what tells whose it is; empty where nothing is left."""
    found = _SIGNED.fullmatch(node.reason) or _BARE.fullmatch(node.reason)
    if found and who(node) == found["by"]:
        return found.groupdict().get("words") or ""
    return node.reason.removeprefix(OURS)


def blame(node: Node) -> str:
    """Who set a node's reason, and the reason: `ann: new disk`; empty where it has none."""
    return ": ".join(word for word in (who(node), why(node)) if word)


def signed(reason: str, by: str) -> str:
    """A reason that tells whose it is."""
    return f"{reason} [{re.sub(r'[][]', '', by).strip() or 'somebody'}]"


async def look(client: Client, place: Place, name: str, *, ended: bool = False, happened: bool = True) -> Facts:
    """Ask both sides at once. Raises only where there is no such cluster, or no API server.

    `ended` asks for jobs too that are over, as long as Slurm remembers them; `happened` for Events.
    """
    cluster = await kube.cluster(client, place, name)
    gaps: list[str] = []
    (seen, slurm, silence), nodesets, pods, machines, told = await asyncio.gather(
        _controller(client, place, cluster, ended, gaps),
        kube.nodesets(client, cluster),
        _pods(client, cluster, gaps),
        _may(client.list_all(kinds.NODES), "Kubernetes' nodes", gaps),
        _may(events.ours(client, cluster), "Events", gaps) if happened else _nothing(),
    )
    names = {(each.metadata.namespace, each.metadata.name) for each in nodesets}
    return Facts(
        cluster,
        datetime.now(UTC),
        nodesets,
        pods,
        None if machines is None else {each.metadata.name: each for each in machines.items},
        seen,
        events.of_cluster(told or (), cluster, names),
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
    """slurmd's pods of all NodeSets; None if those of any namespace can't be listed, since any could be missing."""
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


async def _controller(
    client: Client, place: Place, cluster: SlurmCluster, ended: bool, gaps: list[str]
) -> tuple[ControllerFacts, Snapshot | None, str]:
    """slurmctld as its guard tells of it, and what it says itself, or why it doesn't."""
    name, home = cluster.metadata.name, cluster.metadata.namespace
    seen = await _may(controller.look(client, home, name), "slurmctld's Lease and pods", gaps) or NOBODY

    def run(command: Sequence[str]) -> str:
        return kubectl.output(Place(place.config, home, place.flags), _reach(seen, name), "slurmctld", command)

    if (down := _down(seen.told, name)) and seen.told.phase in _KEPT_DOWN:
        return seen, None, down  # nobody would answer, and Slurm's commands take ten seconds to find that out
    try:
        return seen, await asyncio.to_thread(snapshot.ask, run, ended=ended), ""
    except SeltzerError as error:
        why = "you may not run commands in slurmctld's pod" if "(Forbidden)" in str(error) else str(error)
        return seen, None, down or f"Slurm can't be asked: {why}"


def _down(told: GuardReport, cluster: str) -> str:
    """Why slurmctld doesn't answer, if its guard knows."""
    if told.phase in ("", "running"):
        return ""
    more = f" ({told.message})" if told.message else ""
    if told.phase == "held":
        more = f"; 'seltzer debug {cluster} --release' lets it go"
    return f"Slurm can't be asked: slurmctld is {told.phase}{more}"


def _reach(seen: ControllerFacts, cluster: str) -> str:
    """The pod in charge; where nobody is, any that there is."""
    return f"pod/{seen.told.holder}" if seen.active else f"deployment/{cluster}-slurmctld"
