"""The address of slurmctld for its clients, and a command that waits for it."""

from __future__ import annotations

from typing import Final

from seltzer.api.slurmcluster import SlurmCluster

from . import names
from .components import slurmctld
from .names import Manifest

# A daemon that can't fetch its configuration exits, and Kubernetes restarts it with a growing back-off. Waiting here
# avoids that. `timeout`: a connection to a dead address hangs for minutes. `trap`: a shell that is the first process of
# its container ignores SIGTERM without a handler.
_WAIT: Final = (
    "trap 'exit 0' TERM; "
    "until timeout 2 bash -c 'exec 3<>\"/dev/tcp/$SELTZER_HOST/$SELTZER_PORT\"' 2>/dev/null; do sleep 0.2; done; "
    'exec "$@"'
)


def after_slurmctld(*command: str) -> list[str]:
    """The command, started once slurmctld accepts connections. The container needs the variables of `environment`."""
    return ["/bin/bash", "-c", _WAIT, "wait-for-slurmctld", *command]


def environment(cluster: SlurmCluster) -> list[Manifest]:
    """The address of slurmctld, as variables for `after_slurmctld`."""
    return [
        {"name": "SELTZER_HOST", "value": names.controller_address(cluster)},
        {"name": "SELTZER_PORT", "value": str(slurmctld.PORT)},
    ]


def conf_server(cluster: SlurmCluster) -> list[str]:
    """The option with which Slurm's daemons fetch their configuration."""
    return ["--conf-server", f"{names.controller_address(cluster)}:{slurmctld.PORT}"]
