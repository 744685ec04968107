"""A sleep that a signal or another thread can interrupt."""

from __future__ import annotations

import select
import signal
import socket
from contextlib import suppress


class Waker:
    """`wait` returns early after a signal or a `wake`, including a `wake` that came before it."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def signals(self) -> None:
        """Make every signal that has a handler wake this. For the main thread only."""
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # the buffer is full: enough wake-ups are pending
            self._write.send(b"\0")

    def wait(self, seconds: float) -> None:
        poll = select.poll()  # not select(): it can't handle file descriptors of 1,024 and above
        poll.register(self._read, select.POLLIN)
        if poll.poll(max(0.0, seconds) * 1000):
            self._read.recv(65536)
