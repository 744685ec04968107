"""Everything that Slurm and Kubernetes know of a cluster, joined into one value.

Either side may be unknown, and the value says it: `None` never means "there are none".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final, Literal

from seltzer.api.core import Node as Machine
from seltzer.api.core import Pod
from seltzer.api.labels import NODESET, UNLIMITED
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.plan.nodeset import checks, drain_causes, pod_conditions
from seltzer.plan.slurm_state import ADDED, MARK, OURS, is_ours
from seltzer.plan.users.accounts import BUILT_IN_USER
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Job, Snapshot
from seltzer.view.controller import ControllerFacts
from seltzer.view.events import Event
from seltzer.view.text import natural

SELTZER, SLURM = "Seltzer", "Slurm"
"""The authors of a reason that no person set."""
SLURM_USER: Final = "slurm"
LOGIN_USER: Final = BUILT_IN_USER.name
"""The only user of a cluster whose spec.users names no source."""

# `seltzer drain` signs reasons: for Slurm, all commands in slurmctld's pod are run by its own user.
_SIGNED = re.compile(r"(?P<words>.*?) ?\[(?P<by>[^][]+)\]", re.DOTALL)
_BARE = re.compile(r"seltzer drain by (?P<by>.+)")


@dataclass(frozen=True)
class Facts:
    """A cluster at one moment. Slurm's nodes and their pods go by the same name."""

    cluster: SlurmCluster
    now: datetime
    """Our own clock. Times of Slurm go by `slurm.now`."""
    nodesets: Sequence[NodeSet] = ()
    pods: Mapping[str, Pod] | None = None
    """slurmd's pods by name; None if they can't be listed."""
    machines: Mapping[str, Machine] | None = None
    """Kubernetes' nodes by name; None if they can't be listed."""
    controller: ControllerFacts = field(default_factory=ControllerFacts)
    """slurmctld's pods and its guard's report."""
    events: Sequence[Event] = ()
    """About the cluster and its NodeSets, the oldest first."""
    slurm: Snapshot | None = None
    """None if Slurm didn't answer."""
    silence: str = ""
    """Why Slurm didn't answer."""
    gaps: Sequence[str] = ()
    """What is unknown and why, one sentence each."""

    @property
    def slurmctld(self) -> str:
        """The argument that leads kubectl to the slurmctld in charge."""
        return self.controller.target(self.cluster.metadata.name)

    @cached_property
    def names(self) -> list[str]:
        """All nodes that either side knows, in natural order."""
        return sorted({*(self.slurm.nodes if self.slurm else ()), *(self.pods or ())}, key=natural)

    def node(self, name: str) -> Node | None:
        """Slurm's record; None if there is none, or Slurm didn't answer."""
        return self.slurm.nodes.get(name) if self.slurm else None

    def pod(self, name: str) -> Pod | None:
        """The node's pod; None if there is none, or pods can't be listed."""
        return self.pods.get(name) if self.pods else None

    def machine(self, name: str) -> Machine | None:
        """The Kubernetes node that a Slurm node is on; None if it is unknown."""
        pod = self.pod(name)
        return (self.machines or {}).get(pod.spec.node_name) if pod else None

    def ailment(self, name: str) -> str:
        """What is wrong with a node's Kubernetes node, as the end of a sentence about it: `is cordoned`.

        The same judgement for which the operator drains the node. Empty if nothing is wrong, or nothing is known.
        """
        pod = self.pod(name)
        if pod is None or not pod.spec.node_name or self.machines is None:
            return ""
        pool = next((each for each in self.nodesets if each.metadata.name == self.nodeset(name)), None)
        tolerations = (pool.spec.pod_template.spec.get("tolerations") if pool else None) or ()
        where = pod.spec.node_name
        reason = drain_causes.of_machine(where, drain_causes.Machine(self.machines.get(where)), tolerations)
        return reason.partition(f" {where} ")[2]

    def last_known(self, name: str) -> tuple[str, str]:
        """The state and reason that Slurm last reported, for when it can't be asked; empty if it never did."""
        pod = self.pod(name)
        return pod_conditions.last_told(pod) if pod else ("", "")

    def nodeset(self, name: str) -> str:
        """A node's NodeSet, from its pod's label or the mark on its record; empty for a node of slurm.conf."""
        pod, node = self.pod(name), self.node(name)
        if pod:
            return pod.metadata.labels.get(NODESET, "")
        mark = node.comment if node else ""
        return mark.removeprefix(MARK).partition(ADDED)[0].rpartition("/")[2] if mark.startswith(MARK) else ""

    def failing(self, name: str) -> Sequence[str]:
        """The checks that fail on a node, in words."""
        node, pool = self.node(name), self.nodeset(name)
        wanted = next((each.spec.checks for each in self.nodesets if each.metadata.name == pool), ())
        return [each.words for each in (checks.failures(node, wanted) if node else None) or ()]

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
        """When the longest job on a node reaches its time limit, by slurmctld's clock; None if no job is on it."""
        jobs = self.jobs_on(name)
        if any(job.end is None for job in jobs):
            return UNLIMITED
        return max((job.end or 0 for job in jobs), default=None)


def who(node: Node) -> str:
    """The author of a node's reason: Seltzer, Slurm, or a person by name; empty if it has no reason."""
    if not node.reason:
        return ""
    if node.reason.startswith(OURS):
        return SELTZER if is_ours(node.reason) else SLURM
    if node.reason_set_by_user not in ("", SLURM_USER):
        return node.reason_set_by_user
    found = _SIGNED.fullmatch(node.reason) or _BARE.fullmatch(node.reason)
    return found["by"] if found else SLURM


def why(node: Node) -> str:
    """A node's reason without its signature; empty if nothing is left."""
    found = _SIGNED.fullmatch(node.reason) or _BARE.fullmatch(node.reason)
    if found and who(node) == found["by"]:
        return found.groupdict().get("words") or ""
    return node.reason.removeprefix(OURS)


def blame(node: Node) -> str:
    """Author and reason: `ann: new disk`; empty if the node has no reason."""
    return ": ".join(word for word in (who(node), why(node)) if word)


def signed(reason: str, by: str) -> str:
    """A reason with its author's signature."""
    return f"{reason} [{re.sub(r'[][]', '', by).strip() or 'somebody'}]"
