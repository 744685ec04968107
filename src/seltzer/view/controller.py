"""A cluster's controller as Kubernetes knows it: the holder of its Lease, its pods, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seltzer.api.core import Pod
from seltzer.plan import pod_state
from seltzer.plan.cluster.guard_report import GuardReport


@dataclass(frozen=True)
class ControllerFacts:
    """The guard's report and the pods of slurmctld, at one moment. Without arguments: nothing is known."""

    report: GuardReport = field(default_factory=lambda: GuardReport(None))
    pods: Mapping[str, Pod] = field(default_factory=dict)

    @property
    def active(self) -> Pod | None:
        """The pod in charge; None if there is none, or the pod is gone."""
        return self.pods.get(self.report.holder)

    def target(self, cluster: str) -> str:
        """The argument that leads kubectl to the slurmctld in charge, or to any if none is."""
        return f"pod/{self.report.holder}" if self.active else f"deployment/{cluster}-slurmctld"

    def where(self, name: str) -> str:
        """A pod with its node, if that is known."""
        node = self.node(name)
        return f"{name} on {node}" if node else name

    def node(self, name: str) -> str:
        """The Kubernetes node of a pod; empty if it is unknown."""
        pod = self.pods.get(name)
        return pod.spec.node_name if pod else ""


def down(report: GuardReport, cluster: str) -> str:
    """Why slurmctld doesn't answer, if its guard knows."""
    if report.phase in ("", "running"):
        return ""
    more = f" ({report.message})" if report.message else ""
    if report.phase == "held":
        more = f"; 'seltzer debug {cluster} --release' lets it go"
    return f"Slurm can't be asked: slurmctld is {report.phase}{more}"


def trouble(cluster: str, seen: ControllerFacts) -> str:
    """Why Slurm's last answer may be stale, as far as its guard and Kubernetes know; empty if nothing is wrong."""
    report, active = seen.report, seen.active
    if not report.holder:
        return "slurmctld is failing over: nobody is in charge right now"
    if active is None or pod_state.deleting(active):
        return f"slurmctld is failing over from {report.holder}"
    if report.phase == "held":
        return f"slurmctld is held on {report.holder}; 'seltzer debug {cluster} --release' lets it go"
    if report.phase and report.phase != "running":
        return f"slurmctld is {report.phase} on {report.holder}" + (f": {report.message}" if report.message else "")
    return ""
