"""Run a program with a deadline; its output goes to a log file, which the error message names."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from seltzer.errors import SeltzerError


def run(
    command: Sequence[str | Path],
    *,
    doing: str,
    log: Path,
    deadline: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Path | None = None,
) -> str:
    """Run `command` and return its stdout.

    `doing` describes the purpose for a user; an error message starts with it. `env` is added to our environment;
    `stdin` is a file to read from. `log` receives stderr, and stdout too if the program fails.
    """
    words = [str(word) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8", errors="replace") as sink:
        sink.write(f"$ {shlex.join(words)}\n")
        sink.flush()
        source = (stdin or Path(os.devnull)).open("rb")
        try:
            done = subprocess.run(
                words,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=sink,
                env={**os.environ, **env} if env else None,
                cwd=cwd,
                timeout=deadline,
                text=True,
                errors="replace",
                check=False,
            )
        except FileNotFoundError:
            raise SeltzerError(f"{doing}: {words[0]} is not installed; run 'make setup'") from None
        except subprocess.TimeoutExpired:
            raise SeltzerError(f"{doing}: no end after {deadline:.0f} s; see {log}") from None
        finally:
            source.close()
        if done.returncode != 0:
            sink.write(done.stdout)
            sink.write(f"exit code {done.returncode}\n")
    if done.returncode != 0:
        raise SeltzerError(f"{doing}: failed with exit code {done.returncode}; see {log}")
    return done.stdout
