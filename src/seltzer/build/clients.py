"""What a client of slurmctld needs: to find it, and to wait for it."""

from __future__ import annotations

from typing import Final

from seltzer.api.slurmcluster import SlurmCluster

from . import names
from .components import slurmctld
from .names import Manifest

# A daemon that can't fetch its configuration ends, and Kubernetes starts it again ever later; so it starts when there
# is somebody to ask. A connection to a dead address would hang for minutes. As the first process of a container a
# shell ignores SIGTERM unless it says what to do.
_WAIT: Final = (
    "trap 'exit 0' TERM; "
    "until timeout 2 bash -c 'exec 3<>\"/dev/tcp/$SELTZER_HOST/$SELTZER_PORT\"' 2>/dev/null; do sleep 0.2; done; "
    'exec "$@"'
)


def after_slurmctld(*command: str) -> list[str]:
    """A command that begins when slurmctld can be reached; it needs `environment`."""
    return ["/bin/bash", "-c", _WAIT, "wait-for-slurmctld", *command]


def environment(cluster: SlurmCluster) -> list[Manifest]:
    """Where slurmctld is, for `after_slurmctld`."""
    return [
        {"name": "SELTZER_HOST", "value": names.controller_address(cluster)},
        {"name": "SELTZER_PORT", "value": str(slurmctld.PORT)},
    ]


def conf_server(cluster: SlurmCluster) -> list[str]:
    """The option with which Slurm's daemons fetch their configuration."""
    return ["--conf-server", f"{names.controller_address(cluster)}:{slurmctld.PORT}"]
