"""docs/faults.md and its plot, written from the results."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import plot
from .results import ROOT

_LEFT = "held | no-requeue | ghosts | no-requeue"
PAGE = ROOT / "docs" / "faults.md"
PLOT = ROOT / "docs" / "faults.svg"

_HEAD = """\
# What faults cost

<!-- Written by `python -m tests.faults.campaign --page` from build/faults.json, or else docs/faults.json. To change the
text, edit tests/faults/campaign/page.py. -->

`make faults` breaks a real cluster in a [sandbox](sandbox.md), over and over, while jobs run, wait and are being
submitted. It measures how long each fault lasts for users, and what happens to the jobs.

![Seconds until slurmctld answers, a new job runs and the pool is whole, for each fault](faults.svg)

## When slurmctld is hit
"""

_POOL = """\
## When the nodes of a pool are hit

In these rows slurmctld is on a node that isn't hit. The slurmds that run the jobs are on other nodes: a NodeSet with
four replicas, one on each of four Kubernetes nodes.
"""

_POOL_WORDS = """\
"Whole" is the time from the fault until as many nodes accept jobs in Slurm as the NodeSet has replicas, and this lasts.
A node on a machine that is dead, cut off or frozen doesn't count, whatever state Slurm shows. The campaign asks
slurmctld for the nodes twice a second. Here Kubernetes notices after 8 s that a node is gone (48 s by its defaults).
The operator then probes the slurmds itself, has the jobs of those that don't respond requeued, and creates replacement
nodes with other names.

- **Requeued**: the job was on a lost node, and Slurm requeued it: it is pending, or has started again. Slurm delays
  the new start for two minutes (`cred_expire`). A job whose start never reached the node is requeued whatever its
  flags.
- **Failed**: the same for a job with `--no-requeue`. It isn't run again, and Slurm reports it with the state NODE_FAIL.
  On a node that was only cut off, jobs of both kinds may run to their end without anyone seeing the result.
- **Twice** counts every second start of a job with `--no-requeue`. For the other jobs it means the same as above.
- **Cut for 5 s**: no node is given up, and the jobs on that node continue. The same is true while a **kubelet**
  restarts. While a kubelet is down for 20 s its slurmds still respond: they accept no new jobs, and running jobs
  aren't touched.
- **slurmctld fails over**: within 12 s after the fault the pod of slurmctld is deleted by force, and its standby takes
  over. "Answers" is measured from that moment.

Each repeat also checks the processes of all nodes, including the lost ones: no two slurmds with the same name are alive
at the same time. The repeat without the operator is done only for faults from which the pool recovers without it.
"""

_WORDS = """\
"Answers" is the time from the fault until slurmctld responds to a login pod and keeps responding. The login pod sends
five requests a second. For a fault without effect, this is the duration of one request; a request that later ones
overtake doesn't count. "Job" is the time from the fault until a job runs that was submitted after it, on a node with
free CPUs. slurmctld schedules for the first time two to three seconds after its start. Both columns have the median and
the worst of the repeats, in seconds. The first row has no fault.

- **Lost**: `sbatch` acknowledged the job, but afterwards it isn't in the queue, never recorded its start, and is
  neither held nor named in the annotation `seltzer.dev/recovered` of the Lease.
- **Twice**: the job started a second time, under its own ID or another one. A job that the fault killed and that Slurm
  itself requeued (`JobRequeue`; its restart count has grown) doesn't count, even if its script had written its last
  line and not yet exited, or its node not yet reported that, when slurmctld had the node kill it.
- **Killed**: the job had started, and the fault ended it. Slurm ends a job that it doesn't remember when a node
  reports the job. Jobs that may be requeued are in the queue again, with a restart count.
- **Held**: the job is in the queue for a person to decide, because it had started, or may have.
- **Ghosts**: jobs that for 40 seconds have run only according to slurmctld. They had ended, or their start never
  reached a node, and they occupy CPUs that nothing uses. Sooner, their node reports their end again (after 15 s), or
  all nodes register again (20 s after a repair; the next crash begins that anew). Rows without a no-requeue column
  are older and count jobs after 10 s. The campaign cancels ghosts.
- **No-requeue**: the same for jobs with `--no-requeue`, which are half of all jobs. Nobody may start them again. The
  columns before these have the other jobs, except in rows without these numbers: they are older, and have all jobs.
- **srun**: how many of the `srun` commands that ran or waited at the time of the fault failed, or hung for 15 seconds.
  Only one row has any.

Every job records its start and its end, with its ID and restart count, on a volume that no fault reaches. The campaign
records acknowledged jobs beside the login pod. In one repeat of each row there is no operator, from before the fault
until after the recovery. When the API server is down, the controller manager and the scheduler are down too, as with
leader election in a cluster that has several of them. The cluster is observed for 20 more seconds after the API server
is back.

Each repeat also checks the state volume. The guards write stamps to it at each start, stop, crash and save, and these
never return to an older epoch. If a node was cut off or frozen, the new slurmctld is stopped for a moment before the
old node comes back, and no state file may change meanwhile.
"""

_BODY = """\
## What can't be kept

- **Interactive jobs.** An `srun` or `salloc` that was acknowledged in the last five seconds before a SIGKILL isn't in
  the saved state, and its client is gone or hangs. It is reported and not put back.
- **Running jobs that slurmctld had not saved.** A job that started in those seconds is ended when its node reports to
  the new slurmctld. If it may be requeued, which is Slurm's default for batch jobs, it starts over about 40 s later.
  With `--no-requeue` it is held for a person to decide. A job that has ended by itself before its node reports
  doesn't start again. One whose script has run its last line by then, and not yet exited, does.
