"""Job counts, from slurmctld's own metrics: fresh, and as cheap with 30,000 jobs as with none.

They are at `/metrics/jobs` on slurmctld's port (6817) when slurm.conf has `MetricsType=metrics/openmetrics`.
"""

from __future__ import annotations

import msgspec

from seltzer.slurm.errors import Unavailable
from seltzer.slurm.http import Http

PREFIX = "slurm_jobs_"


class JobCounts(msgspec.Struct, frozen=True, gc=False):
    """How many jobs are in each state that a cluster's status tells, and what they hold."""

    running: int
    pending: int
    completing: int = 0
    configuring: int = 0
    suspended: int = 0
    hold: int = 0
    nodes_alloc: int = 0
    cpus_alloc: int = 0


async def job_counts(http: Http) -> JobCounts:
    """Ask slurmctld at `http` for its job counts. Unavailable if it doesn't tell."""
    answer = await http.exchange("GET", "/metrics/jobs")
    if answer.status != 200:
        raise Unavailable(f"slurmctld's metrics answered with {answer.status}: {answer.gist}")
    return parse(answer.body.decode(errors="replace"))


def parse(text: str) -> JobCounts:
    """The counts in OpenMetrics text. Unavailable if running or pending jobs aren't in it."""
    counts = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        key = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and key in JobCounts.__struct_fields__:
            try:
                counts[key] = int(float(rest.split()[0]))
            except (ValueError, IndexError, OverflowError):
                raise Unavailable(f"slurmctld's metrics have a line that makes no sense: {line[:80]!r}") from None
    if not {"running", "pending"} <= counts.keys():
        raise Unavailable("slurmctld's metrics don't tell how many jobs run and wait")
    return JobCounts(**counts)
