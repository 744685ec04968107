"""kubectl, for what it does better than anyone: terminals, streams and exit codes of commands in pods."""

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
# What kubectl adds to a command's words: the exit code, and what it tells its own developers.
_KUBECTLS = re.compile(r"command terminated with exit code|[IWE]\d{4} \d\d:\d\d:")


def find() -> str:
    """The one on PATH, or the sandbox's."""
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
    """Go on as kubectl, so that terminal, signals and exit code are between it and the caller."""
    kubectl = find()
    sys.stdout.flush()
    os.execv(kubectl, ["kubectl", *place.kubectl_flags, *words])


def enter(place: Place, pod: str, container: str, command: Sequence[str], *, stdin: Path | None = None) -> NoReturn:
    """Go on as a command in a pod, with our input or that file, and on a terminal if we are on one."""
    if stdin is not None:
        with stdin.open("rb") as file:
            os.dup2(file.fileno(), 0)
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and stdin is None
    flags = ["--stdin", *(["--tty"] if terminal else []), "--quiet"]
    become(place, "exec", *flags, pod, "--container", container, "--", *command)


def output(place: Place, pod: str, container: str, command: Sequence[str]) -> str:
    """What a command in a pod prints; raises its own words where it fails."""
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
