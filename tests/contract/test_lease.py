"""At most one leads, whoever is stopped and woken whenever: by one clock, with a real API server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from tests.contract.candidate import TIMES
from tests.harness import Sandbox, until

CANDIDATE = Path(__file__).with_name("candidate.py")
CONTESTS = 5
ROUNDS = 40
SEED = 20261115


@dataclass(frozen=True)
class Contest:
    """Two candidates for a Lease of their own, and the log of who led when."""

    sandbox: Sandbox
    lease: str
    log: Path

    def begin(self) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, str(CANDIDATE), self.sandbox.kubeconfig, self.lease]
        both = [subprocess.Popen([*command, name, str(self.log)], stderr=subprocess.DEVNULL) for name in ("a", "b")]
        try:
            until("somebody leads", lambda: bool(self.led()))
        except AssertionError:
            end(both)
            raise
        return both

    def led(self) -> list[tuple[float, str]]:
        """Who led when, in the order of time."""
        lines = (line.split() for line in self.log.read_text().splitlines()) if self.log.exists() else ()
        return sorted((float(words[1]), words[0]) for words in lines if len(words) == 2)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def contests(sandbox: Sandbox, tmp_path: Path) -> Iterator[list[Contest]]:
    """Several, side by side: most of a contest is waiting."""
    names = [f"contest-{number}" for number in range(CONTESTS)]
    yield [Contest(sandbox, name, tmp_path / name) for name in names]
    sandbox.delete(*(f"lease/{name}" for name in names))


def stop_and_wake(contest: Contest, seed: int) -> list[tuple[tuple[float, str], tuple[float, str]]]:
    """Stop and wake the candidates of a contest at random; each change of the lead: its last moment and the next."""
    chance = random.Random(seed)  # noqa: S311
    both = contest.begin()
    try:
        for _ in range(ROUNDS):
            victim = chance.choice(both)
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(chance.choice((0.01, 0.02, 0.05, 0.1, 0.3, 1.3)))
            os.kill(victim.pid, signal.SIGCONT)
            time.sleep(chance.uniform(0.0, 0.1))
        assert [process.poll() for process in both] == [None, None]
    finally:
        end(both)
    return [(before, after) for before, after in pairwise(contest.led()) if before[1] != after[1]]


def test_two_never_lead_at_once_however_they_are_stopped_and_woken(contests: list[Contest]) -> None:
    with ThreadPoolExecutor(CONTESTS) as several:
        seeds = range(SEED, SEED + CONTESTS)
        changes = [change for found in several.map(stop_and_wake, contests, seeds) for change in found]
    assert len(changes) > 5, "the lead did change hands"
    # Overlapping turns would alternate within milliseconds. The next may begin only when the last one's margin is over.
    assert min(began - ended for (ended, _), (began, _) in changes) >= TIMES.margin


def test_a_dead_leader_is_replaced_and_a_polite_one_lets_go(contests: list[Contest]) -> None:
    contest, *_ = contests
    both = contest.begin()
    try:
        first = contest.led()[-1][1]
        both["ab".index(first)].kill()
        until("the other leads", lambda: contest.led()[-1][1] != first)
        second = both["ba".index(first)]
        second.terminate()
        second.wait(timeout=60)
        lease = contest.sandbox.get("lease", contest.lease)
        assert lease["spec"].get("holderIdentity", "") == "", "the next one need not wait"
    finally:
        end(both)
