"""With `cgroups: v2`, the kernel keeps each job to its memory and its cores, in pods without privileges.

These tests need a machine with cgroup v2; elsewhere they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness import Cluster, Sandbox, until

pytestmark = pytest.mark.skipif(
    not Path("/sys/fs/cgroup/cgroup.controllers").exists(),
    reason="this machine has cgroup v1; 'seltzer sandbox pack' carries the tests to one with cgroup v2",
)

NODE = "cpu-0"
ON_NODE = f"--nodelist={NODE}"
# `tail` keeps a line without an end in its memory.
HOG = "head -c 900M /dev/zero | tail >/dev/null; echo went on"
SLURMD = r'for each in /proc/[0-9]*; do [ "$(cat "$each/comm")" = slurmd ] && echo "${each#/proc/}"; done 2>/dev/null'
# Slurm's folders of jobs have names such as s2HSM7TJYP1900, beside two of its own.
JOBS_LEFT = "find /sys/fs/cgroup/system.slice/*.scope -mindepth 1 -maxdepth 1 -type d ! -name system ! -name slurmd"
ZOMBIES = "grep -l '^State:.Z' /proc/[0-9]*/status"
MANY = 100


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "limits", "demo")
    cluster.create_from(Path(__file__).with_name("limits.yaml"))
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def inside(cluster: Cluster, script: str) -> str:
    """What a script prints in slurmd's container, by `kubectl exec`."""
    return cluster.kubectl("exec", NODE, "-c", "slurmd", "--", "sh", "-c", script, check=False).stdout.strip()


def slurmd(cluster: Cluster) -> str:
    """The process ID of slurmd, once there is just one."""
    return until(
        f"{NODE} has one slurmd", lambda: found if len((found := inside(cluster, SLURMD)).split()) == 1 else ""
    )


def until_another(cluster: Cluster, before: str) -> None:
    until(f"{NODE} has another slurmd than process {before}", lambda: slurmd(cluster) != before)


def restarts(cluster: Cluster) -> list[int]:
    pods = cluster.pods("cpu").values()
    return [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]]


def wait_idle(cluster: Cluster) -> None:
    until(
        f"{NODE} answers and has no job", lambda: cluster.slurm_nodes().get(NODE, "") in ("IDLE+DYNAMIC_NORM", "IDLE")
    )


def test_the_nodeset_says_that_limits_are_enforced(cluster: Cluster) -> None:
    found = cluster.condition("nodeset/cpu", "LimitsEnforced")
    assert (found.get("status"), found.get("reason")) == ("True", "Enforced"), found
    assert cluster.setting("TaskPlugin") == "task/cgroup"
    pod = cluster.get(f"pod/{NODE}")["spec"]
    assert not pod["containers"][0]["securityContext"].get("privileged")


def test_a_job_over_its_memory_ends_alone(cluster: Cluster) -> None:
    before = slurmd(cluster), restarts(cluster)
    neighbour = cluster.hold("--mem=200", ON_NODE)
    assert len(inside(cluster, JOBS_LEFT).split()) == 1, "this is how a job looks in the cgroups"
    hog = cluster.sbatch(HOG, "--mem=200", ON_NODE)
    until(f"job {hog} has ended", lambda: cluster.jobs().get(hog) not in ("PENDING", "RUNNING", "COMPLETING"))
    assert cluster.jobs()[hog] == "OUT_OF_MEMORY", cluster.job(hog)
    assert cluster.jobs()[neighbour] == "RUNNING", cluster.job(neighbour)
    cluster.release(neighbour)
    assert (slurmd(cluster), restarts(cluster)) == before


def test_a_step_over_its_memory_says_so_to_its_user(cluster: Cluster) -> None:
    answer = cluster.run("srun", "--mem=200", ON_NODE, "bash", "-c", f"{HOG}")
    assert "Out Of Memory" in answer.stderr or "oom" in answer.stderr.lower(), answer
    assert "DRAIN" not in cluster.slurm_nodes()[NODE]


