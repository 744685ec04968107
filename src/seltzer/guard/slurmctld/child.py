"""slurmctld as a child process: its output, its signals, and when it answers."""

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
_LINE = 8192
_STDERR = 2
_REQUEST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# As PID 1 we take everything with us anyway; this is for pods whose containers share their processes.
_WITH_US = ("setpriv", "--pdeathsig", "KILL")


class Child:
    """One slurmctld in the foreground. Start it in the main thread: the kernel ends it together with that."""

    def __init__(self, processes: Processes, argv: Sequence[str], cwd: Path | None = None) -> None:
        self._process = processes.start(
            [*_WITH_US, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, session=True, cwd=cwd
        )
        self._lines: deque[str] = deque(maxlen=LINES)
        self._before: set[str] = set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def code(self) -> int | None:
        """Its exit code, less than 0 for a signal; None while it runs."""
        return self._process.poll()

    def send(self, signum: int) -> None:
        """Send it a signal, if it still runs."""
        self._process.send_signal(signum)

    def reconfigure(self) -> None:
        """Have it read its files again: it executes itself anew, under the same process id.

        Only for one that is ready. While it starts, SIGHUP would end it.
        """
        self._before = self._threads() - {str(self._process.pid)}
        self.send(signal.SIGHUP)

    @property
    def renewed(self) -> bool:
        """Whether the one that was told to reconfigure is gone: no thread outlives an exec but the first."""
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
        """What it said last."""
        return list(self._lines)

    def exit_summary(self) -> str:
        """How it ended, and what it said about it."""
        self._reader.join(0.5)  # its last words may still be in the pipe; orphans may hold that open for ever
        words = self.verdict()
        return f"slurmctld {self.how}: {words}" if words else f"slurmctld {self.how}"

    def verdict(self) -> str:
        """Of its last lines what tells most."""
        return output.verdict(list(self._lines))

    def _read(self) -> None:
        """Pass its output on, and keep the end of it."""
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
    """Asks slurmctld whether it is ready, beside everything else, until it is or nobody wants to know any more."""

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
            # In this order: the one that is on its way out answers too.
            if self._child.renewed and answers(self._port):
                self.ready = True
                self._wake()
                return
            self._over.wait(self._every)


def answers(port: int, timeout: float = 2.0) -> bool:
    """Whether slurmctld says that it is ready; it says so with 204."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(_REQUEST)
            status = connection.recv(4096).split(b"\r\n", 1)[0].split()
    except OSError:
        return False
    return len(status) > 1 and status[0].startswith(b"HTTP/") and status[1].startswith(b"2")


def _pass_on(data: bytes) -> None:
    with suppress(OSError):  # nobody listens; slurmctld must not be held up by that
        while data:
            data = data[os.write(_STDERR, data) :]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
