"""build/faults.json: a row for each fault; a campaign may be run in parts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .book import Outcome
from .measure import summary
from .table import FAULTS, Fault

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "build" / "faults.json"
KEPT = ROOT / "docs" / "faults.json"
"""The results that the page shows: a later part of a campaign goes on from them."""
EVIDENCE = ROOT / "build" / "faults"

Row = dict[str, Any]


def row(fault: Fault, outcomes: Sequence[Outcome], about: Row) -> Row:
    """A row of the results. Repeats that failed have no seconds; they are counted and named."""
    answers = [one.answer_s for one in outcomes if one.answer_s is not None]
    jobs = [one.job_s for one in outcomes if one.job_s is not None]
    count = {
        name: sum(len(getattr(one, name)) for one in outcomes)
        for name in ("lost", "twice", "killed", "held", "kept", "ghosts")
    }
    return {
        "name": fault.name,
        "n": len(outcomes),
        "answer_s": summary(answers),
        "job_s": summary(jobs),
        "jobs_lost": count["lost"],
        "jobs_twice": count["twice"],
        "jobs_killed": count["killed"],
        "jobs_held": count["held"],
        "jobs_kept": count["kept"],
        "jobs_ghosts": count["ghosts"],
        # Of these, the jobs with --no-requeue.
        "held_once": sum(len(one.once & set(one.held)) for one in outcomes),
        "ghosts_once": sum(len(one.once & set(one.ghosts)) for one in outcomes),
        "jobs_acknowledged": sum(one.acknowledged for one in outcomes),
        "submissions_refused": sum(one.refused for one in outcomes),
        "interactive": sum(one.interactive for one in outcomes),
        "interactive_broken": sum(one.interactive_broken for one in outcomes),
        "asks_unanswered": sum(one.unanswered for one in outcomes),
        "nodes_drained": sum(len(one.drained) for one in outcomes),
        "slowest_start_s": round(max((one.slowest_s for one in outcomes), default=0.0), 2),
        "standby": fault.standby,
        "without_operator": sum(not one.operator for one in outcomes),
        "expected": fault.expected,
        "failures": [f"repeat {number}: {one.failure}" for number, one in enumerate(outcomes) if one.failure],
        "checks": _checks(outcomes),
        "answers": [round(each, 2) for each in answers],
        "jobs": [round(each, 2) for each in jobs],
        "did": [one.did for one in outcomes] if fault.pair else [],
        **(_pool(outcomes) if fault.whole is not None else {}),
        **about,
    }


def _pool(outcomes: Sequence[Outcome]) -> Row:
    """What is told of faults that hit a pool of nodes."""
    wholes = [one.whole_s for one in outcomes if one.whole_s is not None]
    return {
        "whole_s": summary(wholes),
        "wholes": [round(each, 2) for each in wholes],
        "requeued": sum(len(one.requeued) for one in outcomes),
        "failed": sum(len(one.failed) for one in outcomes),
    }


def _checks(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    """What each check said, once."""
    said: dict[str, list[str]] = {}
    for one in outcomes:
        for name, what in one.checks.items():
            if what not in said.setdefault(name, []):
                said[name].append(what)
    return said


def complaints(found: Row) -> list[str]:
    """Where a row isn't what is expected of it."""
    wrong = [*found["failures"]]
    expected = found["expected"]
    told = (("slurmctld answered", "answer_s"), ("a new job ran", "job_s"), ("the pool was whole", "whole_s"))
    for what, key in told:
        worst = found.get(key, {}).get("worst")
        if worst is not None and worst > expected[key]:
            wrong.append(f"{what} after {worst} s at worst, not within {expected[key]:g}")
    if found["slowest_start_s"] > expected.get("slowest_s", math.inf):
        wrong.append(f"a new job waited for {found['slowest_start_s']} s, not {expected['slowest_s']:g} at most")
    if found["nodes_drained"]:
        wrong.append(f"Slurm drained nodes {found['nodes_drained']} times")
    if found["jobs_lost"]:
        wrong.append(f"{found['jobs_lost']} jobs lost")
    if found["jobs_twice"]:
        wrong.append(f"{found['jobs_twice']} jobs run twice")
    return wrong


def read(path: Path = RESULTS) -> list[Row]:
    return list(json.loads(path.read_text())) if path.exists() else []


def merged(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Rows that were run now replace theirs. The table gives the order; what it doesn't know any more comes last."""
    by_name = {one["name"]: one for one in (*old, *new)}
    order = [fault.name for fault in FAULTS if fault.name in by_name]
    return [by_name[name] for name in (*order, *(name for name in by_name if name not in order))]


def write(rows: Iterable[Row], path: Path = RESULTS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(list(rows), indent=1) + "\n")
    scratch.rename(path)
