"""Where things live: what can be made again in the XDG cache, what a sandbox is now in the XDG state folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache() -> Path:
    """Binaries and images, kept by the digest of what they were made from; safe to delete at any time."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def state() -> Path:
    """The sandboxes that exist, and the log files."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def logs() -> Path:
    folder = state() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def alone(name: str, say: Callable[[str], None]) -> Iterator[None]:
    """One process at a time makes things in the cache. The kernel gives the lock back, however the process ends."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another seltzer command that builds")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _xdg(variable: str, default: str) -> Path:
    # The XDG specification: a relative path in the variable is invalid and to be ignored.
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / default) / "seltzer"
