"""slurmctld under one epoch: it is run again and again until the Lease, the epoch or the pod is no longer ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from seltzer.guard import log
from seltzer.guard.kube.lease import LeaseKeeper
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Settings, Times
from seltzer.guard.slurmctld.config import Rollout
from seltzer.guard.slurmctld.crash import Crashes
from seltzer.guard.slurmctld.slurmctld_run import Reason, RunContext, SlurmctldRun
from seltzer.guard.state import continuity
from seltzer.guard.state.continuity import Written
from seltzer.guard.state.epoch import Blocked, Epoch
from seltzer.guard.state.stamps import Stamps
from seltzer.guard.state.volume import Volume
from seltzer.guard.wake import Waker


@dataclass(frozen=True)
class TermContext:
    """What outlives a term."""

    settings: Settings
    processes: Processes
    waker: Waker
    keeper: LeaseKeeper
    rollout: Rollout
    crashes: Crashes
    stopping: Callable[[], bool]

    def pause(self, seconds: float) -> None:
        self.waker.wait(seconds)
        self.processes.reap()

    def block(self, why: str) -> None:
        """Report what is wrong, then wait before the next attempt: somebody may have fixed it by then."""
        report = self.keeper.report
        if (report.get("phase"), report.get("message")) != ("blocked", why):
            log.say(f"slurmctld can't be started: {why}")
            report.set("blocked", message=why)
        self.pause(self.settings.times.blocked)

    @property
    def lease_words(self) -> str:
        """The Lease as arguments for kubectl."""
        return f"-n {self.settings.namespace} lease/{self.settings.lease}"


class Term:
    """For the supervisor's thread only."""

    def __init__(self, realm: TermContext, term: int, ours: Epoch) -> None:
        settings = realm.settings
        self._realm = realm
        self._times = settings.times
        self._keeper = realm.keeper
        self._report = realm.keeper.report
        self._term = term
        self._epoch = ours
        self._saved = continuity.saved(ours.path)
        self._stamps = Stamps(ours, settings.identity)
        self._volume = Volume(settings, ours.path, self._report)
        self._backoff = Backoff(self._times)
        self._silent = False  # whether the next start goes unreported
        self._roll_call = False  # whether all nodes have to register twice with the next slurmctld
        self._last_words = ""  # the exit summary of a slurmctld that crashed and hasn't been started since
        self._context = RunContext(
            settings, realm.processes, realm.waker, self._report, realm.rollout, self._interrupted
        )
        # Both at once: together they say how old a state may be. A save before this epoch has another clock's time.
        self._report.set("starting", epoch=str(ours.number), saved="", config="", message="")
        # Only after that is reported. Otherwise the next guard would need the annotation again.
        self._keeper.use_up("accept-state")

    def run(self) -> None:
        """Run until something ends the term. When this returns or raises, slurmctld has ended."""
        self._volume.start()
        try:
            while (reason := self._over()) is None:
                if self._keeper.hold:
                    self._hold()
                else:
                    self._live()
        finally:
            self._volume.stop()
        log.say(f"epoch {self._epoch.number} ends: {reason.value}")
        if reason is Reason.FENCED:
            self._keeper.renounce()

    def _over(self) -> Reason | None:
        # The fence comes first: it is the most urgent.
        if not _ours(self._epoch):
            return Reason.FENCED
        if self._realm.stopping():
            return Reason.STOPPED
        return Reason.LOST if self._keeper.term != self._term else None

    def _interrupted(self) -> Reason | None:
        """Called at every tick of a run: checks everything that has to be checked that often."""
        reason = self._over()
        if reason is not Reason.FENCED:
            self._look_for_save()
        return reason or (Reason.HELD if self._keeper.hold else None)

    def _look_for_save(self) -> None:
        saved = continuity.saved(self._epoch.path)
        if saved and saved != self._saved:
            self._saved = saved
            self._stamps.write("save", f"job_state={saved}")
            if self._keeper.term == self._term:
                self._report.note(saved=str(saved))

    def _live(self) -> None:
        """Run slurmctld once, if it can be started."""
        try:
            self._check()
            chosen = self._realm.rollout.choose()
        except (Blocked, OSError, ValueError) as error:
            self._realm.block(str(error))
            return
        if self._report.get("phase") in ("blocked", "held"):
            self._report.set("starting", message="")
        elif not self._silent:
            self._report.set("starting")
        # Written before the start: a slurmctld that runs has a stamp even if the guard is killed right after.
        self._stamps.write("start", f"configuration {chosen.digest[:10]}")
        try:
            life = SlurmctldRun(self._context, self._epoch, chosen, roll_call=self._roll_call)
        except (OSError, ValueError) as error:
            self._stamps.write("stop", f"it could not be started: {error}")
            self._realm.block(str(error))
            return
        self._last_words = ""
        self._realm.crashes.examine()
        reason = life.run()
        self._look_for_save()
        self._roll_call = reason is Reason.REPAIRED
        if reason is Reason.CRASHED:
            self._silent = self._after_crash(life)
        else:
            self._silent = self._roll_call
            self._stamps.write("stop", reason.value)

    def _check(self) -> None:
        """Raises Blocked or OSError if a slurmctld started now would lose something."""
        accepted = self._keeper.annotations.get("accept-state", "")
        known = Written(self._epoch.number, self._saved)
        continuity.check(self._epoch.path, known, accepted, self._realm.lease_words)
        self._look_for_save()
        if accepted == continuity.name(self._epoch.path):
            self._keeper.use_up("accept-state")
        self._volume.room()

    def _after_crash(self, life: SlurmctldRun) -> bool:
        """slurmctld ended by itself: go back to the last good configuration (returns True), or back off (False)."""
        why = self._last_words = life.exit_summary()
        log.say(why)
        self._stamps.write("crash", why.removeprefix("slurmctld "))
        self._realm.crashes.note(life.child)
        rollout = self._realm.rollout
        if not life.killed and rollout.refuse(life.config, life.verdict() or why):
            log.say(f"goes back from configuration {life.config.digest[:10]} to the one before")
            return True
        pause = self._backoff.after(time.monotonic() - life.born)
        self._report.set("crashed", message=why)
        if pause:
            self._realm.crashes.examine()
        again = time.monotonic() + pause
        while (left := again - time.monotonic()) > 0 and not self._interrupted():
            if rollout.change(life.config):
                self._backoff.reset()  # the new configuration may fix it
                break
            self._realm.pause(min(left, self._times.tick))
        return False

    def _hold(self) -> None:
        """Keep slurmctld down and leave everything else as it is, for debugging."""
        if self._report.get("phase") != "held":
            log.say('slurmctld is held: it isn\'t started while the Lease has seltzer.dev/hold: "true"')
        self._report.set("held", message=self._last_words)
        self._realm.crashes.examine()
        self._backoff.reset()
        self._realm.pause(self._times.tick)


class Backoff:
    """How long to wait before the next start: not at all after the first crash, then longer with each one."""

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
        # Unknown: the disk can't be read. slurmctld can't save there either, and ending it wouldn't help.
        log.say(f"can't read the state directory: {error}")
        return True