def test_a_job_within_its_memory_ends_well(cluster: Cluster) -> None:
    answer = cluster.run("srun", "--mem=1200", ON_NODE, "bash", "-c", HOG)
    assert (answer.code, answer.stdout.strip()) == (0, "went on"), answer


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_a_job_has_the_cores_that_it_asked_for(cluster: Cluster, cores: int) -> None:
    answer = cluster.run("srun", f"--cpus-per-task={cores}", "--mem=50", ON_NODE, "nproc")
    assert answer.stdout.strip() == str(cores), answer


def test_kubectl_exec_works(cluster: Cluster) -> None:
    answer = cluster.kubectl("exec", NODE, "-c", "slurmd", "--", "cat", "/proc/self/cgroup", check=False)
    assert answer.code == 0, answer
    assert answer.stdout.startswith("0::/"), answer


def test_sstat_shows_what_the_kernel_counts(cluster: Cluster) -> None:
    """Shared memory belongs to no process of the job any more, and still to the job."""
    file = "/dev/shm/sstat-test"
    job = cluster.sbatch(
        f"trap 'rm {file}' EXIT; head -c 100M /dev/zero >{file}; sleep 900 & wait", "--mem=300", ON_NODE
    )
    cluster.wait_for_job(job, "RUNNING")

    def largest() -> int:
        words = ("sstat", "--allsteps", "--noheader", "--noconvert", "--parsable2", "--format=MaxRSS", f"--jobs={job}")
        return max((int(line) for line in cluster.run(*words).stdout.split() if line.isdigit()), default=0)

    until("sstat counts 100 MiB", lambda: largest() >= 100 << 20, 90)
    cluster.login("scancel", job)
    wait_idle(cluster)


def test_slurmd_reads_a_new_configuration_beside_jobs(cluster: Cluster) -> None:
    job = cluster.hold("--mem=100", ON_NODE)
    for _ in range(3):
        cluster.login("scontrol", "reconfigure", user="root")
        slurmd(cluster)
        answer = cluster.run("srun", "--mem=50", ON_NODE, "hostname")
        assert answer.stdout.strip() == NODE, answer
    assert cluster.jobs()[job] == "RUNNING"
    cluster.release(job)


def test_slurmd_is_killed_and_started_again_beside_jobs(cluster: Cluster) -> None:
    job = cluster.hold("--mem=100", ON_NODE)
    for _ in range(2):
        before = slurmd(cluster)
        inside(cluster, f"kill -KILL {before}")
        until_another(cluster, before)
        answer = cluster.run("srun", "--mem=50", ON_NODE, "hostname")
        assert answer.stdout.strip() == NODE, answer
    assert cluster.jobs()[job] == "RUNNING"
    cluster.release(job)
    hog = cluster.sbatch(HOG, "--mem=100", ON_NODE)
    cluster.wait_for_job(hog, "OUT_OF_MEMORY")


def test_many_jobs_run_at_once_and_leave_nothing(cluster: Cluster) -> None:
    """The partition lets 32 jobs share a core: the kernel's limits are what is tried here."""
    before = restarts(cluster)
    array = cluster.sbatch("trap 'exit 0' USR1; sleep 900 & wait", f"--array=1-{MANY}", "--mem=10", "--job-name=many")
    count = ("squeue", "--noheader", "--name=many", "--states=RUNNING", "--array", "--format=%i")
    until(f"{MANY} jobs run", lambda: len(cluster.login(*count).split()) == MANY, 120)
    cluster.login("scancel", "--batch", "--signal=USR1", array)
    until("all jobs have ended", lambda: not cluster.login("squeue", "--noheader", "--name=many").split(), 120)
    until("no job is left in the cgroups", lambda: not inside(cluster, JOBS_LEFT))
    assert restarts(cluster) == before


def test_nothing_is_left_of_all_these_jobs(cluster: Cluster) -> None:
    wait_idle(cluster)
    until("no job is left in the cgroups", lambda: not inside(cluster, JOBS_LEFT))
    until("no process waits to be reaped", lambda: not inside(cluster, ZOMBIES))
