"""The repair of jobs, beside the supervisor's thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from seltzer.guard import log, recovery
from seltzer.guard.processes import Processes
from seltzer.guard.recovery.slurm import Cancelled, SlurmCommands
from seltzer.guard.settings import Settings


class Repairer:
    """A thread that repairs what was found. `done` comes for certain, a little after the time that it has."""

    def __init__(
        self, found: recovery.Found, settings: Settings, processes: Processes, wake: Callable[[], None]
    ) -> None:
        self._found = found
        self._keep_jobs = settings.keep_jobs
        self._wake = wake
        self._slurm = SlurmCommands(settings.places, processes, time.monotonic() + settings.times.repair)
        self.recovered = recovery.Recovered()
        self.done = False
        self.safe = False
        """Whether what was found isn't needed any more: all of it is put right, or kept for a person."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="repair")
        self._thread.start()

    def cancel(self) -> None:
        """slurmctld ends: leave the rest to the next start. Doesn't wait."""
        self._slurm.cancel()

    def end(self) -> None:
        """Cancel it, and see that it doesn't reach into the next life."""
        self.cancel()
        self._thread.join(5)

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self.safe = recovery.repair(self._found, self._slurm, self._keep_jobs, self.recovered)
            log.say(f"{len(self.recovered.jobs)} jobs repaired in {time.monotonic() - began:.2f} s")
        except Cancelled:
            log.say("the repair of jobs is left to the next start")
        except Exception as error:  # nobody may be kept waiting for ever by what we didn't think of
            log.say(f"the repair of jobs failed: {error!r}")
            self.safe = recovery.emergency(self._found, error, self.recovered)
        finally:
            try:
                self.recovered.write(self._found.epoch)
            finally:
                self.done = True
                self._wake()
