"""Processes of pods as this machine sees them: found by their cgroup, signalled and entered without the API server."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_POD = re.compile(r"pod([0-9a-f-]{36})")


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


def slurmds(cgroup: str, server: str) -> dict[str, set[str]]:
    """The slurmds below a cgroup that get their configuration from there, by the name of their node: their pods' uids.

    As the kernel sees them: those on a node that is cut off or frozen, too.
    """
    found: dict[str, set[str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            if not words[0].endswith("/slurmd") or server not in words or "-N" not in words:
                continue
            path = (folder / "cgroup").read_text()
            pod = _POD.search(path)
            if pod and f"/{cgroup}/" in path:
                found.setdefault(words[words.index("-N") + 1], set()).add(pod[1])
    return found


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
