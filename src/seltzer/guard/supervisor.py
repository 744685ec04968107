"""The guard's one loop: win the Lease, fence, and give slurmctld one life after the other."""

from __future__ import annotations

import signal
import subprocess
import threading
import time

from seltzer.guard import epoch, log
from seltzer.guard.api import Api
from seltzer.guard.config import Rollout, Source
from seltzer.guard.epoch import Blocked, Epoch, Overtaken
from seltzer.guard.lease import Keeper
from seltzer.guard.life import Life, Reason, World
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Settings, Times
from seltzer.guard.wake import Waker


class Supervisor:
    """For the main thread of a process that does nothing else."""

    def __init__(self, settings: Settings, api: Api, processes: Processes) -> None:
        self._settings = settings
        self._times = settings.times
        self._processes = processes
        self._waker = Waker()
        self._keeper = Keeper(api, settings, self._waker.wake)
        self._report = self._keeper.report
        self._rollout = Rollout(Source(settings.places.config, settings.places.keys))
        self._stopping = False
        self._restarts = 0

    def run(self) -> int:
        """Until SIGTERM. slurmctld has ended and the Lease is free when this returns, or raises."""
        self._take_signals()
        self._keeper.start()
        threading.Thread(target=self._tell_version, daemon=True).start()
        try:
            while not self._stopping:
                term, ours = self._lead()
                if ours:
                    self._reign(term, ours)
        finally:
            self._keeper.end()
        return 0

    def _take_signals(self) -> None:
        def stop(*_: object) -> None:
            self._stopping = True

        self._waker.signals()
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken

    def _tell_version(self) -> None:
        argv = [*self._settings.places.slurmctld, "-V"]
        process = self._processes.start(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            said, _ = process.communicate(timeout=30)  # such as `slurm 26.05.5`
        except subprocess.TimeoutExpired:
            process.kill()
            return
        if process.returncode == 0 and said.split():
            self._report.set(slurm_version=said.split()[-1].decode(errors="replace"))

    def _pause(self, seconds: float) -> None:
        self._waker.wait(seconds)
        self._processes.reap()

    def _lead(self) -> tuple[int, Epoch | None]:
        """Wait for the Lease, and fence. Without an epoch when we are asked to end."""
        while not self._stopping:
            term = self._keeper.term
            if term and self._keeper.sure():
                try:
                    ours = epoch.begin(self._settings.places.state, self._keeper.sure)
                except Overtaken as error:
                    log.say(str(error))
                    self._keeper.renounce()
                except (Blocked, OSError) as error:
                    self._block(str(error))
                else:
                    log.say(f"epoch {ours.number} begins")
                    self._report.set("starting", epoch=str(ours.number), config="", message="")
                    return term, ours
            self._pause(self._times.tick)
        return 0, None

    def _block(self, why: str) -> None:
        """Say what is wrong, and look again in a while: somebody may have mended it."""
        log.say(f"slurmctld can't be started: {why}")
        self._report.set("blocked", message=why)
        self._pause(self._times.blocked)

    def _reign(self, term: int, ours: Epoch) -> None:
        """One life after the other, as long as Lease and epoch are ours and nobody asks us to end."""

        def interrupted() -> Reason | None:
            # The fence first: it is the one that can't wait.
            if not _ours(ours):
                return Reason.FENCED
            if self._stopping:
                return Reason.STOPPED
            return Reason.LOST if self._keeper.term != term else None

        world = World(self._settings, self._processes, self._waker, self._report, self._rollout, interrupted)
        backoff = Backoff(self._times)
        fallen_back = False
        while (reason := interrupted()) is None:
            if not fallen_back:  # what is mended at once is nobody's concern
                self._report.set("starting")
            try:
                life = Life(world, ours, self._rollout.choose())
            except (OSError, ValueError) as error:
                self._block(str(error))
                continue
            fallen_back = life.run() is Reason.CRASHED and self._mourn(life, backoff, world)
        log.say(f"epoch {ours.number} ends: {reason.value}")
        if reason is Reason.FENCED:
            self._keeper.renounce()

    def _mourn(self, life: Life, backoff: Backoff, world: World) -> bool:
        """slurmctld ended by itself: go back to a configuration with which it lived (True), or wait for a moment."""
        why = life.obituary()
        log.say(why)
        self._restarts += 1
        self._report.set(restarts=str(self._restarts))
        if not life.killed and self._rollout.refuse(life.config, life.verdict() or why):
            log.say(f"goes back from configuration {life.config.digest[:10]} to the one before")
            return True
        pause = backoff.after(time.monotonic() - life.born)
        self._report.set("crashed", message=why)
        again = time.monotonic() + pause
        while (left := again - time.monotonic()) > 0 and not world.interrupted():
            if self._rollout.change(life.config):
                backoff.reset()  # another configuration may be the cure
                break
            self._pause(min(left, self._times.tick))
        return False


class Backoff:
    """How long to wait before the next start: at once after the first crash, longer with each that follows."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._crashes = 0

    def after(self, uptime: float) -> float:
        if uptime >= self._times.steady:
            self.reset()
        pause = self._times.backoff[min(self._crashes, len(self._times.backoff) - 1)]
        self._crashes += 1
        return pause

    def reset(self) -> None:
        self._crashes = 0


def _ours(fence: Epoch) -> bool:
    try:
        return fence.ours()
    except OSError as error:
        # Neither yes nor no: a disk that can't be read. slurmctld can't save there either; ending it wouldn't help.
        log.say(f"the state can't be seen: {error}")
        return True
