"""How long, and how often, the guard settles jobs after a start of slurmctld."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seltzer.guard.kube.report import Report
from seltzer.guard.processes import Processes
from seltzer.guard.recovery import Findings, RepairReport, requeues
from seltzer.guard.recovery.slurm import RESTART_DELAY, SlurmError
from seltzer.guard.settings import Settings, Times
from seltzer.guard.slurmctld import settlement
from seltzer.guard.slurmctld.settlement import Settlement

SETTINGS = Settings("ns", "lease", "slice", "pod", "address")


class Clock:
    """All clocks of the guard. They move when it waits, and no sooner."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time


class Commands:
    """slurmctld's, as far as it is waited for them."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        self._clock = clock
        self._deadline = deadline

    def cancel(self) -> None:
        pass

    def left(self) -> float:
        left = self._deadline - self._clock.now
        if left <= 0:
            raise SlurmError("there was no time left")
        return left

    def pause(self, seconds: float) -> None:
        self._clock.now += max(0.0, min(seconds, self._deadline - self._clock.now))


def settled_at(monkeypatch: pytest.MonkeyPatch, epoch: Path, settle: Callable[[float], None]) -> list[float]:
    """How many seconds after a start of slurmctld the guard settles jobs that were requeued right before it."""
    clock = Clock()
    times: list[float] = []

    def settle_now(_: Path, __: object, ___: RepairReport, after: float) -> None:
        assert after == SETTINGS.times.settle_after
        times.append(clock.now - 1000)
        settle(times[-1])

    monkeypatch.setattr(requeues, "time", clock)
    monkeypatch.setattr(settlement, "time", clock)
    monkeypatch.setattr(settlement, "settle", settle_now)
    monkeypatch.setattr(settlement, "SlurmCommands", lambda _, __, deadline: Commands(clock, deadline))
    requeues.remember(Findings(epoch), ["12"])
    settling = Settlement(epoch, SETTINGS, Processes(), Report(lambda: None))
    settling._thread.join()
    return times


def test_a_node_that_stays_away_is_waited_for_until_its_jobs_start_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = settled_at(monkeypatch, tmp_path, lambda _: None)
    waits = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    often = int(Times.settle // 2)
    assert waits[: often + 1] == [38.0, *[2.0] * often]
    assert set(waits[often + 1 :]) == {15.0}, "later there are only jobs whose nodes don't respond"
    assert RESTART_DELAY + 38 < times[-1] < RESTART_DELAY + 38 + 30


def test_it_ends_when_all_are_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(now: float) -> None:
        if now > 500:
            requeues.write(tmp_path, requeues.Unsettled())

    times = settled_at(monkeypatch, tmp_path, settle)
    assert 500 < times[-1] <= 515 and times[-2] < 500
