"""Whether partitions are UP: what is declared, and what a person decided in Slurm.

slurmctld keeps its partitions' states through every start and reconfigure (`ReconfigFlags=KeepPartState`), so a
person's `scontrol update partition` is never undone by us. What it doesn't do then is take over a state that has
changed in slurm.conf. We do: what was declared last is written down beside the state, and what differs is set.
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
from seltzer.guard.recovery.slurm import Cancelled, Slurm, SlurmError
from seltzer.guard.settings import Settings

_FILE = "seltzer.partitions"
_LINE = re.compile(r"^\s*PartitionName\s*=\s*(\S+)(.*)$", re.IGNORECASE | re.MULTILINE)
_STATE = re.compile(r"(?<!\S)State\s*=\s*(\S+)", re.IGNORECASE)


def declared(slurm_conf: bytes) -> dict[str, str]:
    """The state of each partition by slurm.conf, where one that isn't said is that of PartitionName=DEFAULT, or UP."""
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
    """What was declared when slurmctld was last told; empty if that isn't known."""
    try:
        found = json.loads((epoch / _FILE).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): str(state) for name, state in found.items()} if isinstance(found, dict) else {}


def write(epoch: Path, states: Mapping[str, str]) -> None:
    half = epoch / f"{_FILE}.half"
    with suppress(OSError):  # then it is told once more the next time
        half.write_text(json.dumps(states))
        half.rename(epoch / _FILE)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """What slurmctld has to be told. A partition that is new to it has its state from slurm.conf."""
    return {name: state for name, state in after.items() if before.get(name, state) != state}


class Teller:
    """Tells slurmctld what has changed, in a thread, and writes down what it was told. People hear of it by `tell`.

    What fails is told with the next start or reconfigure.
    """

    def __init__(
        self,
        epoch: Path,
        slurm_conf: bytes,
        settings: Settings,
        processes: Processes,
        tell: Callable[[str, str], None],
    ) -> None:
        self._epoch = epoch
        self._tell = tell
        self._after = declared(slurm_conf)
        before = read(epoch)
        self._todo = changes(before, self._after)
        self._slurm = Slurm(settings.places, processes, time.monotonic() + settings.times.partitions)
        self._thread = threading.Thread(target=self._run, daemon=True, name="partitions")
        if self._todo:
            self._thread.start()
        elif before != self._after:
            write(epoch, self._after)

    def end(self) -> None:
        """Leave it to the next one."""
        self._slurm.cancel()
        if self._thread.ident is not None:
            self._thread.join(5)

    def _run(self) -> None:
        done: list[str] = []
        try:
            for name, state in self._todo.items():
                self._slurm.set_partition(name, state)
                log.say(f"partition {name} is {state} now, as is declared")
                done.append(f"partition {name} is {state} now")
        except Cancelled:
            return
        except SlurmError as error:
            log.say(f"the partitions' states are told again with the next start: {error}")
            return
        finally:
            if done:
                self._tell("PartitionsSet", f"what is declared has changed: {', '.join(done)}")
        write(self._epoch, self._after)
