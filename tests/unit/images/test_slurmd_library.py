"""The library that is preloaded into slurmd: what slurmd learns of a login without namespaces."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "images" / "slurm" / "slurmd.c"
# As slurmd does it: a login that ends with code 7 and leaves a chain of processes behind: each ends after its parent.
# Without root, which may have namespaces.
LOGIN = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int login(void *argument)
{
    (void) argument;
    for (int left = 0; left < 20; left++)
        if (fork()) {
            if (left)
                pause();
            return 7;
        }
    pause();
    return 1;
}

int main(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    int status;
    if (getuid() == 0 && setuid(65534))
        return 1;
    pid_t started = clone(login, stack + sizeof(stack), CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, NULL);
    if (waitpid(started, &status, 0) != started || !WIFEXITED(status))
        return 1;
    printf("%d\n", WEXITSTATUS(status));
}
"""


def test_the_status_of_a_login_is_its_own_not_that_of_what_it_left_behind(tmp_path: Path) -> None:
    (tmp_path / "login.c").write_text(LOGIN)
    program = tmp_path / "login"
    subprocess.run(["gcc", "-O2", "-o", program, tmp_path / "login.c", SOURCE], check=True)
    assert subprocess.run([program], capture_output=True, text=True).stdout == "7\n"


# As slurmstepd starts a task: as a user who may not look into the process any more.
TASK = r"""
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    if (fork() == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        execve("/bin/cat", (char *[]) {"cat", "/proc/self/oom_score_adj", NULL}, (char *[]) {NULL});
    }
    wait(NULL);
    if (fork() == 0)
        execve("/bin/sh", (char *[]) {"sh", "-c", "cat /proc/$PPID/oom_score_adj", NULL}, (char *[]) {NULL});
    wait(NULL);
}
"""


@pytest.mark.parametrize(("name", "more"), [("slurmstepd", 20), ("slurmd", 0)])
def test_the_kernel_ends_a_task_before_its_slurmstepd(tmp_path: Path, name: str, more: int) -> None:
    (tmp_path / "task.c").write_text(TASK)
    program = tmp_path / name
    subprocess.run(["gcc", "-O2", "-o", program, tmp_path / "task.c", SOURCE], check=True)
    ours = int(Path("/proc/self/oom_score_adj").read_text())
    task, step = (int(line) for line in subprocess.run([program], capture_output=True, text=True).stdout.split())
    assert (task, step) == (min(1000, ours + more), ours)
