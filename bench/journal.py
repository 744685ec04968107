"""The cost of keeping jobs: the same submissions with our job_submit script and, as the floor, without any.

Several clients submit with sbatch on the login pod, to an empty queue and to a long one. In the floor's turns there is
no job_submit plugin at all; turns alternate, in one slurmctld, and the best of each counts. Run it with `make bench`.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import defaultdict
from dataclasses import dataclass

from bench.rows import Row, report
from tests.harness import Cluster, Sandbox, succeed

from seltzer.build import journal
from seltzer.build.userconf import UserConf
from seltzer.progress import Progress

NAME = "bench"
CLIENTS = 8
TURNS = 2
# Nodes that don't exist: jobs wait, and the scheduler has to consider them.
CONF = """
MaxJobCount=50000
NodeName=away NodeAddr=127.0.0.1 CPUs=4 State=DOWN
PartitionName=waiting Nodes=away Default=YES
"""
_RPC = re.compile(r"REQUEST_SUBMIT_BATCH_JOB\s.*count:(\d+)\s+ave_time:(\d+)")


@dataclass(frozen=True)
class Turn:
    """The cost of some submissions."""

    per_second: float
    milliseconds: float
    """Per submission, in slurmctld, from its arrival to its answer."""
    cpu: float
    """Milliseconds per submission."""


def submit(cluster: Cluster, count: int) -> Turn:
    each = count // CLIENTS
    clients = (
        f"for c in $(seq {CLIENTS}); do (for j in $(seq {each}); do sbatch -Q -o /dev/null j.sh; done) & done; wait"
    )
    cluster.login("sdiag", "--reset", user="root")
    started, used = time.monotonic(), cpu_seconds(cluster)
    cluster.login("sh", "-c", f"printf '#!/bin/sh\\ntrue\\n' >j.sh; {clients}")
    seconds, used = time.monotonic() - started, cpu_seconds(cluster) - used
    found = _RPC.search(cluster.login("sdiag", user="root"))
    if found is None or int(found[1]) != each * CLIENTS:
        raise SystemExit(f"bench: {each * CLIENTS} jobs were submitted, but sdiag says {found and found[1]}")
    return Turn(each * CLIENTS / seconds, int(found[2]) / 1000, used * 1000 / (each * CLIENTS))


def cpu_seconds(cluster: Cluster) -> float:
    """The CPU time of slurmctld since its start."""
    ask = (
        "ps --ppid 1 -o pid=,args= | while read pid args; do case $args in *slurmctld*) cat /proc/$pid/stat; esac; done"
    )
    stat = cluster.in_controller("sh", "-c", ask).stdout
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def configure(cluster: Cluster, kept: bool) -> None:
    """As `controller.keepJobs` does it, but without the new pod that it needs."""
    script = journal.keep(UserConf({}, (), {})).files[journal.SCRIPT] if kept else None
    plugins = "JobSubmitPlugins=lua\n" if kept else ""
    found = cluster.configure({"slurm.conf": f"{CONF}{plugins}", journal.SCRIPT: script})
    if found["status"] != "True":
        raise SystemExit(f"bench: {found['message']}")


def measure(cluster: Cluster, count: int) -> list[Row]:
    """With the current number of jobs in the queue."""
    queued = len(cluster.login("squeue", "--noheader", "--format=%i").splitlines())
    turns: dict[bool, list[Turn]] = defaultdict(list)
    for _ in range(TURNS):
        for kept in (False, True):
            configure(cluster, kept)
            turns[kept].append(submit(cluster, count))
    behind = f"kept jobs, {round(queued, -3):,} queued"
    return [
        Row(
            f"{behind}: sbatch from {CLIENTS} clients",
            max(turn.per_second for turn in turns[True]),
            "jobs/s",
            max(turn.per_second for turn in turns[False]),
        ),
        Row(
            f"{behind}: a submission in slurmctld",
            min(turn.milliseconds for turn in turns[True]),
            "ms",
            min(turn.milliseconds for turn in turns[False]),
        ),
        Row(
            f"{behind}: slurmctld's CPU for a submission",
            min(turn.cpu for turn in turns[True]),
            "ms",
            min(turn.cpu for turn in turns[False]),
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=5_000, help="how long the long queue is")
    parser.add_argument("--jobs", type=int, default=400, help="how many jobs to submit in a turn")
    asked = parser.parse_args()
    try:
        succeed("sandbox", "up", "--name", NAME)
        sandbox = Sandbox(NAME)
        sandbox.seltzer("install")
        cluster = Cluster(sandbox, "bench-journal", "demo")
        cluster.create({"config": {"slurm.conf": CONF}, "controller": {"keepJobs": False}})
        cluster.wait_ready()
        with Progress() as progress:
            with progress.step("an empty queue"):
                rows = measure(cluster, asked.jobs)
            with progress.step(f"{asked.queued:,} more jobs"):
                while asked.queued > (there := len(cluster.login("squeue", "-h", "-o", "%i").splitlines())):
                    submit(cluster, min(2_000, asked.queued - there + CLIENTS))
            with progress.step("a long queue"):
                rows += measure(cluster, asked.jobs)
    finally:
        succeed("sandbox", "down", "--name", NAME)
    report(rows)


if __name__ == "__main__":
    main()
