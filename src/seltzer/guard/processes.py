"""Waits exactly once for every process of the container, whether started by the guard or orphaned.

Popen reports success for a process that somebody else has waited for. Every process is therefore started here, and
each process that `reap` finds belongs either to its Popen or is an orphan.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


class Processes:
    """The processes below this one. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # nothing is reaped between the start of a process and its registration
        self._ours: dict[int, subprocess.Popen[bytes]] = {}

    def start(
        self,
        argv: Sequence[str],
        *,
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        session: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        """Runs without input and in the root folder unless `stdin` or `cwd` is given. Adds `env` to the environment."""
        with self._lock:
            process = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=session,
                cwd=cwd or "/",
                env={**os.environ, **(env or {})},
            )
            self._ours[process.pid] = process
        return process

    def reap(self) -> None:
        """Reap every process that has ended. Never blocks."""
        with self._lock:
            while (pid := _ended()) is not None:
                process = self._ours.get(pid)
                if process is None:
                    os.waitpid(pid, os.WNOHANG)
                elif process.poll() is None:
                    return  # another thread is about to wait for it; the ones behind it are reaped next time
                else:
                    del self._ours[pid]
            # Processes that their own thread has waited for.
            for pid in [pid for pid, process in self._ours.items() if process.returncode is not None]:
                del self._ours[pid]


def _ended() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None
