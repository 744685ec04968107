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

PAGE = ROOT / "docs" / "faults.md"
PLOT = ROOT / "docs" / "faults.svg"

_HEAD = """\
# What faults cost

<!-- Written by `python -m tests.faults.campaign --page` from build/faults.json: change the words in
tests/faults/campaign/page.py. -->

`make faults` breaks a real cluster in a [sandbox](sandbox.md), over and over, while jobs run, wait and are being
submitted, and measures what is felt of it.

![Seconds until slurmctld answers, a new job runs and the pool is whole, for each fault](faults.svg)

## When slurmctld is hit
"""

_POOL = """\
## When the nodes of a pool are hit

Here slurmctld is on a node that stays, and the slurmds that jobs run on are on others: a NodeSet with four replicas,
one on each of four Kubernetes nodes. Half of the jobs were submitted with `--no-requeue`.
"""

_POOL_WORDS = """\
"Whole" is from the fault until Slurm has as many nodes that take jobs as the NodeSet has replicas, and keeps them. A
node on a machine that is dead, cut off or frozen doesn't count, whatever Slurm says of it. slurmctld is asked for them
twice a second. Kubernetes takes 8 s here to notice that a node is gone (48 s by its defaults); then the operator asks
the slurmds themselves, has the jobs of those that don't answer put back, and makes others under other names.

- **Requeued**: it was on a node that was lost, and Slurm put it back: it waits, or has been started again. Slurm lets
  it wait for two minutes (`cred_expire`). One whose start never reached the node is put back whatever its flags.
- **Failed**: the same for a job with `--no-requeue`. It isn't run again, and Slurm says so: its state is NODE_FAIL.
  On a node that was only cut off, jobs of both kinds may run to their end, but nobody hears of it.
- **Twice** counts every second start of a job with `--no-requeue`. For the others it is as above.
- **Cut for 5 s**: nothing is given up, and jobs on that node go on. So it is while a **kubelet** is restarted. While
  one is down for 20 s its slurmds answer: they take no new jobs, and those that run aren't touched.
- **slurmctld fails over**: within 12 s after the fault its pod is deleted by force, and its standby takes over;
  "answers" counts from there.

Each repeat also looks at the processes of all nodes, those that were lost too: no two slurmds of one name are alive at
once. Only where a pool is whole by itself there is a repeat without the operator.
"""

_WORDS = """\
"Answers" is from the fault until slurmctld answers a login pod, which asks five times a second, and goes on answering;
where nothing is felt it is the time that one question takes, and one that later ones overtook doesn't count. "Job" is
from the fault until a job runs that was submitted after it, on a node that has room; slurmctld's first plan comes two
to three seconds after its start. Both are the median and the worst of the repeats, in seconds. The first row has no
fault.

- **Lost**: `sbatch` acknowledged it, and afterwards it isn't in the queue, never wrote that it started, and isn't held
  or named in the Lease's annotation `seltzer.dev/recovered`.
- **Twice**: it started a second time, under its ID or another. One that the fault had killed and that Slurm put back
  itself (`JobRequeue`; its restart count has grown) doesn't count.
- **Killed**: it had started and was ended by the fault. Slurm ends what it doesn't remember when a node reports it.
- **Held**: it is in the queue for a person to decide about, since nobody can know whether it had started.
- **Ghosts**: they run for slurmctld only. They had ended, or their start never reached a node; they keep CPUs that
  nobody uses until Slurm finds out, after minutes. The campaign cancels them.
- **srun**: how many of those that ran or waited when the fault came failed, or hung for 15 seconds. One row has some.

Every job writes when it starts and ends, with its ID and restart count, to a volume that no fault reaches; what was
acknowledged is written down beside the login pod. In one repeat of each row there is no operator, from before the fault
until after the recovery. The API server takes the controller manager and the scheduler with it, as their election does
in a cluster that has several, and is watched for 20 seconds after it is back.

Each repeat also looks at the state volume. The stamps that the guards write there at each start, stop, crash and save
never go back to an older epoch. Where a node was cut off or frozen, the new slurmctld is stopped for a moment before
the old node comes back, and no state file may change meanwhile.
"""

