"""slurmctld as a child process: its output, its signals, and whether it answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from seltzer.guard.processes import Processes
from seltzer.guard.slurmctld import output

LINES = 50
LAST_LINES = 0.5  # seconds for reading the last lines of a slurmctld that has ended
_LINE = 8192
_STDERR = 2
_REQUEST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# The end of PID 1 ends the whole container anyway; this is for pods with a shared process namespace.
_DIE_WITH_GUARD = ("setpriv", "--pdeathsig", "KILL")


class Child:
    """One slurmctld in the foreground. Start it in the main thread: the kernel kills it when that thread ends."""

    def __init__(self, processes: Processes, argv: Sequence[str], cwd: Path | None = None) -> None:
        self._process = processes.start(
            [*_DIE_WITH_GUARD, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, session=True, cwd=cwd
        )
        self._lines: deque[str] = deque(maxlen=LINES)
        self._before: set[str] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def send(self, signum: int) -> None:
        """Send it a signal, if it still runs."""
        self._process.send_signal(signum)

    def reconfigure(self) -> None:
        """Make it read its files again: it executes itself again, under the same process ID.

        Only for a slurmctld that is ready. SIGHUP ends one that is still starting.
        """
        self._before = self._threads() - {str(self._process.pid)}
        self.send(signal.SIGHUP)

    @property
    def reexecuted(self) -> bool:
        """Whether the requested reconfigure has happened: only the first thread survives an exec."""
        return not self._before & self._threads()

    def _threads(self) -> set[str]:
        try:
            return {thread.name for thread in Path(f"/proc/{self._process.pid}/task").iterdir()}
        except OSError:
            return set()

    @property
    def how(self) -> str:
        """How it ended, such as `was ended by SIGSEGV`."""
        code = self.code or 0
        return f"exited with code {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"

    @property
    def lines(self) -> list[str]:
        """Its last lines of output."""
        return list(self._lines)

    def exit_summary(self) -> str:
        """How it ended, and the cause according to its output."""
        self._reader.join(LAST_LINES)  # they may still be in the pipe, which orphans may hold open for ever
        words = self.cause()
        return f"slurmctld {self.how}: {words}" if words else f"slurmctld {self.how}"

    def cause(self) -> str:
        """The most telling of its last lines."""
        return output.cause(list(self._lines))

    def _read(self) -> None:
        """Pass its output on, and keep the last lines."""
        assert self._process.stdout
        rest = b""
        with self._process.stdout as pipe:
            while chunk := os.read(pipe.fileno(), 65536):
                _pass_on(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                self._lines.extend(line[:_LINE].decode(errors="replace") for line in lines)
                rest = rest[:_LINE]
        if rest:
            self._lines.append(rest.decode(errors="replace"))


class Readiness:
    """Polls slurmctld in a thread of its own until it is ready or the polling is cancelled."""

    def __init__(self, child: Child, port: int, every: float, wake: Callable[[], None]) -> None:
        self._child = child
        self._port = port
        self._every = every
        self._wake = wake
        self._over = threading.Event()
        self.ready = False
        threading.Thread(target=self._ask, daemon=True).start()

    def cancel(self) -> None:
        self._over.set()

    def _ask(self) -> None:
        while not self._over.is_set():
            # In this order: the old image answers, too, until it executes itself again.
            if self._child.reexecuted and answers(self._port):
                self.ready = True
                self._wake()
                return
            self._over.wait(self._every)


def answers(port: int, timeout: float = 2.0) -> bool:
    """Whether slurmctld reports that it is ready, which it does with status 204."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(_REQUEST)
            status = connection.recv(4096).split(b"\r\n", 1)[0].split()
    except OSError:
        return False
    return len(status) > 1 and status[0].startswith(b"HTTP/") and status[1].startswith(b"2")


def _pass_on(data: bytes) -> None:
    with suppress(OSError):  # no reader: slurmctld must not block on that
        while data:
            data = data[os.write(_STDERR, data) :]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
