"""What `spec.config` of a SlurmCluster may contain: files, by name, on top of Seltzer's configuration.

The API server checks the plain form of each line, so that most mistakes are rejected at once. It can't see everything,
such as lines continued by a backslash: the code that renders the configuration parses it and checks `OWNED` again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from .common import Rule

ConfigFile = Annotated[str, Meta(max_length=131072)]

_ADDRESS = "Seltzer's Service always leads to the active slurmctld: remove it"
_AUTH = "all daemons authenticate with the keys that Seltzer generates: remove it"
_FOLDERS = "the containers are built around these paths: remove it"
_PORT = "Services, probes and network policies use Slurm's default ports: remove it"
_USER = "files and keys in the images and on volumes belong to the user slurm, and slurmd is root: remove it"
OWNED: Mapping[str, str] = {
    "AuthAltParameters": _AUTH,
    "AuthAltTypes": _AUTH,
    "AuthInfo": _AUTH,
    "AuthType": _AUTH,
    "BackupAddr": _ADDRESS,
    "BackupController": _ADDRESS,
    "ClusterName": "jobs are accounted under that name: remove it, and set spec.clusterName when you create a cluster",
    "ControlAddr": _ADDRESS,
    "ControlMachine": _ADDRESS,
    "CredType": _AUTH,
    "MetricsType": "the job counts in the cluster's status come from slurmctld's metrics: remove it",
    "SlurmUser": _USER,
    "SlurmctldAddr": _ADDRESS,
    "SlurmctldHost": _ADDRESS,
    "SlurmctldLogFile": "slurmctld's log on the state volume shows which jobs had started: remove it",
    "SlurmctldPidFile": _FOLDERS,
    "SlurmctldPort": _PORT,
    "SlurmdPidFile": _FOLDERS,
    "SlurmdPort": _PORT,
    "SlurmdSpoolDir": _FOLDERS,
    "SlurmdUser": _USER,
    "StateSaveLocation": "its path is the fence between two slurmctlds: remove it, and set spec.controller.storage",
    "TLSType": "Seltzer provides no certificates to the pods, and connects to slurmctld without TLS: remove it",
}
"""Keys of slurm.conf that only Seltzer sets, with the reason and the alternative."""


def _refuse(line: str, message: str) -> Rule:
    """A rule that no line of slurm.conf matches `line`."""
    return Rule(
        f"!has(self.config) || !('slurm.conf' in self.config) || !self.config['slurm.conf'].matches('(?im)^{line}')",
        message,
        ".config",
    )


CONFIG_RULES: tuple[Rule, ...] = (
    Rule(
        "!has(self.config) || self.config.all(file, file.matches('^[a-zA-Z0-9][-_.a-zA-Z0-9]{0,62}$'))",
        "a key of config isn't a file name: use letters, digits, dots, hyphens and underscores, such as gres.conf",
        ".config",
    ),
    Rule(
        r"!has(self.config) || self.config.all(file, !file.matches('(?i)\\.(key|jwks)$'))",
        "keys don't belong in a config that all nodes can read: remove the file, since Seltzer generates the keys",
        ".config",
    ),
    _refuse(
        r"[ \\t]*include[ \\t]",
        "slurm.conf includes another file, which can't be checked: write its lines into slurm.conf instead",
    ),
    # Slurm accepts several keys in one line, and += as well as =.
    *(
        _refuse(rf"([^#\\n]*[ \\t])?{key}[ \\t]*[-+*/]?=", f"slurm.conf sets {key}, but {why}")
        for key, why in OWNED.items()
    ),
)
