"""How fast the sandbox is, compared to the same work without it. Run it with `make bench`.

The floor of `up` is an etcd and an API server alone, until it is ready: no sandbox can be faster than that. The floor
of images on nodes is containerd's own import, in parallel, into as many nodes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.rows import Row, report

from seltzer.progress import Progress
from seltzer_sandbox import commands
from seltzer_sandbox.build import images, template
from seltzer_sandbox.run import faults
from seltzer_sandbox.run.apiserver import node_conditions
from seltzer_sandbox.run.cluster import Sandbox
from seltzer_sandbox.run.layout import Layout, Spec

NAME = "bench"
FLOOR = "floor of "
UP = "sandbox up, 3 nodes Ready, images on them, DNS answers"
IMAGES = "images onto 3 nodes"
FLOORS = (UP, IMAGES)
NODE = 3


class Quiet(Progress):
    """The bench has its own sandbox."""

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        yield


def timed(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def until(true: Callable[[], bool], deadline: float = 120.0) -> float:
    started = time.monotonic()
    while not true():
        if time.monotonic() - started > deadline:
            raise SystemExit("bench: waited in vain; see 'seltzer sandbox logs --name bench'")
        time.sleep(0.02)
    return time.monotonic() - started


def measure(rows: dict[str, list[float]]) -> None:
    """One run of a sandbox, from up to down."""
    up = timed(lambda: commands.up(Quiet(), NAME, 3, None))
    rows[UP].append(up)
    rows[FLOOR + UP].append(_floor(commands.find(NAME).spec))
    rows["sandbox up again, nothing to do"].append(timed(lambda: commands.up(Quiet(), NAME, None, None)))
    sandbox = commands.find(NAME)
    api = sandbox.api()
    for fault in (faults.kill, faults.cut, faults.freeze):
        fault(sandbox, NODE)
        seen = until(lambda: node_conditions(api).get(f"n{NODE}") == "Unknown")
        rows[f"node {fault.__name__} until Unknown"].append(seen)
        healing = timed(lambda: faults.heal(sandbox, NODE))
        back = until(lambda: node_conditions(api).get(f"n{NODE}") == "True")
        rows[f"node heal after {fault.__name__} until Ready"].append(healing + back)
    rows[IMAGES].append(timed(lambda: _take(Path(sandbox.spec.template))))
    archive = images.archive(Quiet(), sandbox.binaries)
    rows[FLOOR + IMAGES].append(timed(lambda: commands.load(Quiet(), NAME, archive)))
    rows["sandbox down"].append(timed(lambda: commands.down(NAME)))


def _floor(spec: Spec) -> float:
    """On its own, in a sandbox without nodes; no other sandbox runs before or after it."""
    commands.down(NAME)
    layout = Layout(NAME)
    layout.make()
    bare = Sandbox(layout, Spec(0, spec.port, spec.binaries, spec.template))
    bare.write_credentials()

    def start() -> None:
        bare.start_api_server()
        bare.wait_for_api_server()

    seconds = timed(start)
    commands.down(NAME)
    commands.up(Quiet(), NAME, 3, None)
    return seconds


def _take(source: Path) -> None:
    target = source.parent / ".bench"
    for number in range(3):
        template.take(source, target / str(number) / "containerd")
    subprocess.run(["rm", "-rf", target], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how many lives of a sandbox to measure")
    asked = parser.parse_args()
    with Progress() as progress:
        commands.prepare(progress)
    commands.down(NAME)
    seconds: dict[str, list[float]] = defaultdict(list)
    with Progress() as progress:
        for run in range(asked.runs):
            with progress.step(f"run {run + 1} of {asked.runs}"):
                measure(seconds)
    floors = {name: statistics.median(seconds.pop(f"{FLOOR}{name}")) for name in FLOORS}
    report([Row(name, statistics.median(runs), "s", floors.get(name)) for name, runs in seconds.items()])


if __name__ == "__main__":
    main()
