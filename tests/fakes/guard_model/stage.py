"""Tasks of which one runs at a time: each stops before everything that others could notice, until it is stepped.

Inside `Stage.set_up` the file system calls, clocks, threads and events of a task are the stage's. Whoever isn't a task
sees nothing of that.
"""

from __future__ import annotations

import _thread
import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

CALLS = ("rename", "replace", "mkdir", "rmdir", "unlink", "stat", "listdir", "scandir", "open", "symlink", "link")
_RealThread = threading.Thread
_RealEvent = threading.Event


class Killed(BaseException):
    """The task's process is gone: nothing of it may happen any more."""


@dataclass
class Machine:
    """Where tasks run: a monotonic clock and a wall clock of its own, and whether everything stands still."""

    time: float = 0.0
    rate: float = 1.0
    wall: float = 0.0
    frozen: bool = False
    clock_stops: bool = False

    def elapse(self, seconds: float) -> None:
        if not (self.frozen and self.clock_stops):
            self.time += seconds * self.rate
        self.wall += seconds


class Task:
    """A thread that runs only while it is stepped. `at` is what it is about to do."""

    def __init__(self, stage: Stage, machine: Machine, owner: Any, run: Callable[[], object]) -> None:
        self.stage, self.machine, self.owner = stage, machine, owner
        self.at = "start"
        self.done = False
        self.error: BaseException | None = None
        self._run = run
        self._ready: Callable[[], bool] = lambda: True
        self._until: float | None = None
        self._killed = False
        self._go, self._back = _thread.allocate_lock(), _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()
        _thread.start_new_thread(self._main, ())  # threading's own threads are made of what the stage replaces

    @property
    def ready_to_step(self) -> bool:
        if self.done or self.machine.frozen:
            return False
        return self._ready() or (self._until is not None and self.machine.time >= self._until - 1e-9)

    @property
    def waits(self) -> float | None:
        """For how many true seconds it waits, if nothing happens to it; None for one that can't tell."""
        if self.done or self._until is None or (self.machine.frozen and self.machine.clock_stops):
            return None
        return max(0.0, (self._until - self.machine.time) / self.machine.rate)

    def step(self) -> None:
        """Let it do what it is about to do, and everything up to the next thing that others could notice."""
        if not self.done:
            self._go.release()
            self._back.acquire()

    def kill(self) -> None:
        self._killed = True
        while not self.done:  # each of its `finally` gets as far as the next thing that others could notice
            self.step()

    def pause(self, at: str, ready: Callable[[], bool] | None = None, seconds: float | None = None) -> None:
        """Called by the task itself. Goes on when it is stepped, which is when it is ready or the time has passed."""
        if self._killed:
            raise Killed
        self.at = at
        self._ready = ready or (lambda: seconds is None)
        self._until = None if seconds is None else self.machine.time + seconds
        self._back.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def _main(self) -> None:
        self.stage.tasks[_thread.get_ident()] = self
        self._go.acquire()
        try:
            if not self._killed:
                self._run()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        finally:
            del self.stage.tasks[_thread.get_ident()]
            self.done = True
            self._back.release()


class Event:
    """threading.Event for tasks."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._set = False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        self._stage.me().pause("wait", self.is_set, timeout)
        return self._set


class Thread:
    """threading.Thread for tasks; it belongs to the process of whoever starts it."""

    def __init__(self, stage: Stage, target: Callable[[], object], **_: Any) -> None:
        self._stage, self._target = stage, target
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return id(self._task) if self._task else None

    def start(self) -> None:
        me = self._stage.me()
        self._task = me.owner.add(self._target)

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        if task:
            self._stage.me().pause("join", lambda: task.done, timeout)


class Stage:
    """All tasks, and true time."""

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self.machines: list[Machine] = []
        self.wall = 1e9
        """The time of day, as it is."""
        self.after: Callable[[str, tuple[Any, ...]], None] = lambda call, words: None
        """Told of each call of a task on the file system that succeeded."""

    def me(self) -> Task:
        return self.tasks[_thread.get_ident()]

    def elapse(self, seconds: float) -> None:
        self.wall += seconds
        for machine in self.machines:
            machine.elapse(seconds)

    @contextmanager
    def set_up(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name in CALLS:
                stack.enter_context(mock.patch.object(os, name, self._call(name, getattr(os, name))))
            stack.enter_context(mock.patch.object(io, "open", self._call("open", io.open)))
            stack.enter_context(mock.patch.object(os, "fsync", self._instead(os.fsync, lambda _: None)))
            stack.enter_context(mock.patch.object(time, "monotonic", self._instead(time.monotonic, self._clock)))
            stack.enter_context(mock.patch.object(time, "sleep", self._instead(time.sleep, self._sleep)))
            stack.enter_context(mock.patch.object(threading, "Thread", self._made(_RealThread, Thread)))
            stack.enter_context(mock.patch.object(threading, "Event", self._made(_RealEvent, Event)))
            yield

    def _call(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            me = self.tasks.get(_thread.get_ident())
            if me is None:
                return real(*words, **more)
            me.pause(" ".join([name, *map(str, words[:2])]))
            done = real(*words, **more)
            self.after(name, words)
            return done

        return call

    def _instead(self, real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *words: ours(*words) if _thread.get_ident() in self.tasks else real(*words)

    def _made(self, real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        def make(*words: Any, **more: Any) -> Any:
            if _thread.get_ident() in self.tasks:
                return ours(self, *words, **more)
            return real(*words, **more)

        return make

    def _clock(self) -> float:
        me = self.me()
        me.pause("clock")
        return me.machine.time

    def _sleep(self, seconds: float) -> None:
        self.me().pause("wait", lambda: False, seconds)
