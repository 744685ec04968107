"""Jobs that slurmctld has saved: what a crash makes of others is for other tests."""

from __future__ import annotations

import time

from tests.harness import Cluster, until


def saved_job(cluster: Cluster, *options: str) -> str:
    """A job that runs, and that slurmctld has saved as running."""
    job, since = cluster.hold(*options), time.time_ns()
    marker = cluster.sbatch("true", "--hold")  # one more change, and so one more save
    until("slurmctld has saved it", lambda: int(report(cluster).get("seltzer.dev/saved", 0)) > since)
    cluster.login("scancel", marker)
    return job


def report(cluster: Cluster) -> dict[str, str]:
    """What the guard says about slurmctld: the annotations of the controller's Lease."""
    found: dict[str, str] = cluster.get(f"lease/{cluster.name}-slurmctld")["metadata"]["annotations"]
    return found
