"""Tries a configuration: does a slurmctld start with it? Runs in a pod of its own, where it can do no harm.

The trial's slurmctld must not be mistaken for the cluster's: it has its own port, state and keys, registers with no
slurmdbd, talks to no node and runs no program of the user's. The settings for these are removed, not overridden, since
a duplicate key logs an error. Lines keep their numbers, so that Slurm's messages about them stay correct.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Times
from seltzer.guard.slurmctld import config
from seltzer.guard.slurmctld.child import Child, Readiness
from seltzer.guard.slurmctld.config import Config
from seltzer.guard.slurmctld.output import LIMIT
from seltzer.guard.wake import Waker

_LEFT_OUT = frozenset(
    {
        *("slurmctldport", "statesavelocation", "slurmctldlogfile", "slurmctlddebug", "slurmctldsyslogdebug"),
        *("slurmctldprimaryonprog", "slurmctldprimaryoffprog"),
        *("accountingstoragetype", "accountingstoragehost", "accountingstoragebackuphost", "accountingstorageport"),
        *("accountingstorageexternalhost", "accountingstoragepass", "accountingstorageuser"),
        *("accountingstorageenforce", "accountingstorageparameters", "accountingstoragetres"),
        *("jobcomptype", "jobcomphost", "jobcomploc", "jobcompparams", "jobcomppass", "jobcomppassscript"),
        *("jobcompport", "jobcompuser"),
    }
)
# Weights of TRES that only slurmdbd counts are invalid without slurmdbd.
_COUNTS = re.compile(rb"^\s*AccountingStorageTRES\s*=", re.IGNORECASE | re.MULTILINE)
_WEIGHTS = re.compile(r"\b(?:PriorityWeightTRES|TRESBillingWeights)\s*=\s*(?:\"[^\"]*\"|\S+)", re.IGNORECASE)
_KEY = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-*+/]?=")
_INCLUDE = re.compile(r"include\s+(\S+)\s*", re.IGNORECASE)
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*(\\)\s*\Z")
_BEFORE_COMMENT = re.compile(r"(?:[^\\#]+|\\.?)*")


def run(places: Places, times: Times, processes: Processes) -> int:
    """0 if slurmctld answers in time. The reason if not is printed and becomes the pod's termination message."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())  # PID 1 ignores signals by default
    try:
        error = _try(places, times, processes, ended)
    except (OSError, ValueError) as problem:
        error = f"the configuration can't be tried: {problem}"
    line = (error or "slurmctld starts with this configuration")[:LIMIT]
    print(line, flush=True)
    with suppress(OSError):  # it has been printed already
        places.termination_log.write_text(line)
    return 1 if error else 0


def _try(places: Places, times: Times, processes: Processes, ended: threading.Event) -> str:
    """What is wrong with the configuration; empty if nothing is. Raises SystemExit where it is ended before."""
    keys = {name: os.urandom(256) for name in config.KEYS}
    found = config.read(places.config, None)
    files = {**keys, **harmless(found)}
    state = places.state / "trial"
    state.mkdir(exist_ok=True)
    lines = f"SlurmctldPort={places.trial_port}\nStateSaveLocation={state}\n"
    config.write(Config(found.digest, found.restart, files), places.etc, lines)
    waker = Waker()
    child = Child(processes, [*places.slurmctld, "-D", "-f", str(places.etc / "slurm.conf")])
    try:
        readiness = Readiness(child, places.trial_port, times.probe, waker.wake)
        until = time.monotonic() + times.trial
        while time.monotonic() < until and child.code is None and not ended.is_set():
            if readiness.ready:
                return ""
            waker.wait(times.probe)
            processes.reap()
        readiness.cancel()
        if ended.is_set():
            raise SystemExit(1)
        if child.code is not None:
            why = child.exit_summary()
            return child.cause() or why
        return f"slurmctld didn't answer in {times.trial:g} s: {child.cause()}"
    finally:
        child.send(signal.SIGKILL)
        while child.code is None:
            waker.wait(times.probe)


def harmless(found: Config) -> dict[str, bytes]:
    """The files, changed so that a slurmctld that reads them affects nothing else."""
    files = dict(found.files)
    counts = any(_COUNTS.search(content) for content in files.values())
    todo, done = ["slurm.conf"], set[str]()
    while todo:
        name = todo.pop()
        done.add(name)
        text = files[name].decode(errors="surrogateescape")
        lines = [_harmless_line(_WEIGHTS.sub("", line) if counts else line) for line in _numbered(text)]
        files[name] = "\n".join(lines).encode(errors="surrogateescape")
        for line in lines:
            included = _INCLUDE.fullmatch(line)
            if included and (other := Path(included[1]).name) in files and other not in done:
                todo.append(other)
    return files


def _harmless_line(line: str) -> str:
    key = _KEY.match(line)
    if key and key[1].lower() in _LEFT_OUT:
        return ""
    if key and key[1].lower() == "nodename":
        return f"{line} State=FUTURE"  # the last State counts; slurmctld neither looks up nor contacts such a node
    return line


def _numbered(text: str) -> Iterator[str]:
    """Lines without comments. A continued line is joined in place of its first line, followed by empty lines."""
    joined, taken = "", 0
    for line in text.split("\n"):
        before = _BEFORE_COMMENT.match(line)
        assert before
        continued = _CONTINUED.search(before[0])
        joined += before[0][: continued.start(1)] if continued else before[0]
        if continued:
            taken += 1
            continue
        yield joined
        yield from [""] * taken
        joined, taken = "", 0
    if taken:
        yield joined
