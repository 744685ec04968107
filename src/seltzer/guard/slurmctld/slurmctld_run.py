"""One run of slurmctld: from its start until it has ended, by itself or on request."""

from __future__ import annotations

import enum
import math
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from seltzer.guard import log, recovery
from seltzer.guard.kube.report import Report, now
from seltzer.guard.processes import Processes
from seltzer.guard.recovery import first_job_id, history, traces
from seltzer.guard.recovery.repairer import Repairer
from seltzer.guard.settings import Settings
from seltzer.guard.slurmctld import config
from seltzer.guard.slurmctld.child import Child, Readiness
from seltzer.guard.slurmctld.config import Config, Rollout
from seltzer.guard.slurmctld.partitions import PartitionUpdater
from seltzer.guard.slurmctld.reregistration import Reregistration
from seltzer.guard.slurmctld.settlement import Settlement
from seltzer.guard.state import continuity, rotation
from seltzer.guard.state.epoch import Epoch
from seltzer.guard.wake import Waker

_DEBUG = re.compile(rb"^\s*SlurmctldDebug\s*=\s*(\w+)", re.IGNORECASE | re.MULTILINE)
# At these levels slurmctld doesn't log which jobs start, end and are cancelled.
_TOO_QUIET = frozenset({b"quiet", b"fatal", b"error", b"info", b"0", b"1", b"2", b"3"})


class Reason(enum.Enum):
    """Why slurmctld has ended, or has to."""

    CRASHED = "it crashed"
    CHANGED = "the configuration needs a restart"
    STOPPED = "the pod ends"
    LOST = "another guard holds the Lease"
    HELD = "it is held for debugging"
    FENCED = "its state directory is gone"
    REPAIRED = "its jobs have been repaired"


@dataclass(frozen=True)
class RunContext:
    """What a run needs. `interrupted` returns the reason to end the run, if there is one."""

    settings: Settings
    processes: Processes
    waker: Waker
    report: Report
    rollout: Rollout
    interrupted: Callable[[], Reason | None]


