"""Keeps partition states as declared, without undoing what a person set in Slurm.

slurmctld keeps its partitions' states across starts and reconfigures (`ReconfigFlags=KeepPartState`), so the guard
never undoes a person's `scontrol update partition`. With that flag slurmctld ignores a State that has changed in
slurm.conf. The guard applies it: it stores the last declared states beside slurmctld's state and sets those that
differ. They are stored once slurmctld has saved the change; stored earlier, a change lost by a SIGKILL would never be
set again.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.processes import Processes
from seltzer.guard.recovery.slurm import Cancelled, SlurmCommands, SlurmError
from seltzer.guard.settings import Settings
from seltzer.guard.state import continuity as state

_FILE = "seltzer.partitions"
_LOOK = 0.2
_LINE = re.compile(r"^\s*PartitionName\s*=\s*(\S+)(.*)$", re.IGNORECASE | re.MULTILINE)
_STATE = re.compile(r"(?<!\S)State\s*=\s*(\S+)", re.IGNORECASE)


def declared(slurm_conf: bytes) -> dict[str, str]:
    """Each partition's state in slurm.conf; the default is that of PartitionName=DEFAULT, or UP."""
    usual = "UP"
    found: dict[str, str] = {}
    for name, options in _LINE.findall(slurm_conf.decode(errors="replace")):
        said = _STATE.findall(options)
        state = said[-1].upper() if said else usual
        if name.upper() == "DEFAULT":
            usual = state
        else:
            found[name] = state
    return found


def read(epoch: Path) -> dict[str, str]:
    """The declared states that slurmctld was given last; empty if unknown."""
    try:
        found = json.loads((epoch / _FILE).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): str(state) for name, state in found.items()} if isinstance(found, dict) else {}


def write(epoch: Path, states: Mapping[str, str]) -> None:
    half = epoch / f"{_FILE}.half"
    with suppress(OSError):  # then they are set once more the next time
        half.write_text(json.dumps(states))
        half.rename(epoch / _FILE)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The states to set in slurmctld. A partition that is new to it takes its state from slurm.conf."""
    return {name: state for name, state in after.items() if before.get(name, state) != state}


class PartitionUpdater:
    """A thread that sets changed states in slurmctld, reports each by `add_event`, and stores them once they are saved.

    Only a state that could not be set, or was not saved, is set again at the next start or reconfigure: a slurmctld
    that is killed before it saves forgets the state. Setting any other one again would undo what a person set since.
    """

    def __init__(
        self,
        epoch: Path,
        slurm_conf: bytes,
        settings: Settings,
        processes: Processes,
        add_event: Callable[[str, str], None],
    ) -> None:
        self._epoch = epoch
        self._add_event = add_event
        self._after = declared(slurm_conf)
        self._before = read(epoch)
        self._todo = changes(self._before, self._after)
        self._slurm = SlurmCommands(settings.places, processes, time.monotonic() + settings.times.partitions)
        self._thread = threading.Thread(target=self._run, daemon=True, name="partitions")
        if self._todo:
            self._thread.start()
        elif self._before != self._after:
            write(epoch, self._after)

    def end(self) -> None:
        """Leave the rest to the next run."""
        self._slurm.cancel()
        if self._thread.ident is not None:
            self._thread.join(5)

    def _run(self) -> None:
        done: dict[str, str] = {}
        saved = 0
        try:
            for name, wanted in self._todo.items():
                before = self._saved()
                if self._set(name, wanted):
                    done[name], saved = wanted, before
        except Cancelled:
            pass  # what was set may be saved all the same
        if done:
            words = ", ".join(f"partition {name} is now {wanted}" for name, wanted in done.items())
            self._add_event("PartitionsSet", f"the declared states have changed: {words}")
        if done and self._is_saved_since(saved):
            write(self._epoch, self._after | {name: self._before[name] for name in self._todo if name not in done})

    def _set(self, name: str, wanted: str) -> bool:
        """Whether slurmctld accepted it. A failure doesn't affect the other partitions."""
        try:
            self._slurm.set_partition(name, wanted)
        except SlurmError as error:
            log.say(f"the state of partition {name} will be set at the next start: {error}")
            return False
        log.say(f"partition {name} is set to {wanted}, as declared")
        return True

    def _is_saved_since(self, before: int) -> bool:
        """Wait until slurmctld has saved its partitions again: up to 5 s, more on a slow disk."""
        try:
            while self._saved() == before:
                self._slurm.left()
                self._slurm.pause(_LOOK)
        except Cancelled:
            return self._saved() != before  # it saves when it ends and when it is reconfigured
        except SlurmError:
            log.say("the partition states were not saved in time: they will be set again at the next start")
            return False
        return True

    def _saved(self) -> int:
        return state.saved(self._epoch, state.PARTITIONS)
