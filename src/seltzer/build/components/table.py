"""All components. Code that lists components iterates over this table; a new component is a module and a row here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seltzer.build.components import login, slurmctld, slurmd, slurmrestd
from seltzer.build.components.base import Component
from seltzer.build.images import REGISTRY, TAG, Images
from seltzer.plan.cluster.cluster_plan import ClusterObservation
from seltzer.plan.conditions import Finding

COMPONENTS: Final[tuple[Component, ...]] = (
    slurmctld.COMPONENT,
    slurmrestd.COMPONENT,
    slurmd.COMPONENT,
    login.COMPONENT,
)

BY_NAME: Final[Mapping[str, Component]] = {component.name: component for component in COMPONENTS}
CONTROL_PLANE: Final = tuple(component for component in COMPONENTS if component.condition)


def is_variant(label: str) -> bool:
    """Whether a component label can only be that of a variant of a component."""
    return label not in BY_NAME and any(label.startswith(f"{name}-") for name in BY_NAME)


def findings(seen: ClusterObservation) -> tuple[Finding, ...]:
    """The conditions of the control plane's components."""
    return tuple(component.finding(seen) for component in CONTROL_PLANE)


def released(registry: str = REGISTRY, tag: str = TAG) -> Images:
    """The images of one release; each has the name of its component."""
    return Images({component.name: f"{registry}/{component.name}:{tag}" for component in COMPONENTS})
