"""Job counts from slurmctld's metrics."""

from __future__ import annotations

import pytest
from tests.fakes.slurmrestd import FakeSlurmrestd, text

from seltzer.slurm.errors import Unavailable
from seltzer.slurm.http import Http
from seltzer.slurm.metrics import JobCounts, job_counts, jobs_in_partition, parse

TOLD = """\
# HELP slurm_jobs_pending Number of jobs in Pending state
# TYPE slurm_jobs_pending gauge
slurm_jobs_pending 28000
slurm_jobs 28012
slurm_jobs_running 1.2e1 1794780475
slurm_jobs_running_extra 5
slurm_jobs_memory_alloc 99
"""


def test_only_what_we_need_is_read() -> None:
    assert parse(TOLD) == JobCounts(running=12, pending=28000)


@pytest.mark.parametrize("told", ["", "<html>", "slurm_jobs_running 1", "slurm_jobs_running x\nslurm_jobs_pending 1"])
def test_what_makes_no_sense_is_not_zero(told: str) -> None:
    with pytest.raises(Unavailable):
        parse(told)


async def test_metrics_that_are_switched_off_are_unknown() -> None:
    async with FakeSlurmrestd() as fake:
        fake.jobs = {"running": 3, "pending": 4}
        assert await job_counts(Http(fake.url)) == JobCounts(running=3, pending=4)
        fake.faults.append(text("Failed: Invalid or unknown URL path", status=404))
        with pytest.raises(Unavailable, match="404: Failed: Invalid"):
            await job_counts(Http(fake.url))


PARTITIONS = """\
slurm_partitions 2
slurm_partition_jobs{partition="cpu"} 3
slurm_partition_jobs_finished{partition="cpu"} 80
slurm_partition_jobs{partition="cpu2"} 5
"""


async def test_the_jobs_of_one_partition_that_have_not_ended() -> None:
    async with FakeSlurmrestd() as fake:
        http = Http(fake.url)
        for partition, count in (("cpu", 3), ("cpu2", 5), ("gpu", 0)):
            fake.faults.append(text(PARTITIONS))
            assert await jobs_in_partition(http, partition) == count
        for nonsense in ("", "<html>", 'slurm_partitions 1\nslurm_partition_jobs{partition="cpu"} many'):
            fake.faults.append(text(nonsense))
            with pytest.raises(Unavailable):
                await jobs_in_partition(http, "cpu")
