"""A guard in the model: its own code, from Supervisor.run down, with stand-ins for what isn't about Lease and epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.fakes.guard_model.api import Line
from tests.fakes.guard_model.slurmctld import Child, Slurmctld
from tests.fakes.guard_model.stage import Machine, Stage, Task

from seltzer.guard import supervisor
from seltzer.guard.settings import Places, Settings, Times
from seltzer.guard.slurmctld.config import Config

if TYPE_CHECKING:
    from tests.fakes.guard_model.world import World

TIMES = Times(tick=0.5, api=2.0, lease=5.0, blocked=1.0, backoff=(0.0, 1.0), grace=4.0, lost_grace=2.0, volume=30.0)


class Guard:
    """A pod: its machine, the guard's threads, and its slurmctld, if one runs."""

    def __init__(self, world: World, name: str, rate: float = 1.0, skew: float = 0.0) -> None:
        self.world, self.name = world, name
        others = world.stage.machines
        self.machine = Machine(time=len(others) * 1000.0, rate=rate, wall=world.stage.wall + skew)
        world.stage.machines.append(self.machine)
        self.line = Line(world.stage, world.server, TIMES.api)
        self.tasks: list[Task] = []
        self.daemons: list[Slurmctld] = []
        self.link = world.folder / f"link-{name}"
        places = Places(state=world.truth.state, link=self.link, etc=world.folder, cores=world.folder / "cores")
        names = ("ns", "demo-slurmctld", "demo-slurmctld")
        self.settings = Settings(*names, name, f"address-of-{name}", places=places, times=TIMES, reserve=1)
        self.supervisor: supervisor.Supervisor | None = None
        self._last = 0
        self.add(self._run)

    def add(self, run: Callable[[], object]) -> Task:
        """Another thread of its process."""
        self.tasks.append(Task(self.world.stage, self.machine, self, run))
        return self.tasks[-1]

    def _run(self) -> None:
        made = self.supervisor = supervisor.Supervisor(self.settings, self.line, Processes())  # type: ignore[arg-type]
        with mock.patch.multiple(made, _take_signals=nothing, _report_version=nothing):
            made.run()

    @property
    def over(self) -> bool:
        return self.tasks[0].done

    @property
    def daemon(self) -> Slurmctld | None:
        """The one that runs."""
        return next((each for each in self.daemons if each.code is None), None)

    @property
    def leads(self) -> bool:
        term = self.world.truth.term
        daemon = self.daemon
        return not self.over and bool(daemon and daemon.ready and term and daemon.term is term)

    def step(self, which: int | None = None) -> bool:
        """One step of one of its threads, or of slurmctld's; in turn, unless told. Whether there was one to do."""
        if self.machine.frozen:
            return False
        steps: list[Task | Slurmctld] = [*self.tasks, *self.daemons]
        ready = [(number, each) for number, each in enumerate(steps) if each.ready_to_step]
        if not ready:
            return False
        if which is None:
            self._last, chosen = next((each for each in ready if each[0] > self._last), ready[0])
        else:
            chosen = ready[which % len(ready)][1]
        chosen.step()
        self.world.look(self)
        return True

    def terminate(self) -> None:
        if self.supervisor:
            self.supervisor._stopping = True

    def die(self) -> None:
        """The kernel takes slurmctld along."""
        for daemon in self.daemons:
            daemon.code = -9 if daemon.code is None else daemon.code
        for task in self.tasks:
            task.kill()


class Processes:
    def reap(self) -> None:
        pass


class Waker:
    """`guard.wake.Waker` for tasks."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._woken = False

    def signals(self) -> None:
        pass

    def wake(self) -> None:
        self._woken = True

    def wait(self, seconds: float) -> None:
        self._stage.me().pause("wait", lambda: self._woken, seconds)
        self._woken = False


class Readiness:
    def __init__(self, child: Child, *_: Any) -> None:
        self._child = child

    @property
    def ready(self) -> bool:
        return self._child.daemon.ready

    def cancel(self) -> None:
        pass


class Rollout:
    """One configuration for ever."""

    complaint = ""
    _only = Config("digest", "restart", {"slurm.conf": b""})

    def __init__(self, _: object) -> None:
        pass

    def choose(self) -> Config:
        return self._only

    def change(self, running: Config) -> None:
        return None

    def prove(self, running: Config) -> None:
        pass

    def refuse(self, running: Config, why: str) -> bool:
        return False


def nothing(*_: object, **__: object) -> None:
    pass
