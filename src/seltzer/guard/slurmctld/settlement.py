"""Settles requeued jobs some time after a repair: cancels those that had ended after all, and lets the others start."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.kube.report import Report
from seltzer.guard.processes import Processes
from seltzer.guard.recovery import RepairReport, requeues
from seltzer.guard.recovery.slurm import Cancelled, SlurmCommands, SlurmError
from seltzer.guard.settings import Settings, Times

_AGAIN = 2.0


class Settlement:
    """A thread, if there are such jobs. Whatever it doesn't finish is left to the next run."""

    def __init__(self, epoch: Path, settings: Settings, processes: Processes, report: Report) -> None:
        self._epoch = epoch
        unsettled = requeues.read(epoch)
        self._after = _wait(unsettled.added, settings.times)
        self._report = report
        self._slurm = SlurmCommands(settings.places, processes, time.monotonic() + self._after + settings.times.settle)
        self._thread = threading.Thread(target=self._run, daemon=True, name="settlement")
        if unsettled.jobs:
            self._thread.start()

    def end(self) -> None:
        self._slurm.cancel()
        if self._thread.ident is not None:
            self._thread.join(5)

    def _run(self) -> None:
        recovered = RepairReport()
        try:
            self._slurm.pause(self._after)
            while not self._settle(recovered):
                self._slurm.left()
                self._slurm.pause(_AGAIN)
        except Cancelled:
            pass
        except SlurmError as error:
            log.say(f"requeued jobs start by themselves later: {error}")
        recovered.write(self._epoch)
        if recovered.jobs:
            self._report.set(recovered=recovered.as_json(self._epoch))

    def _settle(self, recovered: RepairReport) -> bool:
        try:
            requeues.settle(self._epoch, self._slurm, recovered)
        except SlurmError as error:
            log.say(f"requeued jobs aren't settled yet: {error}")
            return False
        return True


def _wait(added: float, times: Times) -> float:
    """Clocks may differ, and nodes have to register with this slurmctld."""
    return min(times.settle_after, max(times.settle_soonest, added + times.settle_after - time.time()))
