"""Where guards come from: one process forks them all (main.py)."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FAKES = Path(__file__).parent
SOURCES = FAKES.parents[2] / "src"


class Nursery:
    """It ends with us. Without the packages of .venv: a guard has nothing but the standard library."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", str(FAKES / "main.py")],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: Mapping[str, Any]) -> int | None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{json.dumps(question)}\n")
        self._process.stdin.flush()
        answer: int | None = json.loads(self._process.stdout.readline())
        return answer

    def sweep(self) -> None:
        """End what ended guards have left."""
        self.ask({"sweep": True})


@functools.cache
def nursery() -> Nursery:
    return Nursery()


class Guard:
    """One of its processes; with what a Popen has."""

    def __init__(
        self, settings: Mapping[str, Any], port: int, clock: Path, env: Mapping[str, str], stderr: Path
    ) -> None:
        env = {**os.environ, "PYTHONPATH": str(SOURCES), **env}
        question = {"settings": settings, "port": port, "clock": str(clock), "env": env, "stderr": str(stderr)}
        pid = nursery().ask(question)
        assert pid
        self.pid = pid

    def poll(self) -> int | None:
        return nursery().ask({"poll": self.pid})

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