class SlurmctldRun:
    """slurmctld runs from the constructor until `run` returns, and no longer."""

    def __init__(self, context: RunContext, epoch: Epoch, chosen: Config, *, reregister: bool = False) -> None:
        """`reregister`: slurmctld may believe in jobs that don't run, which shows when their nodes register again."""
        self._context = context
        self._times = context.settings.times
        self._places = context.settings.places
        self._epoch = epoch
        self.config = chosen
        self._started_with = chosen.restart
        epoch.link(self._places.link)
        rotation.take_over(epoch.path)
        self._found = recovery.find(epoch.path)
        # Also after a clean exit: slurmctld doesn't wait until nodes have received the jobs that it has just started.
        launched = traces.has_launched(history.last_seconds(epoch.path, self._times.launch))
        self._repairing = self._found.needs_repair  # scheduling is off until the repair is done
        self._repairer: Repairer | None = None
        self._partition_updater: PartitionUpdater | None = None
        self._settlement: Settlement | None = None
        # After a repair: the saved state before it, and the log's last line.
        self._repair_base: tuple[int, str] | None = None
        if self._repairing:
            log.say("slurmctld may not have saved everything: scheduling is off until its jobs are repaired")
        self._write(chosen)
        recovery.mark_started(epoch.path)
        self.started_at = time.monotonic()
        argv = [*self._places.slurmctld, "-D", "-f", str(self._places.etc / "slurm.conf")]
        # The working directory is where it leaves its core when it crashes.
        self._child = Child(context.processes, argv, cwd=self._places.cores if self._places.cores.is_dir() else None)
        self._readiness = self._ask()
        self._ready = False
        self._ready_since = math.inf
        self._asked_to_reconfigure = math.inf
        self._reconfiguring = False
        self._rotated = time.monotonic()
        self._reregistration = (
            Reregistration(context.settings, context.processes, context.waker.wake)
            if reregister or (launched and not self._repairing)
            else None
        )
        context.report.set(started=now())

    @property
    def killed(self) -> bool:
        """Whether it was ended by SIGKILL, which is never the configuration's fault."""
        return self._child.code == -signal.SIGKILL

    @property
    def child(self) -> Child:
        return self._child

    def exit_summary(self) -> str:
        return self._child.exit_summary()

    def cause(self) -> str:
        return self._child.cause()

    def run(self) -> Reason:
        """Supervise it until it has ended."""
        try:
            reason = self._watch()
            if reason is not Reason.CRASHED:
                self._stop(reason)
            return reason
        except BaseException:
            # A bug of ours must not cost a job: slurmctld always gets to save its state.
            self._stop(Reason.STOPPED)
            raise
        finally:
            self._readiness.cancel()
            if self._repairer:
                self._repairer.end()
            if self._partition_updater:
                self._partition_updater.end()
            if self._reregistration:
                self._reregistration.end()
            if self._settlement:
                self._settlement.end()

    def _watch(self) -> Reason:
        while True:
            self._context.waker.wait(self._times.tick)
            self._context.processes.reap()
            if self._child.code is not None:
                return Reason.CRASHED
            reason = self._context.interrupted() or self._tick()
            if reason:
                return reason

    def _tick(self) -> Reason | None:
        """One tick of a run in which nothing is wrong."""
        if not self._ready and self._readiness.ready and (reason := self._become_ready()):
            return reason
        if not self._ready:
            late = time.monotonic() - self._asked_to_reconfigure > self._times.reconfigure
            return Reason.CHANGED if late and not self._child.reexecuted else None
        if time.monotonic() - self._rotated >= self._times.rotate:
            self._rotated = time.monotonic()
            rotation.rotate(self._epoch.path, lambda: self._child.send(signal.SIGUSR2))
        if time.monotonic() - self._ready_since >= self._times.probation:
            self._context.rollout.prove(self.config)
        change = self._context.rollout.change(self.config)
        if change is None:
            self._report_running()
            if self._reregistration and self._reregistration.due:
                words = "all nodes register once more, so that slurmctld finds jobs that it wrongly believes to run"
                log.say(words)
                self._context.report.add_event("NodesCalled", words)
                self._reregistration = None
                self._send_reconfigure()
            return None
        if change.restart != self._started_with:
            log.say(f"configuration {change.digest[:10]} needs a restart")
            return Reason.CHANGED
        return self._reconfigure(change)

    def _become_ready(self) -> Reason | None:
        if self._repairing:
            return self._repair()
        if self._reconfiguring:
            self._reconfiguring = False
            self._epoch.set_rolled_out(self.config.digest)
        elif self._epoch.rolled_out != self.config.digest:
            # Only if needed: two reconfigures in a row after a crash, while jobs end, have hung slurmds for ever.
            log.say("the nodes don't know this configuration yet: one reconfigure")
            self._send_reconfigure()
            return None
        self._ready = True
        self._ready_since = time.monotonic()
        log.say(f"slurmctld is ready with configuration {self.config.digest[:10]}")
        if self._partition_updater:
            self._partition_updater.end()
        context, declared = self._context, self.config.files["slurm.conf"]
        self._partition_updater = PartitionUpdater(
            self._epoch.path, declared, context.settings, context.processes, context.report.add_event
        )
        if not self._settlement:
            self._settlement = Settlement(self._epoch.path, context.settings, context.processes, context.report)
        self._report_running()
        return None

    def _repair(self) -> Reason | None:
        """slurmctld answers and schedules nothing: repair its jobs, then let it schedule. Called again at every tick.

        slurmctld is restarted for that, and saves everything when it ends. A reconfigure would be no quicker, and would
        restart every slurmd as well, just when jobs end that slurmctld doesn't know.
        """
        if not self._repairer:
            context = self._context
            self._repairer = Repairer(self._found, context.settings, context.processes, context.waker.wake)
        if not self._repairer.done:
            return None
        summary = self._repairer.recovered.as_json(self._epoch.path)
        if summary:
            self._context.report.set(recovered=summary)
        if self._repairer.safe:
            self._repair_base = (continuity.saved(self._epoch.path), history.last_line(self._epoch.path))
        else:
            log.say("some jobs could not be kept: the next start looks at them again")
        return Reason.REPAIRED

    def _finish_repair(self, before: int, until: str) -> None:
        self._repair_base = None
        if continuity.saved(self._epoch.path) != before:
            recovery.mark_repaired(self._epoch.path, until)
        else:
            log.say("slurmctld has not saved the repair: the next start looks at it again")

    def _report_running(self) -> None:
        self._context.report.set("running", config=self.config.digest, message=self._context.rollout.complaint)

    def _reconfigure(self, change: Config) -> Reason | None:
        log.say(f"reconfigure to {change.digest[:10]}")
        try:
            self._write(change)
        except OSError as error:
            self._context.report.set(message=f"the new configuration can't be written: {error}")
            return None
        self.config = change
        self._send_reconfigure()
        return None

    def _send_reconfigure(self) -> None:
        self._ready = False
        self._reconfiguring = True
        self._asked_to_reconfigure = time.monotonic()
        self._child.reconfigure()
        self._readiness = self._ask()

    def _ask(self) -> Readiness:
        return Readiness(self._child, self._places.port, self._times.probe, self._context.waker.wake)

    def _write(self, chosen: Config) -> None:
        lines = f"StateSaveLocation={self._places.link}\nSlurmctldLogFile={self._places.link}/{rotation.LOG}\n"
        # The last value counts. Without the date in each line, nobody knows where to begin to read the log.
        lines += "LogTimeFormat=iso8601_ms\n"
        wanted = _DEBUG.findall(chosen.files["slurm.conf"])
        if not wanted or wanted[-1].lower() in _TOO_QUIET:
            lines += "SlurmctldDebug=verbose\n"
        if self._repairing:
            lines += recovery.SCHEDULING_OFF + first_job_id.line(self._found.first_job_id, chosen.files["slurm.conf"])
        config.write(chosen, self._places.etc, lines)

    def _stop(self, reason: Reason) -> None:
        """End slurmctld, with SIGTERM first unless it is fenced, and wait until it is gone."""
        log.say(f"stops slurmctld: {reason.value}")
        if reason is Reason.STOPPED:
            self._context.report.set("stopping")
        patience = {Reason.FENCED: 0.0, Reason.LOST: self._times.lost_grace}.get(reason, self._times.grace)
        killing = time.monotonic() + patience
        if self._repairer:
            self._repairer.cancel()
        before = continuity.saved(self._epoch.path)
        if patience:
            self._child.send(signal.SIGTERM)
        killed = False
        while self._child.code is None:
            fenced = not killed and self._context.interrupted() is Reason.FENCED
            if not killed and (fenced or time.monotonic() >= killing):
                if patience and not fenced:
                    log.say(f"slurmctld did not end within {patience:.0f} s")
                self._child.send(signal.SIGKILL)
                killed = True
            self._context.waker.wait(self._times.tick)
            self._context.processes.reap()
        if self._child.code == 0:
            with suppress(OSError):  # then the next start searches for unsaved jobs, and finds none
                recovery.mark_clean_exit(self._epoch.path, before)
            if self._repair_base:
                self._finish_repair(*self._repair_base)
