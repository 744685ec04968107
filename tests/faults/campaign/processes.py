"""Processes of pods as this machine sees them: found by their cgroup, signalled and entered without the API server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process of a pod; `first` is whether it is the first of its container, with which all others end."""

    pid: int
    name: str
    words: tuple[str, ...]
    first: bool

    def signal(self, number: int) -> None:
        """Send it a signal; one that has ended meanwhile needs none."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def of_pod(uid: str) -> list[Process]:
    """All processes of a pod that live now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if f"pod{uid}" not in (folder / "cgroup").read_text():
                continue
            status = dict(line.partition(":\t")[::2] for line in (folder / "status").read_text().splitlines())
            words = tuple((folder / "cmdline").read_text().rstrip("\0").split("\0"))
            if not status["State"].startswith(("Z", "X")):
                first = status["NSpid"].split()[-1] == "1"
                found.append(Process(int(folder.name), status["Name"], words, first))
    return found


def named(uid: str, name: str) -> list[Process]:
    return [process for process in of_pod(uid) if process.name == name]


def slurmctld(uid: str) -> Process | None:
    """The slurmctld of a pod; Debian's program has another name."""
    return next((process for process in of_pod(uid) if process.name in ("slurmctld", "slurmctld-wlm")), None)


def run_inside(pid: int, user: int, words: Sequence[str], deadline: float) -> tuple[int, str, str]:
    """Run a command beside a process, as that user: its exit code, output and errors. Past the deadline it is killed.

    What is killed takes its command with it: the command's parent is all that keeps it alive.
    """
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--reset-env", "--pdeathsig", "KILL"]
    enter = ["nsenter", "--target", str(pid), "--mount", "--net", "--pid", "--ipc", "--uts", "--"]
    try:
        done = subprocess.run(
            [*enter, *become, "--", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "", f"no answer within {deadline:g} s"
    return done.returncode, done.stdout, done.stderr
