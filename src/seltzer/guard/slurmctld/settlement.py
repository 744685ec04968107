"""Settles requeued jobs some time after a repair: cancels those that had ended after all, and lets the others start."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.kube.report import Report
from seltzer.guard.processes import Processes
from seltzer.guard.recovery import RepairReport, requeues
from seltzer.guard.recovery.settle import settle
from seltzer.guard.recovery.slurm import RESTART_DELAY, Cancelled, SlurmCommands, SlurmError
from seltzer.guard.settings import Settings

_AGAIN = 2.0
_SELDOM = 15.0


class Settlement:
    """A thread, if there are such jobs, until all are settled or have started by themselves after RESTART_DELAY.

    Whatever it doesn't finish is left to the next run.
    """

    def __init__(self, epoch: Path, settings: Settings, processes: Processes, report: Report) -> None:
        self._epoch = epoch
        self._times = settings.times
        self._report = report
        patience = self._times.settle_after + self._times.settle + RESTART_DELAY
        self._slurm = SlurmCommands(settings.places, processes, time.monotonic() + patience)
        self._thread = threading.Thread(target=self._run, daemon=True, name="settlement")
        if requeues.read(epoch).jobs:
            self._thread.start()

    def end(self) -> None:
        self._slurm.cancel()
        if self._thread.ident is not None:
            self._thread.join(5)

    def _run(self) -> None:
        """Each job when it is due, once all nodes have reported to this slurmctld what has ended."""
        after = self._times.settle_after
        wait = after
        try:
            while True:
                self._slurm.pause(wait)
                self._slurm.left()
                self._settle()
                unsettled = requeues.read(self._epoch)
                if not unsettled.jobs:
                    return
                # Later there are only jobs left whose nodes don't respond.
                soonest = _AGAIN if self._slurm.left() > RESTART_DELAY else _SELDOM
                wait = unsettled.wait(time.time(), soonest, after)
        except Cancelled:
            pass
        except SlurmError as error:
            log.say(f"requeued jobs start by themselves later: {error}")

    def _settle(self) -> None:
        recovered = RepairReport()
        try:
            settle(self._epoch, self._slurm, recovered, self._times.settle_after)
        except SlurmError as error:
            log.say(f"requeued jobs aren't settled yet: {error}")
        finally:
            recovered.write(self._epoch)
            if recovered.jobs:
                self._report.set(recovered=recovered.as_json(self._epoch))
