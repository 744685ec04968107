"""kubectl, for terminals, streams and exit codes of commands in pods."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from seltzer.cli import sandbox
from seltzer.cli.kube import Place
from seltzer.errors import SeltzerError

_DEADLINE = 60.0
# Lines that kubectl adds to a command's output: the exit code, and its own log.
_KUBECTLS = re.compile(r"command terminated with exit code|[IWE]\d{4} \d\d:\d\d:")


def find() -> str:
    """kubectl on PATH, or the sandbox's."""
    found = shutil.which("kubectl")
    if found:
        return found
    fallback = sandbox.running()
    if fallback is None:
        raise SeltzerError(
            "kubectl isn't on your PATH, and this needs it; install it as https://kubernetes.io/docs/tasks/tools says"
        )
    return str(fallback.kubectl)


def become(place: Place, *words: str) -> NoReturn:
    """Replaces this process with kubectl, which gets the terminal and the signals, and sets the exit code."""
    kubectl = find()
    sys.stdout.flush()
    os.execv(kubectl, ["kubectl", *place.kubectl_flags, *words])


def enter(place: Place, pod: str, container: str, command: Sequence[str], *, stdin: Path | None = None) -> NoReturn:
    """Replaces this process with a command in a pod, with our input or that file, and our terminal if there is one."""
    if stdin is not None:
        with stdin.open("rb") as file:
            os.dup2(file.fileno(), 0)
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and stdin is None
    flags = ["--stdin", *(["--tty"] if terminal else []), "--quiet"]
    become(place, "exec", *flags, pod, "--container", container, "--", *command)


def output(place: Place, pod: str, container: str, command: Sequence[str]) -> str:
    """The output of a command in a pod. Raises SeltzerError with the command's message if it fails."""
    words = [find(), *place.kubectl_flags, "exec", pod, "--container", container, "--", *command]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE, check=False)
    except subprocess.TimeoutExpired:
        raise SeltzerError(f"{command[0]} in {pod} didn't answer in {_DEADLINE:.0f} s; see 'seltzer status'") from None
    said = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode:
        lines = [line for line in said.splitlines() if not _KUBECTLS.match(line)]
        raise SeltzerError(" ".join(lines) or f"{command[0]} in {pod} ended with exit code {done.returncode}")
    return said