_BODY = """\
## What can't be kept

- **Interactive jobs.** An `srun` or `salloc` that was acknowledged in the last five seconds before a SIGKILL isn't in
  the saved state, and its other end is gone or hangs. It is reported and not put back.
- **Running jobs that slurmctld had not saved.** A job that started in those seconds is ended when its node reports to
  the new slurmctld; these are the killed ones above. It isn't run again by itself, since it had begun.
- **Some options** of a job that is put back: those that Slurm shows to no plugin, such as `--deadline`, `--open-mode`,
  `--signal` and binding. Its age starts anew.
- **A power loss.** SIGKILL and a killed node leave what the kernel had taken for the disk; a machine without power
  doesn't, and nor does a storage server. The sandbox's nodes share one kernel, and the campaign's state volume is in
  memory (tmpfs), so this isn't measured here, and saving costs less than on a disk.
- **Jobs on a node that is lost.** They start over if their flags allow it. Nobody can end those on a node that is only
  cut off before it is back.
- **Seconds of silence at a reconfigure.** slurmctld answers nobody for up to three seconds if threads of its own wait
  for nodes that don't answer. 20 s after a repair the guard has all nodes register once more, by a reconfigure, so it
  waits until there are no such threads, for two minutes at most. A change of the configuration isn't put off.
- **Single questions.** With the API server down and a SIGKILL, beside a second campaign on the same cores, two of ten
  repeats lost one question each, 14 and 20 s after the fault, with answers a fifth of a second before and after it. Ten
  more without the neighbour (the row above) lost none, nor did 30 reconfigures of a cluster without a repair, of
  10,994. Why isn't known.
- **Time.** Nothing here is faster than Kubernetes: without a standby it has to notice that a node is gone (8 s in the
  sandbox, 48 s by its defaults) and start a pod.

## Run it again

```console
make faults                                   # all of it, some four hours on 2 cores
.venv/bin/python -m tests.faults.campaign --list
.venv/bin/python -m tests.faults.campaign --rows "node cut;node killed" --repeats 3 --seed 1
.venv/bin/python -m tests.faults.campaign --page   # this page, from build/faults.json
```

Rows that are run replace theirs in `build/faults.json`, the others stay. A repeat that went wrong is kept with logs,
events and the jobs concerned in `build/faults/`. A fault is a line in `tests/faults/campaign/table.py`.
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
        "| fault | n | answers | worst | job | worst | acknowledged | lost | twice | killed | held | ghosts | srun |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        counts = [row[f"jobs_{what}"] for what in ("acknowledged", "lost", "twice", "killed", "held", "ghosts")]
        broken = f"{row['interactive_broken']} of {row['interactive']}" if row.get("interactive") else ""
        lines.append(_line(row, ("answer_s", "job_s"), counts, broken))
    return "\n".join(lines)


def pool_table(rows: Sequence[dict[str, Any]]) -> str:
    counted = "acknowledged | lost | twice | requeued | failed | killed | held | ghosts"
    lines = [f"| fault | n | whole | worst | answers | worst | {counted} |", f"|{'---|' * 14}"]
    for row in rows:
        first = [row[f"jobs_{what}"] for what in ("acknowledged", "lost", "twice")]
        last = [row[f"jobs_{what}"] for what in ("killed", "held", "ghosts")]
        lines.append(_line(row, ("whole_s", "answer_s"), [*first, row["requeued"], row["failed"], *last]))
    return "\n".join(lines)


def _line(row: dict[str, Any], timed: Sequence[str], counts: Sequence[int], *more: str) -> str:
    seconds = [row[what][which] for what in timed for which in ("median", "worst")]
    cells = [row["name"], str(row["n"]), *map(_seconds, seconds), *(f"{count:,}" for count in counts), *more]
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """What this ran on, in words that tell nothing else about it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {'.'.join(platform.release().split('.')[:2])}"


def commit() -> str:
    """The tree that this ran on; with a plus if something in it wasn't committed."""
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
    told = [
        f"Measured {when} on {' and '.join(machines) or 'nothing'} that everything shares: Kubernetes, Slurm, jobs and "
        f"questions; {' and '.join(loads)} jobs in flight."
    ]
    for row in rows:
        pairs = sorted(set(row.get("did", [])))
        if pairs:
            told.append(f"Two at random, seed {', '.join(map(str, seeds))}: {'; '.join(pairs)}.")
    return "\n".join(told)


def _failures(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What went wrong stands here too."""
    wrong = [f"- {row['name']}, {failure.splitlines()[0]}" for row in rows for failure in row["failures"]]
    return ["", "## Repeats that went wrong", "", *wrong] if wrong else []
