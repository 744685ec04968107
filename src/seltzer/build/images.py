"""What the operator was installed with: the images that pods run unless the spec names another, and the DNS domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .names import Manifest

REGISTRY = "seltzer.dev"
TAG = "dev"
_PREFIX = "SELTZER_IMAGE_"
_PULL_POLICY = f"{_PREFIX}PULL_POLICY"
DEFAULT_DOMAIN = "cluster.local"


@dataclass(frozen=True)
class Images:
    """The images that were released with the operator, by component."""

    named: Mapping[str, str] = field(default_factory=dict)
    pull_policy: str = "IfNotPresent"
    # The DNS domain of Services. The operator finds it (serve/cluster_domain.py): its manifests don't have it.
    cluster_domain: str = DEFAULT_DOMAIN

    def of(self, component: str) -> str:
        """The image of a component, or its default if none is named."""
        return self.named.get(component, f"{REGISTRY}/{component}:{TAG}")

    def to_env(self) -> list[Manifest]:
        """The images as variables of the operator's pod; `from_env` reads them."""
        images = [{"name": _variable(component), "value": image} for component, image in self.named.items()]
        return [*images, {"name": _PULL_POLICY, "value": self.pull_policy}]

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Images:
        """The images that the operator was installed with. Unset and empty variables get defaults."""
        found = {
            _component(name): image
            for name, image in environ.items()
            if name.startswith(_PREFIX) and name != _PULL_POLICY and image
        }
        return cls(found, environ.get(_PULL_POLICY) or cls.pull_policy)


def _variable(component: str) -> str:
    return f"{_PREFIX}{component.upper().replace('-', '_')}"


def _component(variable: str) -> str:
    return variable.removeprefix(_PREFIX).lower().replace("_", "-")
