"""The guard's HTTP server: its port, its paths, and the header in which the caller shows its token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

PORT: Final = 6816
AUTHORIZATION: Final = "X-SLURM-USER-TOKEN"

HEALTH: Final = "/healthz"
"""Whether the guard runs. No token needed, as for READY: kubelet has none."""
READY: Final = "/readyz"
"""Whether slurmctld is ready here, or this pod stands by."""
NAMED: Final = "/named"
"""The nodes that pending jobs ask for by name, as `squeue.parse_named` reads them."""
JOBS: Final = "/jobs/"
"""Followed by a hostlist: the jobs on these nodes, as `squeue.parse_jobs` reads them."""
ALIVE: Final = "/alive/"
"""Followed by a port and addresses: those addresses at which a slurmd answers, one per line."""


def jobs(hostlist: str) -> str:
    """The path that asks for the jobs on these nodes."""
    return JOBS + quote(hostlist, safe="")


def alive(port: int, addresses: Iterable[str]) -> str:
    """The path that asks at which of these addresses a slurmd answers."""
    return f"{ALIVE}{port}/{','.join(addresses)}"
