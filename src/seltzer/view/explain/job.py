"""Explains a job: why it is pending and which nodes could run it, or where it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seltzer.errors import SeltzerError
from seltzer.plan import slurm_state
from seltzer.slurm import hostlist
from seltzer.slurm.models import Node
from seltzer.slurm.snapshot import Job
from seltzer.view import nodes, times
from seltzer.view.explain import pool, reason
from seltzer.view.explain.node import unknown
from seltzer.view.explain.pool import ago, ahead
from seltzer.view.explain.reason import some
from seltzer.view.facts import Facts

_OVER = {
    "BOOT_FAIL": "its node didn't start",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "all went well",
    "DEADLINE": "it couldn't end before its deadline",
    "FAILED": "it failed",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it took more memory than it had",
    "PREEMPTED": "another job took its place",
    "TIMEOUT": "its time was up",
}
# Slurm expects a job without a time limit to run for a year: a start that far away is no forecast.
_FAR = 180 * 86400


@dataclass(frozen=True)
class JobExplanation:
    """The sentences about a job, and the facts behind them."""

    known: Facts
    jobs: Sequence[Job]
    sentences: Sequence[str]

    def data(self) -> dict[str, object]:
        """For programs."""
        return {
            "kind": "job",
            "explanation": " ".join(self.sentences),
            "jobs": [_data(job) for job in self.jobs],
            "nodes": [_pool_data(self.known, name) for name in pool.names(self.known, self.jobs[0])],
        }


def explain(known: Facts, word: str) -> JobExplanation:
    """Raises SeltzerError if Slurm doesn't know the job, or can't be asked."""
    if known.slurm is None:
        raise SeltzerError(known.silence)
    jobs = matching(known.slurm.jobs, word)
    if not jobs:
        raise SeltzerError(
            f"Slurm doesn't know job {word} of {known.cluster.metadata.name}: there never was one, or it ended long ago"
        )
    job = min(jobs, key=lambda each: (not each.pending, not each.active))
    sentences = [*(_array(word, jobs) if len(jobs) > 1 else ())]
    if job.pending:
        sentences += _pending(known, job)
    elif job.over:
        sentences.append(_over(known, job))
    else:
        sentences += _running(known, job)
    return JobExplanation(known, [job, *(each for each in jobs if each is not job)], [*sentences, *unknown(known)])


def matching(jobs: Sequence[Job], word: str) -> list[Job]:
    """The job with that ID, all tasks of an array, or the row of pending tasks that includes it."""
    exact = [job for job in jobs if job.id == word or (word.isdigit() and job.number == int(word))]
    if word.isdigit():
        parts = [job for job in jobs if re.split("[_+]", job.id)[0] == word]
        return [*parts, *(job for job in exact if job not in parts)]
    number, _, task = word.partition("_")
    waiting = [job for job in jobs if job.id.startswith(f"{number}_[") and task.isdigit()]
    return exact or [job for job in waiting if int(task) in set(_tasks(job.id))]


def _tasks(written: str) -> Iterator[int]:
    """The tasks of `42_[1-5,8,10-20:2%3]`."""
    inside = written.partition("[")[2].partition("]")[0].partition("%")[0]
    for low, high, step in re.findall(r"(\d+)(?:-(\d+))?(?::(\d+))?", inside):
        yield from range(int(low), int(high or low) + 1, int(step or 1))


def _array(word: str, jobs: Sequence[Job]) -> list[str]:
    running, waiting = [job.id for job in jobs if job.active], [job.id for job in jobs if job.pending]
    over = len(jobs) - len(running) - len(waiting)
    parts = [f"{some(running)} {'runs' if len(running) == 1 else 'run'}"] if running else []
    parts += [f"{some(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"] if waiting else []
    parts += [f"{over} {'is' if over == 1 else 'are'} over"] if over else []
    return [f"Of job {word}, {', '.join(parts)}."]


def _title(job: Job) -> str:
    return f"Job {job.id} ({job.name or 'without a name'}, of {job.user})"


def _over(known: Facts, job: Job) -> str:
    where = f", on {hostlist.fold(job.nodes)}" if job.nodes else ""
    why = f" ({job.reason})" if job.reason and job.state != "COMPLETED" else ""
    return f"{_title(job)} ended {ago(known, job.end)} ago{where}: {_OVER.get(job.state, job.state)}{why}."


def _running(known: Facts, job: Job) -> list[str]:
    where = hostlist.fold(job.nodes) or "no node"
    doing = {
        "COMPLETING": "has ended, and is being cleaned up",
        "CONFIGURING": "is about to start",
        "SUSPENDED": "is suspended",
        "STOPPED": "is stopped",
    }.get(job.state, "runs")
    since = f", for {ago(known, job.start)}" if job.state != "CONFIGURING" else ""
    until = f", and ends {nodes.deadline(known, job.end)}" if job.end else ", and has no time limit"
    sentences = [f"{_title(job)} {doing} on {where} in partition {job.partition}{since}{until}."]
    shut = [name for name in job.nodes if pool.is_shut(known, name)]
    drained = [name for name in shut if (node := known.node(name)) and nodes.kind(node) == "draining"]
    sentences += [f"{group}; that doesn't end the job." for group in pool.groups(known, drained)]
    sentences += [f"{group}." for group in pool.groups(known, [name for name in shut if name not in drained])]
    sentences += _machines(known, job)
    lost = [name for name in job.nodes if (node := known.node(name)) and "NOT_RESPONDING" in node.state]
    if lost and job.state != "COMPLETING":
        fate = "is put back into the queue" if job.requeue else "ends"
        sentences.append(f"If {hostlist.fold(lost)} doesn't answer again, it is set down, and the job {fate}.")
    return sentences


def _machines(known: Facts, job: Job) -> list[str]:
    """What is wrong with the Kubernetes nodes that it is on."""
    found: dict[str, list[str]] = {}
    for name in job.nodes:
        pod, ailment = known.pod(name), known.ailment(name)
        if pod and ailment:
            found.setdefault(f"is on Kubernetes node {pod.spec.node_name}, which {ailment}", []).append(name)
    return [f"{hostlist.fold(names)} {words}." for words, names in found.items()]


def _pending(known: Facts, job: Job) -> list[str]:
    waited = f"{_title(job)} has waited in partition {job.partition} for {ago(known, job.submit)}"
    sentences = [f"{waited}: {reason.plain(known, job)}.", *reason.advice(known, job)]
    if reason.is_elsewhere(job):
        return sentences
    if reason.asks_too_much(job):
        return [*sentences, *pool.starting(known, job)]
    sentences += [*pool.doing(known, job), *pool.starting(known, job)]
    if job.start and known.slurm and job.start - known.slurm.now < _FAR:
        return [*sentences, f"Slurm expects to start it {ahead(known, job.start)}."]
    return [*sentences, *pool.next_free(known, job)]


def _data(job: Job) -> dict[str, object]:
    return {
        "id": job.id,
        "user": job.user,
        "name": job.name,
        "state": job.state,
        "reason": job.reason or None,
        "partition": job.partition,
        "nodes": list(job.nodes),
        "cpus": job.cpus,
        "nodeCount": job.node_count,
        "submitted": times.stamp(job.submit),
        "starts" if job.pending else "started": times.stamp(job.start),
        "ended" if job.over else "ends": times.stamp(job.end),
        "requeue": job.requeue,
    }


def _pool_data(known: Facts, name: str) -> dict[str, object]:
    node: Node | None = known.node(name)
    return {
        "name": name,
        "state": nodes.kind(node),
        "remark": nodes.remark(known, name),
        "freeCpus": node.cpus - node.alloc_cpus if node and slurm_state.is_available(node) else 0,
    }