- **Some options** of a job that is put back: those that Slurm doesn't show to plugins, such as `--deadline`,
  `--open-mode`, `--signal` and binding. The age of the job starts at zero again.
- **A power loss.** Data that the kernel has accepted for the disk survives a SIGKILL and a killed node. It doesn't
  survive a power loss of the machine or of a storage server. The nodes of the sandbox share one kernel, and the
  campaign's state volume is in memory (tmpfs): a power loss isn't measured here, and saving is cheaper than on a disk.
- **Jobs on a lost node.** They start over if their flags allow it. Jobs on a node that is only cut off can't be ended
  before the node is back.
- **Seconds of silence at a reconfigure.** slurmctld doesn't respond for up to three seconds if its own threads wait for
  nodes that don't respond. 20 s after a recovery the guard makes all nodes register again, with a reconfigure. It
  therefore waits until there are no such threads, for at most two minutes. A change of the configuration doesn't wait.
- **Single requests.** With the API server down and a SIGKILL, and a second campaign running on the same cores, two of
  ten repeats lost one request each, 14 and 20 s after the fault, with responses a fifth of a second before and after.
  Ten more repeats without the second campaign (the row above) lost none, nor did 30 reconfigures of a cluster without a
  recovery, of 10,994 requests. The cause isn't known.
- **Time.** Nothing here is faster than Kubernetes: without a standby, Kubernetes has to notice that a node is gone (8 s
  in the sandbox, 48 s by its defaults) and start a pod.

## Run it again

```console
make faults                                   # the whole campaign, about four hours on 2 cores
.venv/bin/python -m tests.faults.campaign --list
.venv/bin/python -m tests.faults.campaign --rows "node cut;node killed" --repeats 3 --seed 1
.venv/bin/python -m tests.faults.campaign --page   # this page, from build/faults.json
```

Rows that are run replace their old results in `build/faults.json`; the others stay. If a repeat fails, its logs,
events and affected jobs are kept in `build/faults/`. Each fault is a line in `tests/faults/campaign/table.py`.
"""


def write(rows: Sequence[dict[str, Any]], page: Path = PAGE, picture: Path = PLOT) -> None:
    page.write_text(text(rows))
    picture.write_text(plot.draw(rows))


def text(rows: Sequence[dict[str, Any]]) -> str:
    pool = [row for row in rows if "whole_s" in row]
    parts = [_HEAD, table([row for row in rows if row not in pool]), "", _about(rows), "", _WORDS]
    if pool:
        parts += [_POOL, pool_table(pool), "", _POOL_WORDS]
    return "\n".join([*parts, _BODY.rstrip(), *_failures(rows), ""])


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"| fault | n | answers | worst | job | worst | acknowledged | lost | twice | killed | {_LEFT} | srun |",
        f"|{'---|' * 15}",
    ]
    for row in rows:
        counts = [row[f"jobs_{what}"] for what in ("acknowledged", "lost", "twice", "killed")]
        broken = f"{row['interactive_broken']} of {row['interactive']}" if row.get("interactive") else ""
        lines.append(_line(row, ("answer_s", "job_s"), counts, *_left(row), broken))
    return "\n".join(lines)


def pool_table(rows: Sequence[dict[str, Any]]) -> str:
    counted = f"acknowledged | lost | twice | requeued | failed | killed | {_LEFT}"
    lines = [f"| fault | n | whole | worst | answers | worst | {counted} |", f"|{'---|' * 16}"]
    for row in rows:
        first = [row[f"jobs_{what}"] for what in ("acknowledged", "lost", "twice")]
        counts = [*first, row["requeued"], row["failed"], row["jobs_killed"]]
        lines.append(_line(row, ("whole_s", "answer_s"), counts, *_left(row)))
    return "\n".join(lines)


def _left(row: dict[str, Any]) -> list[str]:
    """What is left for a person: of the jobs that may be requeued, and of the others where that was counted."""
    cells = []
    for what in ("held", "ghosts"):
        once = row.get(f"{what}_once")
        cells += [f"{row[f'jobs_{what}'] - (once or 0):,}", "" if once is None else f"{once:,}"]
    return cells


def _line(row: dict[str, Any], timed: Sequence[str], counts: Sequence[int], *more: str) -> str:
    seconds = [row[what][which] for what in timed for which in ("median", "worst")]
    cells = [row["name"], str(row["n"]), *map(_seconds, seconds), *(f"{count:,}" for count in counts), *more]
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """The machine that this ran on: cores, memory and kernel version, and nothing that identifies it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {'.'.join(platform.release().split('.')[:2])}"


def commit() -> str:
    """The commit that this ran on; with a plus if the tree had uncommitted changes."""
    words = ("git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*")
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=30).stdout.strip()


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return "0" if seconds == 0 else f"{seconds:.1f}"


def _about(rows: Sequence[dict[str, Any]]) -> str:
    machines = sorted({row["machine"] for row in rows})
    days = sorted({row["when"] for row in rows})
    loads = sorted({f"{row['in_flight']}" for row in rows})
    seeds = sorted({row["seed"] for row in rows if row.get("did")})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else "never"
    about = [
        f"Measured {when} on {' and '.join(machines) or 'nothing'}, shared by Kubernetes, Slurm, the jobs and the "
        f"requests; {' and '.join(loads)} jobs in flight."
    ]
    for row in rows:
        pairs = sorted(set(row.get("did", [])))
        if pairs:
            about.append(f"Two at random, seed {', '.join(map(str, seeds))}: {'; '.join(pairs)}.")
    return "\n".join(about)


def _failures(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A section with the repeats that failed; nothing if all succeeded."""
    wrong = [f"- {row['name']}, {failure.splitlines()[0]}" for row in rows for failure in row["failures"]]
    return ["", "## Repeats that failed", "", *wrong] if wrong else []
