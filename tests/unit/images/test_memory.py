"""The program that keeps jobs to their memory: which one it ends, on processes that look like Slurm's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "images" / "slurm" / "memory.c"
MIB = 1 << 20
# Called `slurmstepd: [JOB.batch]`: says over its socket what the job asked for, and has one task that uses memory and
# prints its job when it has it. A share of 0 is unknown.
STEP = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    int job = atoi(words[1]), asked, version = 45 << 8;
    uint64_t share = atoi(words[2]);
    size_t used = atol(words[3]) << 20;

    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(where.sun_path, sizeof(where.sun_path), "%s/node_%d.0", words[4], job);
    if (count != 6 || bind(server, (struct sockaddr *) &where, sizeof(where)) || listen(server, 9))
        return 1;
    if (fork() == 0) {
        prctl(PR_SET_NAME, "task");
        freopen(words[5], "a", stderr);
        memset(mmap(NULL, used, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, used);
        printf("%d\n", job);
        fflush(stdout);
        for (;;)
            pause();
    }
    for (;;) {
        int peer = accept(server, NULL, NULL);
        if (read(peer, &asked, 4) == 4 && write(peer, &version, 4) == 4 && read(peer, &asked, 4) == 4)
            write(peer, &share, asked == 19 ? 8 : 0);
        close(peer);
    }
}
"""
# With process IDs of its own. Prints what the program does until a line has the word that is waited for.
SCRIPT = r"""
for job in "${@:3}"; do
    IFS=: read -r number share used <<<"$job"
    coproc (exec -a "slurmstepd: [$number.batch]" ./slurmstepd "$number" "$share" "$used" spool "$number.out")
    read -r number <&"${COPROC[0]}"
    exec {COPROC[0]}<&-
done 2>/dev/null
exec 3< <(exec ./memory)
while read -r line <&3; do
    echo "$line"
    [[ $line == *"$2"* ]] && exit
done
"""
CAPABLE = not subprocess.run(["unshare", "-r", "-p", "-f", "--mount-proc", "true"]).returncode
pytestmark = [
    pytest.mark.skipif(not CAPABLE, reason="this user may have no namespaces"),
    pytest.mark.real_time,
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs, which look for files in the folder that they run in."""
    folder = tmp_path_factory.mktemp("memory")
    (folder / "step.c").write_text(STEP)
    macros = ['-DCGROUP="cgroup"', '-DSPOOL="spool"', '-DSHM="shm"', "-DSAMPLE_MS=100"]
    subprocess.run(["gcc", "-Wall", "-O2", *macros, "-o", folder / "memory", SOURCE], check=True)
    subprocess.run(["gcc", "-O2", "-w", "-o", folder / "slurmstepd", folder / "step.c"], check=True)
    return folder


@pytest.fixture
def node(programs: Path, tmp_path: Path) -> Iterator[Path]:
    for program in ("memory", "slurmstepd"):
        (tmp_path / program).symlink_to(programs / program)
    for folder in ("spool", "shm", "cgroup/memory"):
        (tmp_path / folder).mkdir(parents=True)
    yield tmp_path


def run(node: Path, until: str, *jobs: str, env: Mapping[str, str] | None = None) -> str:
    """What the program says while these jobs run, each as number:asked:used in MiB."""
    isolated = ["unshare", "-r", "-p", "-f", "--mount-proc", "--kill-child"]
    words = [*isolated, "bash", "-c", SCRIPT, "script", "", until, *jobs]
    # The commands of Slurm's that it calls aren't found.
    variables = {"PATH": "/usr/bin:/bin", **(env or {})}
    return subprocess.run(words, cwd=node, env=variables, capture_output=True, text=True, timeout=60).stdout


def cgroup_v2(node: Path, limit: int | None, current: int, cache: int = 0) -> None:
    folder = node / "cgroup"
    (folder / "memory.max").write_text("max\n" if limit is None else f"{limit * MIB}\n")
    (folder / "memory.current").write_text(f"{current * MIB}\n")
    half = cache * MIB // 2
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {half}\nactive_file {half}\nslab_reclaimable 0\n")


def cgroup_v1(node: Path, limit: int | None, current: int, cache: int = 0) -> None:
    folder = node / "cgroup" / "memory"
    bound = 9223372036854771712 if limit is None else limit * MIB
    half = cache * MIB // 2
    (folder / "memory.stat").write_text(
        f"inactive_file 0\nactive_file 0\nhierarchical_memory_limit {bound}\n"
        f"total_inactive_file {half}\ntotal_active_file {half}\n"
    )
    (folder / "memory.usage_in_bytes").write_text(f"{current * MIB}\n")


def test_a_job_that_uses_more_than_it_asked_for_is_ended_and_told_why(node: Path) -> None:
    said = run(node, "job 12 is ended", "11:200:100", "12:40:100", "13:0:100").splitlines()
    assert len(said) == 1
    assert said[0].startswith("seltzer: job 12 is ended: it asked for 40 MiB on this node and uses 100 MiB")
    assert (node / "12.out").read_text() == said[0].replace("seltzer: ", "seltzer: error: ") + "\n"
    assert not (node / "11.out").read_text() and not (node / "13.out").read_text()


def test_no_job_has_less_than_what_a_shell_takes(node: Path) -> None:
    assert run(node, "job 2 is ended", "1:1:20", "2:1:60").startswith("seltzer: job 2 is ended: it asked for 30 MiB")


@pytest.mark.parametrize("write", [cgroup_v1, cgroup_v2])
def test_when_the_pod_is_out_of_memory_the_job_furthest_over_its_share_is_ended_first(
    node: Path, write: object
) -> None:
    assert callable(write)
    write(node, 1000, 990)
    said = run(node, "is ended", "1:300:200", "2:50:80", "3:40:120", "4:0:150", env={"SELTZER_MEMORY_SAMPLING": "0"})
    assert said.startswith(
        "seltzer: job 3 is ended: its node is out of memory (990 of 1000 MiB), and the job, which asked for 40"
    )


@pytest.mark.parametrize("write", [cgroup_v1, cgroup_v2])
def test_what_the_kernel_can_drop_and_a_pod_without_a_limit_are_no_reason(node: Path, write: object) -> None:
    """The job that is ended exceeds its share: nothing else ends it."""
    assert callable(write)
    write(node, 1000, 990, cache=500)
    assert "it asked for" in run(node, "is ended", "1:300:200", "2:40:80")
    write(node, None, 99000)
    for left in (node / "spool").iterdir():
        left.unlink()
    assert "it asked for" in run(node, "is ended", "1:300:200", "2:40:80")


def test_without_a_job_over_its_share_one_of_unknown_share_is_ended_before_its_neighbours(node: Path) -> None:
    cgroup_v2(node, 1000, 990)
    assert run(node, "is ended", "1:300:200", "2:0:60").startswith("seltzer: job 2 is ended: its node is out of memory")


def test_the_limit_of_the_pod_counts_if_the_container_has_none(node: Path) -> None:
    cgroup_v2(node, None, 990)
    said = run(node, "is ended", "1:100:200", env={"SELTZER_MEMORY_LIMIT": str(1000 * MIB)})
    assert "its node is out of memory (990 of 1000 MiB)" in said
