"""slurmctld as far as its state goes, and the truth about who may write it.

All that it does to its state is done by path, through its guard's link, as Slurm does it: a state file is written
beside the old one and renamed; a job is acknowledged when its directory, environment and script were written. Each
system call is a step, and between any two of them the world may have become another.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.guard_model.stage import Machine

Work = Iterator[None]
_look = os.stat  # as it is before the stage makes it a step of a task


@dataclass(frozen=True)
class ModelTerm:
    """Of one guard over one epoch; it ends when the next one begins."""

    number: int
    guard: Any


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class Truth:
    """What happened, as nobody in the world can know it; and the promises."""

    state: Path
    terms: list[ModelTerm] = field(default_factory=list)
    home: int = 0  # the state directory's inode, which stays when it is renamed
    saved: str | None = None
    """What job_state has to hold."""
    kept: dict[int, str] = field(default_factory=dict)
    """The script of each job that was acknowledged."""
    jobs: int = 0
    saves: int = 0

    @property
    def term(self) -> ModelTerm | None:
        return self.terms[-1] if self.terms else None

    def last_term_of(self, guard: Any) -> ModelTerm | None:
        return next((term for term in reversed(self.terms) if term.guard is guard), None)

    def named(self, path: Path, guard: Any) -> bool:
        """A guard made or renamed something to this name; whether a term begins with that."""
        number = path.name.removeprefix("epoch-")
        if path.parent != self.state or path.name == number:
            return False
        inode = _look(path).st_ino
        self.home = self.home or inode
        if inode != self.home:
            return False  # an empty one beside the true one, made by somebody who slept
        if self.term and int(number) <= self.term.number:
            raise Broken(f"epoch {number} comes after {self.term.number}")
        self.terms.append(ModelTerm(int(number), guard))
        return True

    def check(self, term: ModelTerm | None, what: str) -> None:
        if term is None or term is not self.term:
            raise Broken(f"{what} by the one of {term}, but it is {self.term}")

    def check_state(self) -> None:
        """What the state volume holds is what the one who may write it wrote there, and no kept job is gone."""
        if not self.term:
            return
        folder = self.state / f"epoch-{self.term.number}"
        file = folder / "job_state"
        if self.saved is not None and file.exists() and file.read_text() != self.saved:
            raise Broken(f"job_state holds {file.read_text()!r} and should hold {self.saved!r}")
        stamps = folder / "seltzer.stamps"
        numbers = [int(line.split()[1][6:]) for line in stamps.read_text().splitlines()] if stamps.exists() else []
        if numbers != sorted(numbers):
            raise Broken(f"a stamp of an epoch comes after one of a later epoch: {numbers}")
        for job, script in self.kept.items():
            found = folder / "hash.0" / f"job.{job}" / "script"
            if not found.exists() or found.read_text() != script:
                raise Broken(f"job {job} was acknowledged, but its script isn't there")


class Slurmctld:
    """One life. It has a thread for its saves and one for each submission: the keys of `threads`."""

    def __init__(self, truth: Truth, guard: Any, link: Path, machine: Machine) -> None:
        self._truth, self._link, self._machine = truth, link, machine
        self.guard = guard
        self.term = truth.last_term_of(guard)
        self.code: int | None = None
        self.ready = False
        self.hangs = False
        self.threads: dict[str, Work] = {"main": self._start()}
        self._killed = False
        self._jobs: set[int] = set()

    # --- what its guard and the world do to it -------------------------------------------------------------------

    def send(self, signum: int) -> None:
        if signum == signal.SIGKILL:
            self._killed = True
        elif self.code is None and (self.ready or self.hangs):
            self.threads["main"] = self._renew() if signum == signal.SIGHUP else self._end()
            self.ready = False
        elif self.code is None:
            self.code = -signum  # while it starts, every signal ends it

    def step(self, which: int = 0) -> bool:
        """One system call of one of its threads; whether there was one to do."""
        if not self.ready_to_step:
            return False
        if self._killed:
            self.code = -signal.SIGKILL
            return True
        name = sorted(self.threads)[which % len(self.threads)]
        try:
            next(self.threads[name])
        except StopIteration:
            self.threads.pop(name, None)
        except OSError:  # it can't save or has to refuse, and goes on
            self.threads.pop(name, None)
        return True

    @property
    def ready_to_step(self) -> bool:
        """Whether there is anything to do for it."""
        return self.code is None and not self.hangs and (bool(self.threads) or self._killed)

    def save(self) -> None:
        if self.ready and "save" not in self.threads:
            self.threads["save"] = self._save()

    def submit(self) -> None:
        if self.ready and len(self.threads) < 4:
            self._truth.jobs += 1
            self.threads[f"submit {self._truth.jobs}"] = self._submit(f"script {self._truth.jobs}")

    # --- what it does --------------------------------------------------------------------------------------------

    def _start(self) -> Work:
        yield
        if not self._link.exists():
            try:
                self._link.mkdir()
            except OSError:
                self.code = 1
                return
        yield
        with suppress(OSError):
            self._jobs = set(map(int, self._link.joinpath("job_state").read_text().split()[2:]))
        yield
        with suppress(OSError):
            # In the place of the guard's recovery: what was acknowledged and not saved has its directory.
            self._jobs |= {int(job.name.removeprefix("job.")) for job in (self._link / "hash.0").iterdir()}
        self.ready = True

    def _save(self) -> Work:
        yield
        self._truth.saves += 1
        text = f"save {self._truth.saves} " + " ".join(map(str, sorted(self._jobs)))
        half, whole, old = (self._link / f"job_state{end}" for end in (".new", "", ".old"))
        with half.open("w") as file:
            yield
            file.write(text[:4])
            file.flush()
            yield
            file.write(text[4:])
        os.utime(half, (self._machine.wall, self._machine.wall))
        yield
        with suppress(FileNotFoundError):
            whole.rename(old)
            self._truth.check(self.term, "job_state was moved away")
        yield
        half.rename(whole)
        self._truth.check(self.term, "job_state was saved")
        self._truth.saved = text

    def _submit(self, script: str) -> Work:
        yield
        job = max(self._jobs, default=0) + 1
        self._jobs.add(job)
        folder = self._link / "hash.0" / f"job.{job}"
        folder.parent.mkdir(exist_ok=True)
        yield
        folder.mkdir()
        yield
        (folder / "environment").write_text("HOME=/")
        yield
        # Before the script's name is there nobody can acknowledge; its words may come later, through the open file.
        with (folder / "script").open("w") as file:
            self._truth.check(self.term, f"job {job} was written")
            yield
            file.write(script)
        yield
        self._truth.kept[job] = script

    def _renew(self) -> Work:
        yield from self._save_if_it_can()
        yield from self._start()

    def _end(self) -> Work:
        yield from self._save_if_it_can()
        self.code = 0

    def _save_if_it_can(self) -> Work:
        self.threads = {"main": self.threads["main"]} if "main" in self.threads else {}
        with suppress(OSError):
            yield from self._save()


class Child:
    """`guard.child.Child` over the model's slurmctld."""

    def __init__(self, daemon: Slurmctld) -> None:
        self.daemon = daemon

    @property
    def code(self) -> int | None:
        return self.daemon.code

    @property
    def reexecuted(self) -> bool:
        return True

    def send(self, signum: int) -> None:
        self.daemon.send(signum)

    def reconfigure(self) -> None:
        self.daemon.send(signal.SIGHUP)

    @property
    def how(self) -> str:
        return f"ended with {self.code}"

    @property
    def lines(self) -> list[str]:
        return []

    def exit_summary(self) -> str:
        return f"slurmctld ended with {self.code}"

    def cause(self) -> str:
        return ""
