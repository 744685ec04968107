"""Runs the repair of jobs beside the supervisor's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from seltzer.guard import log, recovery
from seltzer.guard.processes import Processes
from seltzer.guard.recovery.slurm import Cancelled, SlurmCommands
from seltzer.guard.settings import Settings


class Repairer:
    """A thread that repairs what was found. Sets `done` in any case, soon after its deadline at the latest."""

    def __init__(
        self, found: recovery.Findings, settings: Settings, processes: Processes, wake: Callable[[], None]
    ) -> None:
        self._found = found
        self._keep_jobs = settings.keep_jobs
        self._wake = wake
        self._slurm = SlurmCommands(settings.places, processes, time.monotonic() + settings.times.repair)
        self.recovered = recovery.RepairReport()
        self.done = False
        self.safe = False
        """Whether what was found is no longer needed: everything is repaired, or kept for a person."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="repair")
        self._thread.start()

    def cancel(self) -> None:
        """slurmctld is ending: leave the rest to the next start. Doesn't wait."""
        self._slurm.cancel()

    def end(self) -> None:
        """Cancel the repair, and make sure that it doesn't reach into the next run."""
        self.cancel()
        self._thread.join(5)

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self.safe = recovery.repair(self._found, self._slurm, self._keep_jobs, self.recovered)
            log.say(f"{len(self.recovered.jobs)} jobs repaired in {time.monotonic() - began:.2f} s")
        except Cancelled:
            log.say("the repair of jobs is left to the next start")
        except Exception as error:  # an unexpected error must not keep slurmctld from scheduling for ever
            log.say(f"the repair of jobs failed: {error!r}")
            self.safe = recovery.emergency(self._found, error, self.recovered)
        finally:
            try:
                self.recovered.write(self._found.epoch)
            finally:
                self.done = True
                self._wake()
