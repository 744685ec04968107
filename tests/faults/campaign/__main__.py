"""`python -m tests.faults.campaign`: run the campaign, or parts of it, and write the results and the page."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Sequence

from tests.harness import Cluster, Sandbox, seltzer, succeed

from seltzer_sandbox.run.layout import Layout

from . import page, results
from .book import Book, Outcome
from .repeat import Row
from .rig import CLUSTER, Rig
from .shape import SHAPES, Shape
from .table import FAULTS, Fault


def main() -> int:
    asked = _arguments()
    if asked.list:
        for fault in FAULTS:
            print(fault.name)
        return 0
    if asked.page:
        _write_page()
        print(f"wrote {page.PAGE.relative_to(results.ROOT)}")
        return 0
    chosen = _chosen(asked.rows)
    seed = asked.seed if asked.seed is not None else secrets.randbelow(1 << 32)
    print(f"seed {seed}: the same faults come again with --seed {seed}", flush=True)
    return _run(asked, chosen, seed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description="Break a real cluster, and measure what it costs.")
    parser.add_argument("--rows", help="which faults, by parts of their names, separated by semicolons; all without")
    parser.add_argument("--repeats", type=int, default=10, help="how often each (10)")
    parser.add_argument("--in-flight", type=int, default=200, help="how many jobs run or wait (200)")
    parser.add_argument("--seed", type=int, help="of what is left to chance; it is printed")
    parser.add_argument("--sandbox", default="faults", help="the sandbox's name (faults)")
    parser.add_argument("--budget", type=float, help="begin no repeat after so many minutes")
    parser.add_argument("--keep", action="store_true", help="leave the sandbox up, and use the one that is")
    parser.add_argument("--list", action="store_true", help="show the faults, and end")
    parser.add_argument("--page", action="store_true", help="write docs/faults.md from build/faults.json, and end")
    return parser.parse_args()


def _chosen(words: str | None) -> list[Fault]:
    wanted = [word.strip() for word in (words or "").split(";") if word.strip()]
    exact = {fault.name for fault in FAULTS} & set(wanted)
    found = [
        fault
        for fault in FAULTS
        if not wanted or fault.name in exact or any(word in fault.name for word in wanted if word not in exact)
    ]
    if not found:
        sys.exit(f"no fault is called {words!r}; --list shows them all")
    return found


def _run(asked: argparse.Namespace, chosen: Sequence[Fault], seed: int) -> int:
    end = time.monotonic() + asked.budget * 60 if asked.budget else float("inf")
    if not asked.keep:
        seltzer("sandbox", "down", "--name", asked.sandbox)
    wrong = 0
    try:
        for shape in dict.fromkeys(fault.shape for fault in chosen):
            wrong += _rows(asked, shape, [fault for fault in chosen if fault.shape is shape], seed, end)
    finally:
        if not asked.keep:
            succeed("sandbox", "down", "--name", asked.sandbox)
    _write_page()
    print(f"{results.RESULTS.relative_to(results.ROOT)} and {page.PAGE.relative_to(results.ROOT)} are written")
    return 1 if wrong else 0


def _rows(asked: argparse.Namespace, shape: Shape, faults: Sequence[Fault], seed: int, end: float) -> int:
    """All rows that hit one cluster; how many of them weren't as expected."""
    if time.monotonic() > end:
        return 0
    there = Layout(asked.sandbox).read()
    machines = max(shape.machines, there.nodes if there else 0)
    succeed("sandbox", "up", "--name", asked.sandbox, "--nodes", str(machines))
    sandbox = Sandbox(asked.sandbox)
    rig = Rig(sandbox, shape, asked.in_flight)
    try:
        sandbox.seltzer("install")
        _clear(sandbox, shape)
        rig.settle_operator()
        rig.create()
        print(f"the cluster {shape.name} is up", flush=True)
        book = Book()
        return sum(_row(rig, book, fault, asked, seed, end) for fault in faults if time.monotonic() < end)
    finally:
        rig.end()


def _clear(sandbox: Sandbox, shape: Shape) -> None:
    """The cluster of the rows before goes: this one has the machine to itself."""
    for other in SHAPES:
        if other is not shape and sandbox.kubectl("get", "namespace", other.name, check=False).code == 0:
            Cluster(sandbox, other.name, CLUSTER).delete()


def _row(rig: Rig, book: Book, fault: Fault, asked: argparse.Namespace, seed: int, end: float) -> bool:
    """All repeats of a fault; whether something wasn't as expected. The results are written after each repeat."""
    row = Row(rig, book, fault, seed, results.EVIDENCE)
    outcomes: list[Outcome] = []
    about = {
        "seed": seed,
        "in_flight": asked.in_flight,
        "when": time.strftime("%Y-%m-%d"),
        "machine": page.machine(),
        "commit": page.commit(),
    }
    print(fault.name, flush=True)
    found: results.Row = {}
    for number in range(asked.repeats):
        if time.monotonic() > end:
            break
        # Once in every row nobody is there who could help, unless the row is about the help.
        one = row.repeat(number, operator=number != 1 or not fault.unattended)
        outcomes.append(one)
        print(_line(number, fault.name, one), flush=True)
        if number == asked.repeats - 1 or time.monotonic() > end:
            row.drain(one)
        found = results.row(fault, outcomes, about)
        results.write(results.merged(_known(), [found]))
    complaints = results.complaints(found) if found else []
    for complaint in complaints:
        print(f"  ! {complaint}", flush=True)
    return bool(complaints)


def _known() -> list[results.Row]:
    return results.read() or results.read(results.KEPT)


def _write_page() -> None:
    rows = _known()
    page.write(rows)
    results.write(rows, results.KEPT)


def _line(number: int, name: str, one: Outcome) -> str:
    if one.answer_s is None or one.job_s is None:
        return f"  {number}: {one.failure.splitlines()[0] if one.failure else 'no answer'}"
    told = [
        f"{len(jobs)} {what}"
        for what, jobs in (
            ("lost", one.lost),
            ("twice", one.twice),
            ("requeued", one.requeued),
            ("failed", one.failed),
            ("killed", one.killed),
            ("held", [key for key in one.held if key not in one.once]),
            ("held with --no-requeue", [key for key in one.held if key in one.once]),
            ("ghosts", [key for key in one.ghosts if key not in one.once]),
            ("ghosts with --no-requeue", [key for key in one.ghosts if key in one.once]),
            ("drained", one.drained),
        )
        if jobs
    ]
    extra = [*told, *([one.did] if one.did != name else []), *([] if one.operator else ["without the operator"])]
    extra += [one.failure] if one.failure else []
    whole = "" if one.whole_s is None else f"the pool is whole after {one.whole_s:.2f} s, "
    return f"  {number}: {whole}answers after {one.answer_s:.2f} s, a job runs after {one.job_s:.2f} s" + "".join(
        f", {each}" for each in extra
    )


if __name__ == "__main__":
    sys.exit(main())
