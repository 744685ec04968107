"""Guards as they are, on machines that freeze and clocks that differ, around one state volume and one Lease.

What runs is the guard's own code, from Supervisor.run down to each call of the file system; only slurmctld, the API
server, threads and clocks are the model's. A move is anything that the world may do next. `Broken` tells of a promise
that wasn't kept.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from tests.fakes.guard_model.api import MODES, Server
from tests.fakes.guard_model.guard import Guard, Readiness, Rollout, Waker, nothing
from tests.fakes.guard_model.slurmctld import Broken, Child, Slurmctld, Truth
from tests.fakes.guard_model.stage import Killed, Stage

from seltzer.guard import log, supervisor, wake
from seltzer.guard.slurmctld import slurmctld_run
from seltzer.guard.slurmctld.crash import Crashes

MOST = 4  # guards at a time
RATES = (1.0, 0.5, 2.0, 0.9)
SKEWS = (0.0, 30.0, -30.0)
POINTS = (
    "rename",
    "mkdir",
    "rmdir",
    "listdir",
    "unlink",
    "clock",
    "stat",
    "symlink",
    "open",
    "patch",
    "answer",
    "wait",
)
CALM = 90.0


class World:
    """Everything, and what may happen in it."""

    def __init__(self, honest: bool) -> None:
        self.honest = honest
        """Whether clocks go on, all equally fast, and nobody makes Leases but the operator."""
        self.folder = Path(tempfile.mkdtemp(prefix="seltzer-model-", dir="/dev/shm"))
        (self.folder / "state").mkdir()
        self.truth = Truth(self.folder / "state")
        self.server = Server()
        self.stage = Stage()
        self.stage.after = self._named
        self.guards: list[Guard] = []
        self._born = 0
        self._patches = ExitStack()
        self._patch()

    def _patch(self) -> None:
        enter = self._patches.enter_context
        enter(self.stage.set_up())
        enter(mock.patch.object(log, "say", nothing))
        enter(mock.patch.object(Crashes, "prepare", nothing))  # it changes the limits of the process
        enter(mock.patch.object(slurmctld_run, "Child", lambda *_, **__: self._spawn()))
        enter(mock.patch.object(slurmctld_run, "Readiness", Readiness))
        enter(mock.patch.object(slurmctld_run, "recovery", mock.Mock(**{"find.return_value.needs_repair": False})))
        enter(mock.patch("seltzer.guard.slurmctld.config.write", nothing))
        enter(mock.patch.object(supervisor, "Rollout", Rollout))
        enter(mock.patch.object(wake, "Waker", lambda: Waker(self.stage)))
        enter(mock.patch.object(supervisor, "Waker", lambda: Waker(self.stage)))

    def close(self) -> None:
        for guard in self.guards:
            guard.die()
        self._patches.close()
        shutil.rmtree(self.folder)

    def _spawn(self) -> Child:
        guard = self.stage.me().owner
        self.stage.me().pause("spawn")
        if other := guard.daemon:
            raise Broken(f"{guard.name} starts a slurmctld beside {other}")
        guard.daemons.append(Slurmctld(self.truth, guard, guard.link, guard.machine))
        return Child(guard.daemons[-1])

    def _named(self, call: str, words: tuple[Any, ...]) -> None:
        if call in ("rename", "mkdir"):
            path = Path(words[1] if call == "rename" else words[0])
            guard = self.stage.me().owner
            if self.truth.named(path, guard):
                if self.honest and guard.name not in self.server.holders:
                    raise Broken(f"{guard.name} began an epoch, and hadn't held the Lease since the last one began")
                self.server.holders = {self.server.holder}

    def look(self, guard: Guard) -> None:
        for task in guard.tasks:
            if task.error and not isinstance(task.error, Killed):
                raise task.error

    # --- moves: each may be made at any time, with any number ------------------------------------------------------

    def start(self, number: int) -> None:
        """A new pod."""
        if sum(not guard.over for guard in self.guards) < MOST:
            self._born += 1
            odd = (1.0, 0.0) if self.honest else (RATES[number % len(RATES)], SKEWS[number // 4 % len(SKEWS)])
            self.guards.append(Guard(self, f"pod-{self._born}", *odd))

    def go(self, number: int) -> None:
        """One of them works for a while, with nothing from outside."""
        if guard := self._pick(number):
            self.run_alone(guard, 1 + number % 13)

    def run(self, number: int) -> None:
        """The same for long."""
        if guard := self._pick(number):
            self.run_alone(guard, 120)

    def reach(self, number: int) -> None:
        """One of them works until it is about to do something certain."""
        if guard := self._pick(number):
            point = POINTS[number // 7 % len(POINTS)]
            guard.step()  # it may be there
            self.run_alone(guard, 250, lambda: any(task.at.startswith(point) for task in guard.tasks if not task.done))

    def doze_off(self, number: int) -> None:
        """Right before it gives an epoch its name."""
        if guard := self._pick(number):
            main = guard.tasks[0]
            self.run_alone(guard, 250, lambda: main.at.startswith(("mkdir", "rename")) and "/epoch-" in main.at)
            self.freeze(number)

    def take_over(self, number: int) -> None:
        """All others stand still for so long that this one leads."""
        if guard := self._pick(number):
            guard.line.mode = "fine"
            self.run_alone(guard, 1500, lambda: guard.leads)

    def one_thread(self, number: int) -> None:
        """A step of one thread, while the others of its process don't get their turn."""
        if guard := self._pick(number):
            guard.step(number // 3)

    def slurmctld_works(self, number: int) -> None:
        if (guard := self._pick(number)) and (daemon := guard.daemon):
            for _ in range(1 + number % 4):
                daemon.step(number // 5)

    def stop_in_the_middle(self, number: int) -> None:
        """Of a save and a submission; another one leads meanwhile."""
        if (guard := self._pick(number)) and (daemon := guard.daemon):
            daemon.save()
            daemon.submit()
            for turn in range(number // 4 % 12):
                daemon.step(turn % 2)
            guard.machine.frozen = True
            self.take_over(number)

    def wake_for_a_moment(self, number: int) -> None:
        """So short that slurmctld does something before its guard looks around."""
        if (guard := self._pick(number, frozen=True)) and (daemon := guard.daemon):
            for turn in range(1 + number // 4 % 4):
                daemon.step(turn)

    def hang(self, number: int) -> None:
        """slurmctld waits for its disk, and no signal reaches it; or it goes on."""
        if (guard := self._pick(number)) and (daemon := guard.daemon):
            daemon.hangs = not daemon.hangs

    def save(self, number: int) -> None:
        if (guard := self._pick(number)) and guard.daemon:
            guard.daemon.save()

    def submit(self, number: int) -> None:
        if (guard := self._pick(number)) and guard.daemon:
            guard.daemon.submit()

    def crash(self, number: int) -> None:
        """slurmctld ends by itself."""
        if (guard := self._pick(number)) and guard.daemon:
            guard.daemon.code = -11

    def elapse(self, number: int) -> None:
        self.stage.elapse((0.3, 1.0, 2.6, 6.0, 20.0)[number % 5])

    def freeze(self, number: int) -> None:
        """The clock goes on while a process is stopped, and doesn't while a virtual machine is."""
        if guard := self._pick(number):
            guard.machine.frozen = True
            guard.machine.clock_stops = not self.honest and bool(number // 4 % 2)

    def thaw(self, number: int) -> None:
        if guard := self._pick(number, frozen=True):
            guard.machine.frozen = False

    def network(self, number: int) -> None:
        if guard := self._pick(number):
            guard.line.mode = MODES[number // 4 % len(MODES)]

    def away(self, number: int) -> None:
        """The API server is, for everybody; or it is back."""
        for guard in self.guards:
            guard.line.mode = "away" if number % 2 else "fine"

    def arrive(self, number: int) -> None:
        """A request that its sender has given up."""
        if self.server.late:
            self.server.arrive(number % len(self.server.late))

    def die(self, number: int) -> None:
        if guard := self._pick(number):
            guard.die()

    def terminate(self, number: int) -> None:
        if guard := self._pick(number):
            guard.terminate()

    def person(self, number: int) -> None:
        """Somebody has their hands on the Lease."""
        match number % 5:
            case 0 if not self.honest:
                self.server.lease = None
            case 1 if not self.honest:
                self.server.make()
            case 2:
                self.server.annotate("hold", "true")
            case 3:
                self.server.annotate("hold", None)
            case 4 if self.truth.term:
                self.server.annotate("accept-state", f"epoch-{self.truth.term.number}")

    # --- the end ---------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """Everything is mended, and somebody leads soon; nobody else has a slurmctld."""
        for machine in self.stage.machines:
            machine.frozen, machine.rate = False, 1.0
        for daemon in (daemon for guard in self.guards for daemon in guard.daemons):
            daemon.hangs = False
        self.server.late.clear()
        if self.server.lease is None:
            self.server.make()
        self.server.annotate("hold", None)
        if all(guard.over for guard in self.guards) or not any(
            guard.supervisor is None or not guard.supervisor._stopping for guard in self.guards if not guard.over
        ):
            self.guards.append(Guard(self, "pod-last"))
        for guard in self.guards:
            guard.line.mode = "fine"
        waited = 0.0
        while not self._settled():
            waited += self._turn(self.guards)
            if waited > CALM:
                raise Broken(f"nobody leads: {self.tell()}")

    def _settled(self) -> bool:
        daemons = [(guard, guard.daemon) for guard in self.guards if guard.daemon]
        return len(daemons) == 1 and daemons[0][0].leads and self.server.holder == daemons[0][0].name

    def tell(self) -> str:
        lines = [f"{guard.name} at {[task.at for task in guard.tasks]}, {guard.daemon}" for guard in self.guards]
        return "; ".join([*lines, f"the Lease is {self.server.lease}", str(sorted(self.truth.state.iterdir()))])

    def _turn(self, guards: list[Guard]) -> float:
        """All that is ready gets a step; if nothing is, time goes on until something is."""
        if sum(guard.step() for guard in guards):  # a step for each
            return 0.0
        waits = [task.waits for guard in guards for task in guard.tasks]
        soon = min((wait for wait in waits if wait is not None), default=1.0)
        self.stage.elapse(max(soon, 0.01))
        return max(soon, 0.01)

    def run_alone(self, guard: Guard, steps: int, until: Callable[[], bool] = lambda: False) -> None:
        """While everybody else stands still. Time goes on when there is nothing to do."""
        for _ in range(steps):
            if until() or guard.over or guard.machine.frozen:
                return
            if not guard.step():
                waits = [task.waits for task in guard.tasks]
                self.stage.elapse(max(0.01, min((wait for wait in waits if wait is not None), default=1.0)))

    def _pick(self, number: int, frozen: bool = False) -> Guard | None:
        found = [guard for guard in self.guards if not guard.over and guard.machine.frozen is frozen]
        return found[number % len(found)] if found else None
