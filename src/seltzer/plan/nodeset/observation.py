"""What a NodeSet's plan looks at: one frozen value that says what is unknown."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seltzer.api.core import Pod
from seltzer.api.nodeset import NodeSet
from seltzer.plan.conditions import Finding
from seltzer.plan.nodeset.drain_causes import Machine
from seltzer.plan.nodeset.membership import Membership
from seltzer.plan.nodeset.places import Places
from seltzer.plan.slurm_presence import SlurmState
from seltzer.plan.wakeup import Wakeup


@dataclass(frozen=True)
class Wants:
    """Which feeds a NodeSet's next plan needs."""

    # Deadlines of jobs, asked for since now.
    deadlines: bool = False
    # The nodes that waiting jobs name.
    named: bool = False
    # The jobs that wait in this partition.
    partition: str = ""


@dataclass(frozen=True)
class NodeSetObservation:
    """Everything that a plan looks at."""

    nodeset: NodeSet
    membership: Membership
    pods: tuple[Pod, ...]
    # The hash of the wanted pod template; None if it can't be built, and `refusal` says why.
    template: str | None
    slurm: SlurmState
    now: float
    refusal: str = ""
    # What is to be said about its home directories beside what the cluster says.
    home: Finding | None = None
    # Its pods mount the cluster's home directories until then, although the claim isn't bound yet.
    home_wakeup: Wakeup | None = None
    # The cluster is being deleted, and its nodes go first.
    closing: bool = False
    # The nodes that waiting jobs name; None: unknown. A job is lost with the next reconfigure if the record of a node
    # that it names is deleted.
    named: frozenset[str] | None = None
    # The partition that ends with this NodeSet; empty: none does. Jobs that wait in it are lost with it.
    ending_partition: str = ""
    # How many jobs wait there. None: unknown.
    queued: int | None = None
    # When this slurmctld started, by the clock of its machine.
    controller_started: float | None = None
    # The Kubernetes nodes of the pods, by name. One that is missing is unknown.
    machines: Mapping[str, Machine] = field(default_factory=dict)
    # Whether the nodes of `unreachable_pods.suspects` answer slurmctld's pod. One that is missing is unknown.
    answers: Mapping[str, bool] = field(default_factory=dict)
    # When the last job on a node reaches its limit, in seconds; None where one has no limit. And how many seconds ago
    # that was asked for, successfully or not.
    free_at: Mapping[str, float | None] = field(default_factory=dict)
    deadlines_age: float = float("inf")
    # For how many seconds we have seen the facts of `aging`, by our own clock.
    ages: Mapping[Hashable, float] = field(default_factory=dict)
    # The labels that say where nodes are in Slurm's topology; none: nowhere. None: what their records say stays.
    topology: tuple[str, ...] | None = None
    # With placement perNode: the machines that should have a node. None: unknown.
    places: Places | None = None
    # The digest of the users that the pods mount; empty while there are none.
    users: str = ""

    def age(self, thing: Hashable) -> float:
        """For how many seconds a fact has lasted; one that is new begins now."""
        return self.ages.get(thing, 0.0)

    def machine(self, pod: Pod) -> Machine | None:
        """The machine of a pod; None if it is unknown."""
        return self.machines.get(pod.spec.node_name)

    @property
    def tolerations(self) -> Sequence[Mapping[str, Any]]:
        return self.nodeset.spec.pod_template.spec.get("tolerations") or ()
