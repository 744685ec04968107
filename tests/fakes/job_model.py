"""A small Slurm with crashes around the guard's own repair of jobs: what really runs on the nodes, and the promises.

slurmctld's knowledge, what it has saved of that, and its log are kept apart from what runs. The guard's code gets the
log and the saved state, as it does in a pod. Time is counted in moves.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from seltzer.guard import recovery
from seltzer.guard.recovery import history, settle
from seltzer.guard.recovery.slurm import DUPLICATE, Cancelled, SlurmError
from seltzer.wire.squeue import PendingJob, QueueEntry

T0 = 1_700_000_000
_CUT = 10_000
OWNER = 1000


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class Record:
    """A job as slurmctld knows it."""

    id: int
    requeue: bool
    state: str = "PENDING"
    restarts: int = 0
    held: bool = False
    late: bool = False
    put_back: bool = False
    """The script that ran before belongs to a job that slurmctld forgot."""
    awaits: int = 0


@dataclass
class Process:
    """A job's script on a node."""

    job: int
    restarts: int
    alive: bool = True
    ended: bool = False
    """By itself; whether it has been killed otherwise."""
    reported: bool = False


@dataclass
class World:
    """One cluster. `cut` is the call of the next repair at which slurmctld dies once more."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    known: dict[int, Record] = field(default_factory=dict)
    saved: dict[int, Record] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    acknowledged: dict[int, bool] = field(default_factory=dict)
    """Whether each may be requeued."""
    awaits: dict[int, int] = field(default_factory=dict)
    """The job that each depends on; 0 if there is none."""
    cancelled: set[int] = field(default_factory=set)
    up: bool = True
    cut_off: bool = False
    """The node doesn't respond: nothing starts on it, and it reports nothing. What runs there goes on."""
    looked: bool = False
    """The guard has tried to settle the jobs of the last crash."""
    cut: int = _CUT
    seconds: int = 0
    broken: str = ""

    def __post_init__(self) -> None:
        self.epoch = self.folder / "epoch-1"
        self.epoch.mkdir()
        self.save()

    def close(self) -> None:
        shutil.rmtree(self.folder)

    def fail(self, words: str) -> NoReturn:
        """The guard survives errors, this one included, so it is raised again by the move."""
        self.broken = self.broken or words
        raise Broken(words)

    def _look(self) -> None:
        if self.broken:
            raise Broken(self.broken)

    # --- slurmctld ----------------------------------------------------------------------------------------------------

    def log(self, text: str) -> None:
        self.seconds += 1
        hours, rest = divmod(self.seconds, 3600)
        with (self.epoch / history.LOG).open("a") as file:
            file.write(f"[2026-11-16T{hours:02d}:{rest // 60:02d}:{rest % 60:02d}.000] {text}\n")
        self._touch(self.epoch / history.LOG)

    def save(self) -> None:
        self.saved = copy.deepcopy(self.known)
        self.seconds += 30  # so that what was logged before is known to be saved
        (self.epoch / "job_state").write_text(str(self.seconds))
        self._touch(self.epoch / "job_state")
        self.log("sched: saved")

    def _touch(self, file: Path) -> None:
        os.utime(file, (T0 + self.seconds, T0 + self.seconds))

    def _start(self, record: Record) -> None:
        self.log(f"sched: Allocate JobId={record.id} NodeList=n1 #CPUs=1 Partition=cpu")
        record.state, record.put_back = "RUNNING", False

    def _launch(self, record: Record) -> None:
        before = [each for each in self.processes if each.job == record.id]
        if any(each.alive for each in before):
            self.fail(f"job {record.id} is started while its first run is still there")
        if any(each.ended for each in before):
            self.fail(f"job {record.id} runs again after it has ended")
        if before and not self.acknowledged[record.id]:
            self.fail(f"job {record.id} runs twice, in spite of --no-requeue")
        if before and record.restarts <= before[-1].restarts:
            self.fail(f"job {record.id} runs again with the same restart count")
        if record.id in self.cancelled:
            self.fail(f"job {record.id} runs although it was cancelled")
        self.processes.append(Process(record.id, record.restarts))

    def _hear(self, process: Process) -> None:
        """A node reports the end of a script, again and again until somebody listens."""
        process.reported = True
        record = self.known.get(process.job)
        if not record or record.put_back:  # another job, for Slurm
            self.log(f"job_complete: invalid JobId={process.job} SLUID=x")
            return
        if record.state not in ("PENDING", "RUNNING"):
            return
        self.log(f"_job_complete: JobId={record.id} WEXITSTATUS 0")
        if record.state == "PENDING":
            self.log(f"_job_complete: JobId={record.id} cancelled by interactive user")
        else:
            self.log(f"_job_complete: JobId={record.id} done")
            record.state = "COMPLETED"

    def hear_all(self) -> None:
        for process in self.processes:
            if process.ended and not process.reported and not self.cut_off:
                self._hear(process)

    # --- moves --------------------------------------------------------------------------------------------------------

    def submit(self, requeue: bool, awaits: int = 0) -> int:
        """Its ID."""
        job = len(self.acknowledged) + 1
        self.acknowledged[job], self.awaits[job] = requeue, awaits
        self.known[job] = Record(job, requeue, awaits=awaits)
        self._write_files(job)
        options: dict[str, Any] = {"user_id": str(OWNER), **({} if requeue else {"requeue": False})}
        if awaits:
            options["dependency"] = f"afterok:{awaits}"
        with (self.epoch / "seltzer.journal").open("a") as file:
            file.write(json.dumps({"v": 1, "key": f"k{job}", "time": 1, "uid": OWNER, "options": options}) + "\n")
        self.log(f"_slurm_rpc_submit_batch_job: JobId={job} SLUID=x InitPrio=1 usec=1")
        return job

    def _write_files(self, job: int) -> None:
        folder = self.epoch / f"hash.{job % 10}" / f"job.{job}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "script").write_bytes(b"#!/bin/sh\n\0")
        (folder / "environment").write_bytes(struct.pack("=I", 1) + b"SELTZER_JOB=k%d\0" % job)
        self._touch(folder)
        self._touch(folder.parent)

    def schedule(self, launched: bool = True) -> None:
        """Start all that may start. Where it isn't launched, slurmctld dies before the node hears of it."""
        for record in self.known.values():
            if record.state == "PENDING" and not record.held and not record.late and not self.cut_off:
                self._start(record)
                if launched:
                    self._launch(record)

    def end(self, job: int) -> None:
        """A script ends by itself."""
        for process in self.processes:
            if process.job == job and process.alive:
                process.alive, process.ended = False, True
        if self.up:
            self.hear_all()

    def cancel(self, job: int) -> None:
        """By its owner."""
        record = self.known.get(job)
        if self.up and record and record.state in ("PENDING", "RUNNING"):
            self.cancelled.add(job)
            self.cancel_jobs([str(job)], by_owner=True)

    def crash(self) -> None:
        """Of slurmctld alone: whatever runs goes on."""
        self.up = False
        self.known = {}

    def heal(self) -> None:
        """The node responds again. The guard may look before anything is reported, but not for long."""
        self.cut_off = False
        if self.looked:
            self._settle()
        self.register()

    def recover(self, cut: int = _CUT, meanwhile: Callable[[], None] = lambda: None) -> None:
        """What the guard does then, from the first start of slurmctld to the next one. At call `cut` slurmctld dies."""
        self.looked = False
        while True:
            found = recovery.find(self.epoch)
            self.known = copy.deepcopy(self.saved)
            if not found.needs_repair:
                break
            for job in self.known:
                self.log(f"Recovered JobId={job} Assoc=0")
            self.cut, cut = cut, _CUT
            meanwhile()
            self.hear_all()
            recovered = recovery.RepairReport()
            try:
                safe = recovery.repair(found, self, True, recovered)
            except Cancelled:
                self.known = {}
                continue
            self.save()
            if safe:
                recovery.mark_repaired(self.epoch, history.last_line(self.epoch))
            break
        self._look()
        self.up, self.cut = True, _CUT

    def register(self) -> None:
        """All nodes tell what runs on them, long enough after the last start."""
        if self.cut_off:
            return
        self.hear_all()
        running = {process.job for process in self.processes if process.alive}
        for process in self.processes:
            record = self.known.get(process.job)
            if process.alive and (record is None or record.state != "RUNNING" or record.restarts != process.restarts):
                if record and record.state == "PENDING":
                    self.log(f"error: Registered PENDING JobId={record.id} StepId={record.id}.batch on node n1")
                process.alive = False
        for record in self.known.values():
            if record.state == "RUNNING" and record.id not in running:
                self.log(f"Batch JobId={record.id} missing from batch node n1 (not found BatchStartTime after startup)")
                record.state = "NODE_FAIL"
                if record.requeue:
                    self.log(f"_job_complete: requeue JobId={record.id} due to node failure")
                    record.state, record.restarts = "PENDING", record.restarts + 1
                self.log(f"_job_complete: JobId={record.id} done")

    def settle(self) -> None:
        self.hear_all()
        self._settle()
        self.looked = True

    def _settle(self) -> None:
        recovered = recovery.RepairReport()
        settle.settle(self.epoch, self, recovered)
        self._look()

    def calm(self) -> None:
        """No more crashes: all that may run runs to its end, and only what may not be requeued waits for a person."""
        if not self.up:
            self.recover()
        self.heal()
        self.settle()
        for record in self.known.values():
            record.late = False  # in the end all have waited long enough
        for _ in range(3):
            self.schedule()
            for job in self.acknowledged:
                self.end(job)
            self.register()
        for job, requeue in self.acknowledged.items():
            self._check(job, requeue)

    def _check(self, job: int, requeue: bool) -> None:
        record = self.known.get(job)
        ran = any(each.ended for each in self.processes if each.job == job)
        if ran or job in self.cancelled:
            return
        held = bool(record and record.state == "PENDING" and record.held)
        if requeue:
            self.fail(f"job {job} may be requeued and never ended: {record}")
        if not held and not any(each.job == job for each in self.processes) and record is None:
            self.fail(f"job {job} is lost")

    # --- what the guard asks of slurmctld -----------------------------------------------------------------------------

    def _asked(self) -> None:
        self.cut -= 1
        if self.cut < 0:
            raise Cancelled

    def queue(self) -> list[QueueEntry]:
        self._asked()
        return [QueueEntry(each.id, "", each.id, each.state, OWNER, each.held) for each in self.known.values()]

    def pending(self) -> dict[int, PendingJob]:
        self._asked()
        waiting = [each for each in self.known.values() if each.state == "PENDING"]
        awaits = {each.id: frozenset({each.awaits} - {0}) for each in waiting}
        return {each.id: PendingJob(each.id, each.requeue, each.restarts, awaits[each.id]) for each in waiting}

    def has_silent_nodes(self) -> bool:
        self._asked()
        return self.cut_off

    def silent_nodes(self, hostlist: str) -> set[str]:
        return set(hostlist.split(",")) if self.has_silent_nodes() else set()

    def requeues_by_default(self) -> bool:
        return True

    def delay(self, names: Sequence[str]) -> None:
        self._update(names, late=True)

    def start_now(self, names: Sequence[str]) -> None:
        self._update(names, late=False)

    def _update(self, names: Sequence[str], late: bool) -> None:
        self._asked()
        for record in self._pending(names):
            record.late = late
            self.log(f"_slurm_rpc_update_job: complete JobId={record.id} uid=401 usec=1")

    def _pending(self, names: Sequence[str]) -> list[Record]:
        found = [self.known[int(name)] for name in names]
        if any(record.state != "PENDING" for record in found):
            raise SlurmError("Job is no longer pending execution")
        return found

    def requeue(self, jobs: Collection[int]) -> None:
        self._asked()
        for job in jobs:
            record = self.known[job]
            if record.state == "RUNNING":
                self.fail(f"job {job} runs, and is requeued")
            self.log(f"_job_complete: JobId={job} cancelled by interactive user")
            if record.requeue:
                self.log(f"_job_complete: requeue JobId={job} per user/system request")
                self.log(f"_job_complete: JobId={job} done")
                record.restarts += 1

    def hold(self, names: Sequence[str], why: str) -> None:
        self._asked()
        for record in self._pending(names):
            record.held = True
            self.log(f"sched: _hold_job_rec: hold on JobId={record.id} by uid 401")

    def release(self, names: Sequence[str]) -> None:
        self._asked()
        for record in self._pending(names):
            record.held = False
            self.log(f"sched: _release_job_rec: release hold on JobId={record.id} by uid 401")

    def cancel_jobs(self, names: Sequence[str], by_owner: bool = False) -> None:
        if not by_owner:
            self._asked()
        for name in names:
            record = self.known[int(name)]
            ended = any(each.ended for each in self.processes if each.job == record.id)
            if not by_owner and not ended and record.id not in self.cancelled:
                self.fail(f"job {record.id} had not ended, and is cancelled")
            if not by_owner and record.id not in self.cancelled and record.id in self._awaited():
                self.fail(f"job {record.id} is cancelled, and those that depend on it with it")
            state = "pending" if record.state == "PENDING" else "running"
            self.log(f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={name} uid {OWNER if by_owner else 401}")
            self.log(f"job_signal: 9 of {state} JobId={name} successful")
            record.state = "CANCELLED"
            for process in self.processes:
                process.alive = process.alive and process.job != record.id

    def _awaited(self) -> set[int]:
        """Jobs on which others depend that have never started, whether slurmctld knows these or not."""
        waiting = self.acknowledged.keys() - self.cancelled - {each.job for each in self.processes}
        return {self.known[job].awaits if job in self.known else self.awaits[job] for job in waiting}

    def complete(self, statuses: dict[int, int]) -> None:
        self._asked()
        for job in statuses:
            if any(each.alive for each in self.processes if each.job == job):
                self.fail(f"job {job} runs, and is ended")
            self.known[job].state = "COMPLETED"
            self.log(f"_job_complete: JobId={job} done")

    def never_requeue(self, names: Sequence[str]) -> None:
        self._asked()

    def save_crontab_again(self, user: int) -> None:
        self.fail(f"user {user} has no crontab")

    def left(self) -> float:
        return 1.0

    def pause(self, seconds: float) -> None:
        self._asked()

    def rest(self) -> Rest:
        return Rest(self)

    def put_back(self, job: dict[str, Any]) -> None:
        self._asked()
        number = job["job_id"]
        if number in self.known:
            raise SlurmError("Duplicate job id", DUPLICATE)
        late = "begin_time" in job
        self.known[number] = Record(
            number,
            job.get("requeue", True),
            held=bool(job.get("hold")),
            late=late,
            put_back=True,
            awaits=self.awaits[number] if "dependency" in job else 0,
        )
        self._write_files(number)
        self.log(f"_slurm_rpc_submit_batch_job: JobId={number} SLUID=x InitPrio=1 usec=1")


@dataclass
class Rest:
    world: World

    def submit(self, job: dict[str, Any], script: str) -> None:
        self.world.put_back(job)

    def close(self) -> None:
        pass
