"""At most one leads, whoever is stopped and woken whenever: by one clock, with a real API server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.contract.candidate import TIMES
from tests.harness import Sandbox, until

CANDIDATE = Path(__file__).with_name("candidate.py")
ROUNDS = 200
SEED = 20261115


@pytest.fixture
def log(sandbox: Sandbox, tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log"
    sandbox.delete("lease/contest")


def candidates(sandbox: Sandbox, log: Path) -> list[subprocess.Popen[bytes]]:
    kubeconfig = sandbox.command("kubeconfig", "--path").strip()
    command = [sys.executable, str(CANDIDATE), kubeconfig, "contest"]
    return [subprocess.Popen([*command, name, str(log)], stderr=subprocess.DEVNULL) for name in ("a", "b")]


def led(log: Path) -> list[tuple[float, str]]:
    """Who led when, in the order of time."""
    lines = (line.split() for line in log.read_text().splitlines()) if log.exists() else ()
    return sorted((float(words[1]), words[0]) for words in lines if len(words) == 2)


def test_two_never_lead_at_once_however_they_are_stopped_and_woken(sandbox: Sandbox, log: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311
    both = candidates(sandbox, log)
    try:
        until("somebody leads", lambda: bool(led(log)))
        for _ in range(ROUNDS):
            victim = chance.choice(both)
            os.kill(victim.pid, signal.SIGSTOP)
            time.sleep(chance.choice((0.01, 0.02, 0.05, 0.1, 0.3, 1.3)))
            os.kill(victim.pid, signal.SIGCONT)
            time.sleep(chance.uniform(0.0, 0.1))
        assert [process.poll() for process in both] == [None, None]
    finally:
        for process in both:
            process.kill()
            process.wait()
    changes = [(before, after) for before, after in pairwise(led(log)) if before[1] != after[1]]
    assert len(changes) > 5, "the lead did change hands"
    # Overlapping turns would alternate within milliseconds. The next may begin only when the last one's margin is over.
    assert min(began - ended for (ended, _), (began, _) in changes) >= TIMES.margin


def test_a_dead_leader_is_replaced_and_a_polite_one_lets_go(sandbox: Sandbox, log: Path) -> None:
    both = candidates(sandbox, log)
    try:
        until("somebody leads", lambda: bool(led(log)))
        first = led(log)[-1][1]
        both["ab".index(first)].kill()
        until("the other leads", lambda: led(log)[-1][1] != first)
        second = both["ba".index(first)]
        second.terminate()
        second.wait(timeout=60)
        assert sandbox.get("lease", "contest")["spec"].get("holderIdentity", "") == "", "the next one need not wait"
    finally:
        for process in both:
            process.kill()
            process.wait()
