"""Run jobs in parallel; when one fails, or on Ctrl-C, kill the programs that the others run."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ParallelJobs:
    """Runs jobs in parallel threads; the `with` block ends when all jobs have ended.

    When a job fails, or on Ctrl-C, the programs that the other jobs run are killed, and the error is raised.
    """

    def __init__(self, workers: int) -> None:
        self._threads: set[int] = set()
        self._pool = ThreadPoolExecutor(workers, initializer=lambda: self._threads.add(threading.get_native_id()))
        self._jobs: list[Future[Any]] = []

    def start(self, job: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future = self._pool.submit(job, *args, **kwargs)
        self._jobs.append(future)
        return future

    def __enter__(self) -> ParallelJobs:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                for job in wait(self._jobs, return_when=FIRST_EXCEPTION).done:
                    job.result()
        finally:
            self._stop()
            self._pool.shutdown()

    def _stop(self) -> None:
        for job in self._jobs:
            job.cancel()
        while wait(self._jobs, timeout=0.1).not_done:
            for thread in self._threads:
                _kill_children(thread)


def _kill_children(thread: int) -> None:
    """Kill the programs that one of our threads started, and no others."""
    try:
        children = Path(f"/proc/self/task/{thread}/children").read_text().split()
    except FileNotFoundError:
        return
    for child in children:
        try:
            os.kill(int(child), signal.SIGKILL)
        except ProcessLookupError:
            continue
