"""Every process of the container, started by us or orphaned, is waited for exactly once.

Python's Popen takes a process that somebody else has waited for as one that ended well. So whoever starts a process
starts it here, and what `reap` finds is either the business of its Popen or an orphan's.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


class Processes:
    """The processes under this one; all methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # between a start and its being known nothing is reaped
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
        """Without input and in the root folder unless `stdin` or `cwd` are given; `env` is added to the environment."""
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
        """Take note of all that have ended; never waits."""
        with self._lock:
            while (pid := _ended()) is not None:
                process = self._ours.get(pid)
                if process is None:
                    os.waitpid(pid, os.WNOHANG)
                elif process.poll() is None:
                    return  # another thread is about to wait for it; what is behind it has time until the next turn
                else:
                    del self._ours[pid]
            # Those that their own thread has waited for.
            for pid in [pid for pid, process in self._ours.items() if process.returncode is not None]:
                del self._ours[pid]


def _ended() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None
