#!/usr/bin/python3
"""seff: how well jobs use the CPUs and the memory that they have.

Slurm keeps the usage of jobs that have ended only in its accounting (sacct). Without accounting, seff says what
slurmctld remembers of them (squeue), and what those that still run have used so far (sstat).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

PATIENCE = 20
"""Seconds that Slurm has for one answer."""
# Names may hold any byte that people type.
_SEPARATOR = "\x1f"
_ID = re.compile(r"\d+(_\d+)?(\+\d+)?")
_ENDED_WITHOUT_USAGE = "this cluster keeps no accounting, and Slurm forgets it when a job ends"
_SACCT = (
    *("JobID", "JobIDRaw", "Cluster", "User", "Group", "State", "ExitCode"),
    *("NNodes", "AllocCPUS", "ElapsedRaw", "TotalCPU", "AllocTRES", "TRESUsageInTot"),
)
_SQUEUE = (
    *("JobArrayID", "JobID", "Cluster", "UserName", "GroupName", "State", "exit_code"),
    *("NumNodes", "NumCPUs", "TimeUsed", "tres-alloc"),
)
_SSTAT = ("JobID", "TRESUsageInTot")
_RUNS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED"})
_STARTED_NOT = frozenset({"PENDING", "CONFIGURING"})


class SeffError(Exception):
    """What went wrong, in a line for the person who asked."""


@dataclass(frozen=True)
class Job:
    """A job, or a task of an array."""

    id: str
    raw_id: str
    cluster: str
    user: str
    group: str
    state: str
    exit_code: str
    nodes: int
    cpus: int
    elapsed: int
    memory: int | None
    """Allocated, in bytes; None if the job has no limit of its own."""
    cpu_used: float | None = None
    memory_used: int | None = None
    unknown: str = "Slurm has not said it"
    """Why the usage isn't known."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="seff", description="Show how well jobs use the CPUs and the memory that they have."
    )
    parser.add_argument("job", nargs="+", help="the ID of a job (12), an array (12) or one of its tasks (12_3)")
    asked = parser.parse_args(words).job
    try:
        for each in asked:
            if not _ID.fullmatch(each):
                raise SeffError(f"{each!r} isn't the ID of a job: 'squeue --me' lists yours")
        found = [job for each in asked for job in jobs(each)]
    except SeffError as error:
        print(f"seff: {error}", file=sys.stderr)
        return 1
    print("\n\n".join(text(job) for job in found))
    return 0


def jobs(asked: str) -> list[Job]:
    """The job, or all tasks of an array."""
    why = ""
    try:
        found = accounted(_ask("sacct", f"--jobs={asked}", "--parsable2", f"--delimiter={_SEPARATOR}", _format(_SACCT)))
    except SeffError as error:
        found, why = [], str(error)
    if found:
        return found
    listed = queued(_queue(asked))
    if not listed:
        raise SeffError(f"job {asked} isn't known: Slurm forgets jobs some minutes after their end")
    no_accounting = not why or "disabled" in why
    return [
        _with_usage(job) if job.state in _RUNS else replace(job, unknown=_ENDED_WITHOUT_USAGE if no_accounting else why)
        for job in listed
    ]


def _queue(asked: str) -> str:
    try:
        return _ask("squeue", "--all", "--array", "--states=all", f"--jobs={asked}", _columns(_SQUEUE))
    except SeffError as error:
        if "Invalid job id" in str(error):
            return ""
        raise


def accounted(output: str) -> list[Job]:
    """The jobs in sacct's answer: a line for each job, and behind it one for each of its steps."""
    found: list[Job] = []
    for line in _rows(output, len(_SACCT)):
        id_, raw, cluster, user, group, state, code, nodes, cpus, elapsed, total, allocated, usage = line
        if "." in id_:
            used = memory(usage)
            if found and used is not None:
                found[-1] = replace(found[-1], memory_used=max(used, found[-1].memory_used or 0))
            continue
        state = state.split(" ")[0]  # "CANCELLED by 1000"
        job = Job(id_, raw, cluster, user, group, state, code, _number(nodes), _number(cpus), _number(elapsed), None)
        ended = state not in _RUNS
        found.append(replace(job, memory=memory(allocated), cpu_used=seconds(total) if ended else None))
    return [_with_usage(job) if job.state in _RUNS else job for job in found]


def queued(output: str) -> list[Job]:
    """The jobs in squeue's answer."""
    found: list[Job] = []
    for line in _rows(output, len(_SQUEUE)):
        id_, raw, cluster, user, group, state, code, nodes, cpus, elapsed, allocated = line
        used = int(seconds(elapsed) or 0)
        job = Job(id_, raw, cluster, user, group, state, code, _number(nodes), _number(cpus), used, memory(allocated))
        found.append(job)
    return found


