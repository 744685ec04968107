"""slurmctld under one epoch: it is run again and again until the Lease, the epoch or the pod is no longer ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from seltzer.guard import log
from seltzer.guard.kube.lease import LeaseKeeper
from seltzer.guard.name_servers import NameServerWatch
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
    def lease_args(self) -> str:
        """The Lease as arguments for kubectl."""
        return f"-n {self.settings.namespace} lease/{self.settings.lease}"


class Term:
    """For the supervisor's thread only."""

    def __init__(self, context: TermContext, term: int, ours: Epoch) -> None:
        settings = context.settings
        self._context = context
        self._times = settings.times
        self._keeper = context.keeper
        self._report = context.keeper.report
        self._term = term
        self._epoch = ours
        self._saved = continuity.saved(ours.path)
        self._stamps = Stamps(ours, settings.identity)
        self._volume = Volume(settings, ours.path, self._report)
        times = settings.times
        self._names = NameServerWatch(
            settings.resolv_conf, settings.endpointslice, self._report, times.names, times.name_server
        )
        self._backoff = Backoff(self._times)
        self._unreported = False  # whether the next start goes unreported
        self._reregister = False  # whether all nodes have to register twice with the next slurmctld
        self._crash_summary = ""  # the exit summary of a slurmctld that crashed and hasn't been started since
        self._run_context = RunContext(
            settings, context.processes, context.waker, self._report, context.rollout, self._interrupted
        )
        # Both at once: together they say how old a state may be. A save before this epoch has another clock's time.
        self._report.set("starting", epoch=str(ours.number), saved="", config="", message="")
        # Only after that is reported. Otherwise the next guard would need the annotation again.
        self._keeper.consume(ACCEPT_STATE)

    def run(self) -> None:
        """Run until something ends the term. When this returns or raises, slurmctld has ended."""
        self._volume.start()
        self._names.start()
        try:
            while (reason := self._end_reason()) is None:
                if self._keeper.hold:
                    self._hold()
                else:
                    self._run_slurmctld()
        finally:
            self._volume.stop()
            self._names.stop()
        log.say(f"epoch {self._epoch.number} ends: {reason.value}")
        if reason is Reason.FENCED:
            self._keeper.give_up_term()

    def _end_reason(self) -> Reason | None:
        # The fence comes first: it is the most urgent.
        if not _ours(self._epoch):
            return Reason.FENCED
        if self._context.stopping():
            return Reason.STOPPED
        return Reason.LOST if self._keeper.term != self._term else None

    def _interrupted(self) -> Reason | None:
        """Called at every tick of a run: checks everything that has to be checked that often."""
        reason = self._end_reason()
        if reason is not Reason.FENCED:
            self._record_save()
        return reason or (Reason.HELD if self._keeper.hold else None)

    def _record_save(self) -> None:
        saved = continuity.saved(self._epoch.path)
        if saved and saved != self._saved:
            self._saved = saved
            self._stamps.write("save", f"job_state={saved}")
            if self._keeper.term == self._term:
                self._report.note(saved=str(saved))

    def _run_slurmctld(self) -> None:
        """Run slurmctld once, if it can be started."""
        try:
            self._check()
            chosen = self._context.rollout.choose()
        except (Blocked, OSError, ValueError) as error:
            self._context.block(str(error))
            return
        if self._report.get("phase") in ("blocked", "held"):
            self._report.set("starting", message="")
        elif not self._unreported:
            self._report.set("starting")
        # Written before the start: a slurmctld that runs has a stamp even if the guard is killed right after.
        self._stamps.write("start", f"configuration {chosen.digest[:10]}")
        try:
            run = SlurmctldRun(self._run_context, self._epoch, chosen, reregister=self._reregister)
        except (OSError, ValueError) as error:
            self._stamps.write("stop", f"it could not be started: {error}")
            self._context.block(str(error))
            return
        self._crash_summary = ""
        self._context.crashes.examine()
        reason = run.run()
        self._record_save()
        self._reregister = reason is Reason.REPAIRED
        if reason is Reason.CRASHED:
            self._unreported = self._after_crash(run)
        else:
            self._unreported = self._reregister
            self._stamps.write("stop", reason.value)

    def _check(self) -> None:
        """Raises Blocked or OSError if a slurmctld started now would lose something."""
        accepted = self._keeper.annotations.get(ACCEPT_STATE, "")
        known = Written(self._epoch.number, self._saved)
        continuity.check(self._epoch.path, known, accepted, self._context.lease_args)
        self._record_save()
        if accepted == continuity.name(self._epoch.path):
            self._keeper.consume(ACCEPT_STATE)
        self._volume.require_space()

    def _after_crash(self, run: SlurmctldRun) -> bool:
        """slurmctld ended by itself: go back to the last good configuration (returns True), or back off (False)."""
        why = self._crash_summary = run.exit_summary()
        log.say(why)
        self._stamps.write("crash", why.removeprefix("slurmctld "))
        self._context.crashes.note(run.child)
        rollout = self._context.rollout
        if not run.killed and rollout.refuse(run.config, run.cause() or why):
            log.say(f"rolls back from configuration {run.config.digest[:10]} to the previous one")
            return True
        pause = self._backoff.after(time.monotonic() - run.started_at)
        self._report.set("crashed", message=why)
        if pause:
            self._context.crashes.examine()
        again = time.monotonic() + pause
        while (left := again - time.monotonic()) > 0 and not self._interrupted():
            if rollout.change(run.config):
                self._backoff.reset()  # the new configuration may fix it
                break
            self._context.pause(min(left, self._times.tick))
        return False

    def _hold(self) -> None:
        """Keep slurmctld down and leave everything else as it is, for debugging."""
        if self._report.get("phase") != "held":
            log.say('slurmctld is held: it isn\'t started while the Lease has seltzer.dev/hold: "true"')
        self._report.set("held", message=self._crash_summary)
        self._context.crashes.examine()
        self._backoff.reset()
        self._context.pause(self._times.tick)


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
