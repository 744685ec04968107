"""Which images the pods run where nobody asks for another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from .names import Manifest

_PREFIX = "SELTZER_IMAGE_"


@dataclass(frozen=True)
class Images:
    """The images that were released with the operator."""

    slurmctld: str = "seltzer.dev/slurmctld:dev"
    slurmrestd: str = "seltzer.dev/slurmrestd:dev"
    slurmd: str = "seltzer.dev/slurmd:dev"
    login: str = "seltzer.dev/login:dev"
    pull_policy: str = "IfNotPresent"

    def to_env(self) -> list[Manifest]:
        """How the operator's pod is told; `from_env` is the way back."""
        return [{"name": f"{_PREFIX}{field.upper()}", "value": value} for field, value in asdict(self).items()]

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Images:
        """What the operator's pod was told; what it wasn't told has its default."""
        known = {field.name: environ.get(f"{_PREFIX}{field.name.upper()}") for field in fields(cls)}
        return cls(**{name: value for name, value in known.items() if value})
