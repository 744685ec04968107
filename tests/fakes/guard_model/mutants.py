"""Guards with one mistake each: what the model is good for is to tell them from the true one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

from seltzer.guard.kube.lease import LeaseKeeper
from seltzer.guard.slurmctld.slurmctld_run import SlurmctldRun
from seltzer.guard.state import epoch
from seltzer.guard.state.epoch import Epoch, LostRace

_begin, _epochs, _write = epoch.begin, epoch._epochs, LeaseKeeper._write
Mutant = Callable[[], AbstractContextManager[object]]


def _doesnt_rename(state: Path, leading: Callable[[], bool], **more: Any) -> Epoch:
    return _as_it_is(state) if _epochs(state) and leading() else _begin(state, leading, **more)


def _as_it_is(state: Path) -> Epoch:
    number = _epochs(state)[-1]
    path = state / f"epoch-{number}"
    return Epoch(path, number, (path.stat().st_dev, path.stat().st_ino))


def _lease_first(state: Path, leading: Callable[[], bool], **more: Any) -> Epoch:
    if not leading():
        raise LostRace("the Lease has to be renewed first")
    return _begin(state, lambda: True, **more)


def _takes_what_is_there(state: Path, leading: Callable[[], bool], **more: Any) -> Epoch:
    try:
        return _begin(state, leading, **more)
    except LostRace:
        if not _epochs(state):
            raise
        return _as_it_is(state)


def _looks_once(state: Path, leading: Callable[[], bool], **more: Any) -> Epoch:
    if _epochs(state) or not leading():
        return _begin(state, leading, **more)
    path = state / "epoch-1"
    path.mkdir(exist_ok=True)
    return Epoch(path, 1, (path.stat().st_dev, path.stat().st_ino))


def _stop_and_go(life: Any, reason: object) -> None:
    life._child.send(signal.SIGTERM)


def _any_version(keeper: Any, version: str, spec: dict[str, Any]) -> None:
    _write(keeper, None, spec)  # type: ignore[arg-type]


MUTANTS: dict[str, Mutant] = {
    "doesn't rename": lambda: mock.patch.object(epoch, "begin", _doesnt_rename),
    "looks at the Lease before the names": lambda: mock.patch.object(epoch, "begin", _lease_first),
    "leaves half-written files": lambda: mock.patch.object(Path, "glob", lambda *_: iter(())),
    "takes a state that somebody else renamed": lambda: mock.patch.object(epoch, "begin", _takes_what_is_there),
    "makes a state and doesn't look again": lambda: mock.patch.object(epoch, "begin", _looks_once),
    "doesn't wait for slurmctld's end": lambda: mock.patch.object(SlurmctldRun, "_stop", _stop_and_go),
    "doesn't see that it is fenced": lambda: mock.patch.object(Epoch, "ours", lambda _: True),
}

HARMLESS: dict[str, Mutant] = {
    "is sure of what it once won": lambda: mock.patch.object(
        LeaseKeeper, "surely_held", lambda keeper: bool(keeper.term)
    ),
    "writes onto any version of the Lease": lambda: mock.patch.object(LeaseKeeper, "_write", _any_version),
    "never gives the Lease back": lambda: mock.patch.object(LeaseKeeper, "_release", lambda _: None),
}
"""These may move slurmctld without need, but that is all: the Lease only elects."""
