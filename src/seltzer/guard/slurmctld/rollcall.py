"""All nodes register once more, a while after a repair: then slurmctld finds the jobs that it only believes to run.

That takes a reconfigure, and slurmctld answers nobody while it waits, for three seconds, for those of its threads that
talk to nodes which don't answer. It goes on trying with nodes that are DOWN, so states don't tell; but it counts those
threads. They are waited for, though not for ever: until then such jobs keep CPUs that nobody uses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from seltzer.guard import log
from seltzer.guard.processes import Processes
from seltzer.guard.recovery.slurm import Cancelled, SlurmCommands, SlurmError
from seltzer.guard.settings import Settings


class RollCall:
    """A thread that tells when it is time, by `due`."""

    def __init__(self, settings: Settings, processes: Processes, wake: Callable[[], None]) -> None:
        self.due = False
        self._times = settings.times
        self._slurm = SlurmCommands(settings.places, processes, time.monotonic() + settings.times.roll_call_latest)
        self._wake = wake
        self._thread = threading.Thread(target=self._run, daemon=True, name="roll call")
        self._thread.start()

    def end(self) -> None:
        self._slurm.cancel()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            self._slurm.pause(self._times.roll_call)
            while waiting := self._waiting():
                log.say(
                    f"all nodes are to register again: not yet, since slurmctld waits for {waiting} answers of some"
                )
                self._slurm.pause(self._times.roll_call_again)
        except Cancelled:
            return
        except SlurmError as error:
            log.say(f"nodes that don't answer aren't waited for: {error}")
        self.due = True
        self._wake()

    def _waiting(self) -> int:
        """How many answers of nodes slurmctld waits for, of those that take longer than they should."""
        end = time.monotonic() + self._times.talk
        while waiting := self._slurm.talks():
            if time.monotonic() >= end:
                break
            self._slurm.pause(self._times.talk / 10)
        return waiting
