"""Sleep that a signal or another thread can end."""

from __future__ import annotations

import select
import signal
import socket
from contextlib import suppress


class Waker:
    """`wait` returns early after a `wake`, also one that came before it, and after a signal."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def signals(self) -> None:
        """From now on every signal that has a handler wakes; for the main thread only."""
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is full of wake-ups already
            self._write.send(b"\0")

    def wait(self, seconds: float) -> None:
        poll = select.poll()  # select() takes no file of 1,024 and above
        poll.register(self._read, select.POLLIN)
        if poll.poll(max(0.0, seconds) * 1000):
            self._read.recv(65536)
