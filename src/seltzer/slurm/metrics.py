"""Job counts from slurmctld's own metrics: current, and as cheap with 30,000 jobs as with none.

They are at `/metrics/jobs` and `/metrics/partitions` on slurmctld's port (6817) when slurm.conf has
`MetricsType=metrics/openmetrics`.
"""

from __future__ import annotations

import msgspec

from seltzer.slurm.errors import Unavailable
from seltzer.slurm.http import Http

PREFIX = "slurm_jobs_"


class JobCounts(msgspec.Struct, frozen=True, gc=False):
    """How many jobs are in each state that a cluster's status shows, and what they hold."""

    running: int
    pending: int
    completing: int = 0
    configuring: int = 0
    suspended: int = 0
    hold: int = 0
    nodes_alloc: int = 0
    cpus_alloc: int = 0


async def jobs_in_partition(http: Http, partition: str) -> int:
    """How many jobs of a partition haven't ended; 0 if there is no such partition. Raises Unavailable if unknown."""
    text = await _ask(http, "/metrics/partitions")
    if "slurm_partitions " not in text:
        raise Unavailable("slurmctld's metrics don't say which partitions there are")
    wanted = f'slurm_partition_jobs{{partition="{partition}"}} '
    for line in text.splitlines():
        if line.startswith(wanted):
            return _number(line, line.removeprefix(wanted))
    return 0


async def job_counts(http: Http) -> JobCounts:
    """Get the job counts from the slurmctld at `http`. Raises Unavailable if unknown."""
    return parse(await _ask(http, "/metrics/jobs"))


async def _ask(http: Http, path: str) -> str:
    answer = await http.exchange("GET", path)
    if answer.status != 200:
        raise Unavailable(f"slurmctld's metrics answered with {answer.status}: {answer.gist}")
    return answer.body.decode(errors="replace")


def parse(text: str) -> JobCounts:
    """The counts in OpenMetrics text. Raises Unavailable if it lacks running or pending jobs."""
    counts = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        key = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and key in JobCounts.__struct_fields__:
            counts[key] = _number(line, rest)
    if not {"running", "pending"} <= counts.keys():
        raise Unavailable("slurmctld's metrics don't say how many jobs run and wait")
    return JobCounts(**counts)


def _number(line: str, value: str) -> int:
    try:
        return int(float(value.split()[0]))
    except (ValueError, IndexError, OverflowError):
        raise Unavailable(f"slurmctld's metrics have a malformed line: {line[:80]!r}") from None
