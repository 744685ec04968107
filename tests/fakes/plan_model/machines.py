"""Kubernetes nodes in the model world: what is true of them, and what Kubernetes shows."""

from __future__ import annotations

from dataclasses import dataclass

from tests.builders import objects

from seltzer.api.core import Node as KubeNode

# How long Kubernetes waits for a kubelet at most.
GRACE = 50.0
SELECTED = {"pool": "cpu"}


@dataclass
class ModelMachine:
    """A Kubernetes node. What Kubernetes shows of it comes later than what is true, or never."""

    name: str
    # It is switched on; its cable is plugged in; its kubelet runs.
    power: bool = True
    cable: bool = True
    kubelet: bool = True
    # What Kubernetes shows: whether it is ready, and whether it is there at all.
    ready: str = "True"
    there: bool = True
    cordoned: bool = False
    taint: str = ""
    pressure: bool = False
    # It has the label that a NodeSet of placement perNode selects.
    label: bool = True
    # How far its clock is ahead.
    skew: float = 0.0
    # For how long nobody has heard of it.
    away: float = 0.0

    @property
    def reachable(self) -> bool:
        return self.power and self.cable

    @property
    def speaks(self) -> bool:
        """Its kubelet is heard of: pods on it can start, end and tell how they are."""
        return self.reachable and self.kubelet

    @property
    def silent(self) -> bool:
        """As Kubernetes shows it."""
        return not self.there or self.ready == "Unknown"

    @property
    def well(self) -> bool:
        """As Kubernetes shows it: new pods may come."""
        return self.there and self.ready == "True" and not (self.cordoned or self.taint or self.pressure)

    @property
    def selected(self) -> bool:
        """Whether a pod of placement perNode may come, as Kubernetes shows it: it tolerates a cordon."""
        return self.there and self.label and not self.taint

    def seen(self) -> KubeNode | None:
        if not self.there:
            return None
        taints = (self.taint,) if self.taint else ()
        pressure = str(self.pressure)
        labels = SELECTED if self.label else {}
        return objects.machine(
            self.name, self.ready, taints=taints, cordoned=self.cordoned, labels=labels, MemoryPressure=pressure
        )

    # --- what happens to it ---------------------------------------------------------------------------------------

    def gets_its_label(self) -> None:
        self.label = True

    def loses_its_label(self) -> None:
        self.label = False

    def cordon(self) -> None:
        self.cordoned = True

    def uncordon(self) -> None:
        self.cordoned = False

    def gets_a_taint(self) -> None:
        self.taint = "maintenance=soon:NoSchedule"

    def gets_a_taint_that_drives_out(self) -> None:
        """Kubernetes deletes its pods: see `World.drive_out`."""
        self.taint = "upgrade=now:NoExecute"

    def is_about_to_be_removed(self) -> None:
        """As an autoscaler says."""
        self.taint = "ToBeDeletedByClusterAutoscaler=17:NoSchedule"

    def loses_its_taint(self) -> None:
        self.taint = ""

    def cut(self) -> None:
        """What runs on it goes on, and nobody hears of it."""
        self.cable = False

    def lose_kubelet(self) -> None:
        """Its pods go on and are heard of by Slurm; Kubernetes hears of nothing."""
        self.kubelet = False

    def tell(self, ready: bool) -> None:
        """Its kubelet says how it is."""
        if self.speaks:
            self.there, self.ready = True, "True" if ready else "False"

    def comes_under_pressure(self) -> None:
        """Its kubelet says so too."""
        self.pressure = self.pressure or self.speaks

    def is_relieved(self) -> None:
        self.pressure = self.pressure and not self.speaks

    def go_unheard(self) -> None:
        """Kubernetes has waited long enough."""
        if not self.speaks:
            self.ready = "Unknown"

    def pass_time(self, seconds: float) -> None:
        self.away = 0.0 if self.speaks else self.away + seconds
        if self.away >= GRACE:
            self.go_unheard()

    def be_removed(self) -> None:
        """An autoscaler takes it away: certainly off."""
        if not self.power:
            self.there = False
