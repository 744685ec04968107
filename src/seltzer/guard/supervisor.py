"""The guard's main loop: win the Lease, fence, and run slurmctld for as long as the term lasts."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.kube.client import KubeClient
from seltzer.guard.kube.lease import LeaseKeeper
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Settings
from seltzer.guard.slurmctld.child import answers
from seltzer.guard.slurmctld.config import Rollout, Source
from seltzer.guard.slurmctld.crash import Crashes
from seltzer.guard.state import continuity, epoch
from seltzer.guard.state.epoch import Blocked, Epoch, LostRace
from seltzer.guard.term import Term, TermContext
from seltzer.guard.wake import Waker
from seltzer.wire.annotations import ACCEPT_STATE

_ANSWER = 0.8  # kubelet's probe times out after a second


class Supervisor:
    """Owns the main thread of a process that does nothing else."""

    def __init__(self, settings: Settings, api: KubeClient, processes: Processes) -> None:
        self._settings = settings
        self._times = settings.times
        self._processes = processes
        self._waker = Waker()
        self._keeper = LeaseKeeper(api, settings, self._waker.wake)
        self._report = self._keeper.report
        self._crashes = Crashes(settings, processes, self._report)
        self._stopping = False
        rollout = Rollout(Source(settings.places.config, settings.places.keys))
        self._context = TermContext(
            settings, processes, self._waker, self._keeper, rollout, self._crashes, lambda: self._stopping
        )

    def run(self) -> int:
        """Run until SIGTERM. When this returns or raises, slurmctld has ended and the Lease is free."""
        self._take_signals()
        self._crashes.prepare()
        self._keeper.start()
        threading.Thread(target=self._report_version, daemon=True).start()
        try:
            while not self._stopping:
                term, ours = self._acquire_term()
                if ours:
                    Term(self._context, term, ours).run()
        finally:
            self._keeper.end()
        return 0

    def _take_signals(self) -> None:
        def stop(*_: object) -> None:
            self._stopping = True

        self._waker.signals()
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the signal wakes the loop

    def _report_version(self) -> None:
        argv = [*self._settings.places.slurmctld, "-V"]
        process = self._processes.start(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            said, _ = process.communicate(timeout=30)  # such as `slurm 26.05.5`
        except subprocess.TimeoutExpired:
            process.kill()
            return
        if process.returncode == 0 and said.split():
            self._report.set(slurm_version=said.split()[-1].decode(errors="replace"))

    def _acquire_term(self) -> tuple[int, Epoch | None]:
        """Wait for the Lease, then fence. The epoch is None when the guard is asked to end."""
        while not self._stopping:
            term = self._keeper.term
            if term and self._keeper.surely_held():
                try:
                    ours = self._begin_epoch()
                except LostRace as error:
                    log.say(str(error))
                    self._keeper.give_up_term()
                except (Blocked, OSError) as error:
                    self._context.block(str(error))
                else:
                    log.say(f"epoch {ours.number} begins")
                    return term, ours
            self._context.pause(self._times.tick)
        return 0, None

    def _begin_epoch(self) -> Epoch:
        """Begin an epoch on the state on the volume, if it is the one that this cluster wrote last."""
        # The Lease is read before the volume: it must not be ahead of what is found there.
        known = continuity.written(self._keeper.inherited)
        accepted = self._keeper.annotations.get(ACCEPT_STATE, "")

        def check(found: Path | None) -> None:
            continuity.check(found, known, accepted, self._context.lease_args)

        return epoch.begin(self._settings.places.state, self._keeper.surely_held, check=check, above=known.epoch)

    def unready(self) -> str:
        """Why this pod can't be relied on; empty if slurmctld is ready here or the pod stands by. For any thread."""
        if not self._keeper.term:
            return "" if self._keeper.in_contact() else "it stands by, but the API server doesn't answer"
        phase, message = self._report.get("phase"), self._report.get("message")
        if phase != "running":
            return f"slurmctld is {phase}" + (f": {message}" if message else "")
        return "" if answers(self._settings.places.port, _ANSWER) else "slurmctld runs, but doesn't answer"
