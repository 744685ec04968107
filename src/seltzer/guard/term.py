"""slurmctld under one epoch: one life after the other, until Lease, epoch or pod are no longer ours."""

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
from seltzer.wire.annotations import ACCEPT_STATE


@dataclass(frozen=True)
class TermContext:
    """What outlives a reign."""

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
        """Say what is wrong, and look again in a while: somebody may have mended it."""
        report = self.keeper.report
        if (report.get("phase"), report.get("message")) != ("blocked", why):
            log.say(f"slurmctld can't be started: {why}")
            report.set("blocked", message=why)
        self.pause(self.settings.times.blocked)

    @property
    def lease_words(self) -> str:
        """The Lease, in the words of kubectl."""
        return f"-n {self.settings.namespace} lease/{self.settings.lease}"


class Term:
    """For the supervisor's thread."""

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
        self._silent = False  # whether the next start is nobody's concern
        self._roll_call = False  # whether all nodes have to register with the next slurmctld twice
        self._last_words = ""  # of a slurmctld that crashed and hasn't been started since
        self._context = RunContext(
            settings, realm.processes, realm.waker, self._report, realm.rollout, self._interrupted
        )
        # Both at once: together they say how old a state may be. What was saved before us is of another clock.
        self._report.set("starting", epoch=str(ours.number), saved="", config="", message="")
        # Not before that is told: who comes next would have to ask again.
        self._keeper.use_up(ACCEPT_STATE)

    def run(self) -> None:
        """Until something ends it. slurmctld has ended when this returns, or raises."""
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
        # The fence first: it is the one that can't wait.
        if not _ours(self._epoch):
            return Reason.FENCED
        if self._realm.stopping():
            return Reason.STOPPED
        return Reason.LOST if self._keeper.term != self._term else None

    def _interrupted(self) -> Reason | None:
        """Asked at every tick of a life, so here is seen what has to be seen at every tick."""
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
        """One life, if it can begin."""
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
        # Before the fact: a slurmctld that runs has a stamp, whatever happens to us.
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
        """Raises Blocked or OSError if slurmctld, started now, would lose something."""
        accepted = self._keeper.annotations.get(ACCEPT_STATE, "")
        known = Written(self._epoch.number, self._saved)
        continuity.check(self._epoch.path, known, accepted, self._realm.lease_words)
        self._look_for_save()
        if accepted == continuity.name(self._epoch.path):
            self._keeper.use_up(ACCEPT_STATE)
        self._volume.room()

    def _after_crash(self, life: SlurmctldRun) -> bool:
        """slurmctld ended by itself: go back to a configuration with which it lived (True), or wait for a moment."""
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
                self._backoff.reset()  # another configuration may be the cure
                break
            self._realm.pause(min(left, self._times.tick))
        return False

    def _hold(self) -> None:
        """Keep slurmctld down, and everything else as it is, for whoever wants to look."""
        if self._report.get("phase") != "held":
            log.say('slurmctld is held: it isn\'t started while the Lease has seltzer.dev/hold: "true"')
        self._report.set("held", message=self._last_words)
        self._realm.crashes.examine()
        self._backoff.reset()
        self._realm.pause(self._times.tick)


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
