"""Memory without cgroups: every job has a figure, and one that exceeds it ends alone, even if the pod has run out."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness import Cluster, Sandbox, until

MANIFEST = Path(__file__).with_name("limits.yaml")
ROUNDS = int(os.environ.get("LIMITS_ROUNDS", "3"))
# 640 MiB, less what Seltzer keeps for slurmd and as its margin.
MEMORY = 640 - 40 - 48
HOLD = "import time; held = bytearray(b'x') * ({} << 20); time.sleep(900)"
BURST = "import time; held = []\nwhile True: held.append(bytearray(b'x') * (8 << 20)); time.sleep({})"
# Pages that are the same for all of five processes.
SHARE = "import os, time; held = bytearray(b'x') * (80 << 20); any(os.fork() == 0 for _ in range(4)); time.sleep(900)"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    """The cluster of limits.yaml."""
    cluster = Cluster(installed, "limits", "demo")
    cluster.create_from(MANIFEST)
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def python(cluster: Cluster, program: str, *options: str) -> str:
    """Submit a job that is one Python process; its ID."""
    return cluster.sbatch(f"exec python3 -c {shlex.quote(program)}", "--partition=small", *options)


def as_bob(cluster: Cluster, script: str, *options: str) -> str:
    """Submit as somebody who has no home; the job's ID."""
    become = ("setpriv", "--reuid=bob", "--regid=bob", "--init-groups", "--reset-env")
    words = (*become, "sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *options, f"--wrap={script}")
    return cluster.kubectl("exec", "deployment/demo-login", "--container=login", "--", *words).stdout.strip()


def memory_of(cluster: Cluster, job: str) -> int:
    """What the job has, in MiB, as slurmctld accounts it."""
    found = re.search(r"mem=([0-9.]+)([MG])", cluster.job(job)["AllocTRES"])
    assert found, cluster.job(job)
    return round(float(found[1]) * (1024 if found[2] == "G" else 1))


def ends(cluster: Cluster, job: str) -> dict[str, str]:
    """The record of a job that ends."""
    until(f"job {job} has ended", lambda: cluster.jobs()[job] not in ("PENDING", "RUNNING", "COMPLETING"))
    return cluster.job(job)


def container(cluster: Cluster) -> tuple[str, int]:
    """Which container slurmd runs in, and how often it was started."""
    (status,) = cluster.get("pod/small-0")["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]


def test_a_job_that_asks_for_no_memory_has_its_cpus_share(cluster: Cluster) -> None:
    one, two = (cluster.sbatch("sleep 900", "--partition=small", f"--cpus-per-task={cpus}") for cpus in (1, 2))
    whole = cluster.sbatch("sleep 900", "--partition=whole")
    try:
        for job in (one, two, whole):
            cluster.wait_for_job(job, "RUNNING")
        assert (memory_of(cluster, one), memory_of(cluster, two)) == (MEMORY // 4, MEMORY // 4 * 2)
        node = cluster.slurm_node("whole-0")
        assert 0 < memory_of(cluster, whole) * int(node["CPUTot"]) <= int(node["RealMemory"])
        assert memory_of(cluster, whole) * int(node["CPUTot"]) > int(node["RealMemory"]) * 0.8
    finally:
        cluster.login("scancel", one, two, whole)


def test_memory_is_scheduled(cluster: Cluster) -> None:
    first = cluster.sbatch("sleep 900", "--partition=small", f"--mem={MEMORY}")
    cluster.wait_for_job(first, "RUNNING")
    second = cluster.sbatch("true", "--partition=small", "--mem=1")
    until("the second waits", lambda: cluster.job(second)["Reason"] == "Resources")
    cluster.login("scancel", first)
    cluster.wait_for_job(second, "COMPLETED")


def test_a_job_over_its_memory_is_ended_and_says_why(cluster: Cluster) -> None:
    output = "over.out"
    job = python(cluster, HOLD.format(200), "--mem=100", "--requeue", f"--output=/dev/shm/{output}")
    record = ends(cluster, job)
    assert (record["JobState"], record["ExitCode"], record["Restarts"]) == ("OUT_OF_MEMORY", "0:125", "0")
    words = f"job {job} is ended: it asked for 100 MiB on this node and uses 2"
    assert words in cluster.login("scontrol", "show", "job", job)
    assert words in cluster.kubectl("logs", "small-0", "--container=slurmd").stdout
    assert words in cluster.kubectl("exec", "small-0", "--", "cat", f"/dev/shm/{output}").stdout


def test_a_task_of_an_array_is_ended_alone(cluster: Cluster) -> None:
    script = f"[ $SLURM_ARRAY_TASK_ID = 2 ] && exec python3 -c {shlex.quote(HOLD.format(200))}; sleep 900"
    array = cluster.sbatch(script, "--partition=small", "--array=0-2", "--mem=100")
    until("the task is out of memory", lambda: cluster.jobs().get(f"{array}_2") == "OUT_OF_MEMORY")
    assert [cluster.jobs()[f"{array}_{task}"] for task in (0, 1)] == ["RUNNING", "RUNNING"]
    assert "AdminComment" not in cluster.job(f"{array}_0")
    cluster.login("scancel", array)


def test_memory_that_processes_share_counts_once(cluster: Cluster) -> None:
    job = python(cluster, SHARE, "--mem=180")
    cluster.wait_for_job(job, "RUNNING")
    other = python(cluster, HOLD.format(200), "--mem=100")
    assert ends(cluster, other)["JobState"] == "OUT_OF_MEMORY", "it was looked at as often"
    assert cluster.jobs()[job] == "RUNNING"
    cluster.login("scancel", job)


@pytest.fixture
def neighbours(cluster: Cluster) -> Iterator[list[str]]:
    """Two jobs that keep to what they asked for."""
    jobs = [python(cluster, HOLD.format(110), "--mem=200") for _ in range(2)]
    for job in jobs:
        cluster.wait_for_job(job, "RUNNING")
    yield jobs
    cluster.login("scancel", *jobs)


@pytest.mark.parametrize(
    ("pause", "states"),
    # As fast as it can, where the kernel may be faster than we are: then it ends the hog.
    [("0.02", {"OUT_OF_MEMORY"}), ("0", {"OUT_OF_MEMORY", "FAILED"})],
)
def test_when_the_pod_is_out_of_memory_the_hog_ends_and_its_neighbours_go_on(
    cluster: Cluster, neighbours: list[str], pause: str, states: set[str]
) -> None:
    before = container(cluster)
    for round_ in range(ROUNDS):
        record = ends(cluster, python(cluster, BURST.format(pause), "--mem=100"))
        assert record["JobState"] in states, (round_, record)
        assert [cluster.jobs()[job] for job in neighbours] == ["RUNNING", "RUNNING"], round_
    assert container(cluster) == before
    assert "its node is out of memory" in cluster.kubectl("logs", "small-0", "--container=slurmd").stdout


def test_files_that_ended_jobs_left_in_shared_memory_are_removed_when_it_is_short(cluster: Cluster) -> None:
    left = cluster.sbatch("head -c 300M /dev/zero >/dev/shm/left", "--partition=small", "--mem=100")
    assert ends(cluster, left)["JobState"] == "COMPLETED"
    job = as_bob(cluster, f"exec python3 -c {shlex.quote(HOLD.format(300))}", "--partition=small", "--mem=400")
    cluster.wait_for_job(job, "RUNNING")
    until("they are gone", lambda: cluster.kubectl("exec", "small-0", "--", "ls", "/dev/shm").stdout.find("left") < 0)
    assert cluster.jobs()[job] == "RUNNING"
    cluster.login("scancel", job, user="root")