def _with_usage(job: Job) -> Job:
    """What the steps of a job that runs have used so far. Of those that have ended, sstat says nothing."""
    try:
        output = _ask("sstat", "--allsteps", f"--jobs={job.raw_id}", "--parsable2", _format(_SSTAT))
    except SeffError as error:
        return replace(job, unknown=str(error))
    usages = [usage for _, _, usage in (line.partition("|") for line in output.split("\n"))]
    cpu = [used for usage in usages if (used := seconds(_tres(usage).get("cpu", ""))) is not None]
    held = [used for usage in usages if (used := memory(usage)) is not None]
    if not cpu and not held:
        return replace(job, unknown="Slurm has not measured this job yet; it does every 30 seconds")
    return replace(job, cpu_used=sum(cpu), memory_used=max([job.memory_used or 0, sum(held)]))


def text(job: Job) -> str:
    """What a person reads: the words are those of seff everywhere."""
    cores = job.cpus // job.nodes if job.nodes and job.cpus % job.nodes == 0 else 0
    exit_code = f" (exit code {job.exit_code.split(':')[0]})" if job.state not in _RUNS | _STARTED_NOT else ""
    lines = [
        f"Job ID: {job.raw_id}",
        *([f"Array Job ID: {job.id}"] if "_" in job.id else []),
        f"Cluster: {job.cluster}",
        f"User/Group: {job.user}/{job.group}",
        f"State: {job.state}{exit_code}",
    ]
    if job.state in _STARTED_NOT:
        return "\n".join([*lines, "Efficiency: known once the job runs"])
    lines += [f"Nodes: {job.nodes}", f"Cores per node: {cores}" if cores else f"Cores: {job.cpus}"]
    so_far = " so far" if job.state in _RUNS else ""
    walltime = job.elapsed * job.cpus
    if job.cpu_used is None:
        lines.append(f"CPU Utilized: unknown: {job.unknown}")
    else:
        share = 100 * job.cpu_used / walltime if walltime else 0.0
        lines.append(f"CPU Utilized{so_far}: {clock(job.cpu_used)}")
        lines.append(f"CPU Efficiency{so_far}: {share:.2f}% of {clock(walltime)} core-walltime")
    lines.append(f"Job Wall-clock time: {clock(job.elapsed)}")
    if job.memory_used is None:
        lines.append(f"Memory Utilized: unknown: {job.unknown}")
    else:
        lines.append(f"Memory Utilized{so_far}: {size(job.memory_used)}")
        lines.append(
            f"Memory Efficiency{so_far}: {100 * job.memory_used / job.memory:.2f}% of {size(job.memory)}"
            if job.memory
            else "Memory Efficiency: not known, since the job has no limit of its own (--mem)"
        )
    return "\n".join(lines)


def seconds(duration: str) -> float | None:
    """`1-02:03:04`, `02:03:04`, `03:04` or `03:04.567`; None for anything else."""
    found = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)", duration.strip())
    if not found:
        return None
    days, hours, minutes, rest = found.groups()
    return int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(rest)


def memory(tres: str) -> int | None:
    """The memory in a list such as `cpu=2,mem=1.50G`, in bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", _tres(tres).get("mem", ""))
    return int(float(found[1]) * 1024 ** " KMGTP".index(found[2] or " ")) if found else None


def clock(duration: float) -> str:
    """`02:03:04`, or `1-02:03:04` after a day."""
    minutes, rest = divmod(int(duration), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{rest:02}"


def size(number: int) -> str:
    """`1.50 GB`, as seff counts: by 1024."""
    power = max(1, min(5, (number.bit_length() - 1) // 10))
    return f"{number / 1024**power:.2f} {' KMGTP'[power]}B"


def _tres(words: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words.strip().split(",") if "=" in word)


def _number(word: str) -> int:
    return int(word) if word.strip().isdigit() else 0


def _rows(output: str, width: int) -> list[list[str]]:
    """Lines that make no sense are left out."""
    rows = [[value.strip() for value in line.split(_SEPARATOR)] for line in output.split("\n")]
    return [row[:width] for row in rows if len(row) in (width, width + 1)]


def _format(fields: Sequence[str]) -> str:
    return "--format=" + ",".join(fields)


def _columns(fields: Sequence[str]) -> str:
    return "--Format=" + ",".join(f"{name}:{_SEPARATOR}" for name in fields)


def _ask(*command: str) -> str:
    line = [*command, "--noheader"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise SeffError(f"{command[0]} didn't answer within {PATIENCE} s: try again in a while") from None
    except OSError as error:
        raise SeffError(f"{command[0]} can't be run: {error.strerror}") from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SeffError(re.sub(rf"^{command[0]}: (error: |fatal: )?", "", words[-1]))
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
