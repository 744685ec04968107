"""Has all nodes register again some time after a repair. slurmctld then notices jobs that it wrongly believes to run.

It takes a reconfigure, in which slurmctld answers nobody for up to three seconds while it waits for its threads that
talk to unresponsive nodes. Node states don't predict that, since slurmctld keeps trying nodes that are DOWN; but it
counts those threads. The guard waits until there are none, up to a limit: until the reconfigure, jobs that don't run
hold CPUs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from seltzer.guard import log
from seltzer.guard.processes import Processes
from seltzer.guard.recovery.slurm import Cancelled, SlurmCommands, SlurmError
from seltzer.guard.settings import Settings


class Reregistration:
    """A thread that sets `due` when it is time to reconfigure."""

    def __init__(self, settings: Settings, processes: Processes, wake: Callable[[], None]) -> None:
        self.due = False
        self._times = settings.times
        self._slurm = SlurmCommands(settings.places, processes, time.monotonic() + settings.times.reregister_latest)
        self._wake = wake
        self._thread = threading.Thread(target=self._run, daemon=True, name="reregistration")
        self._thread.start()

    def end(self) -> None:
        self._slurm.cancel()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            self._slurm.pause(self._times.reregister_after)
            while waiting := self._waiting():
                log.say(f"nodes do not register again yet: slurmctld waits for {waiting} answers from nodes")
                self._slurm.pause(self._times.reregister_retry)
        except Cancelled:
            return
        except SlurmError as error:
            log.say(f"no longer waits for nodes that don't answer: {error}")
        self.due = True
        self._wake()

    def _waiting(self) -> int:
        """How many threads of slurmctld talk to nodes for longer than an answer takes."""
        end = time.monotonic() + self._times.node_reply
        while waiting := self._slurm.node_threads():
            if time.monotonic() >= end:
                break
            self._slurm.pause(self._times.node_reply / 10)
        return waiting
