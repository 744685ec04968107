"""Processes that outlive the command that started them, identified by records in a folder.

A record contains a process's ID, its start time and the ID of the boot. A process that reuses the ID, or that runs
after a reboot, therefore never matches. Only processes with a matching record are signalled.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from seltzer.errors import SeltzerError

# Enter the cgroups, then become the program: it never runs outside them.
_JOIN = 'for file in $JOIN; do echo 0 > "$file" || exit 71; done; unset JOIN; exec "$@"'


_PASSED_ON = ("HOME", "LANG", "PATH", "TMPDIR")


class Record(msgspec.Struct, frozen=True):
    """Identifies one process unambiguously."""

    pid: int
    started: int
    boot: str

    @property
    def alive(self) -> bool:
        return self.boot == _boot() and _started(self.pid) == self.started

    def kill(self) -> None:
        """Send SIGKILL if the process still matches the record. Opening the handle first excludes a reused ID."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.alive:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            os.close(handle)


@dataclass(frozen=True)
class Spawn:
    """How to start a process: its cgroups, its namespaces and its log."""

    command: Sequence[str | Path]
    log: Path
    join: tuple[Path, ...] = ()
    inside: int | None = None  # the ID of a process whose namespaces it enters
    namespaces: str = "mnpui"  # which of them, as nsenter's short options
    env: Mapping[str, str] | None = None
    pass_fds: tuple[int, ...] = ()

    def start(self) -> subprocess.Popen[bytes]:
        words = [str(word) for word in self.command]
        if self.inside is not None:
            # nsenter stays as the parent and ends with its child; setpriv makes the child end with nsenter too.
            words = ["setpriv", "--pdeathsig", "KILL", "--", *words]
            words = ["nsenter", "--target", str(self.inside), *(f"-{kind}" for kind in self.namespaces), "--", *words]
        # Not the user's whole environment: a proxy setting, for example, must not reach programs in a sandbox.
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {**(self.env or {}), "JOIN": " ".join(str(file) for file in self.join)}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as sink:
            return subprocess.Popen(
                ["sh", "-c", _JOIN, "sh", *words],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=environment,
                pass_fds=self.pass_fds,
                start_new_session=True,  # Ctrl-C must reach the command, not the daemons
                cwd="/",
            )


class Registry:
    """The records of one sandbox's processes, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str) -> Record | None:
        """The record of a process, if the process is alive."""
        try:
            record = msgspec.json.decode(self._file(name).read_bytes(), type=Record)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        return record if record.alive else None

    def names(self) -> list[str]:
        """All recorded names, alive or not."""
        return sorted(file.stem.replace("+", "/") for file in self._folder.glob("*.json"))

    def start(self, name: str, spawn: Spawn) -> Record:
        """Start a process and record it."""
        with _without_interrupt():
            return self.record(name, spawn.start().pid)

    def start_init(self, name: str, spawn: Spawn, deadline: float = 10.0) -> Record:
        """Start the init of a namespace, wait until its script reports that it is ready, and record it."""
        reading, writing = os.pipe()
        try:
            process = spawn_with_ready_pipe(spawn, writing)
            os.close(writing)
            writing = -1
            if not select.select([reading], [], [], deadline)[0] or not os.read(reading, 16):
                process.kill()
                raise SeltzerError(f"{name} could not be set up; see {spawn.log}")
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)
        return self.record(name, _leaf(process.pid, "pause"))

    def record(self, name: str, pid: int) -> Record:
        started = _started(pid)
        if started is None:
            raise SeltzerError(f"{name} ended as soon as it was started; see 'seltzer sandbox logs {name}'")
        record = Record(pid, started, _boot())
        self._folder.mkdir(parents=True, exist_ok=True)
        scratch = self._folder / f".{self._file(name).name}.new"
        scratch.write_bytes(msgspec.json.encode(record))
        scratch.rename(self._file(name))
        return record

    def _file(self, name: str) -> Path:
        return self._folder / f"{name.replace('/', '+')}.json"


def spawn_with_ready_pipe(spawn: Spawn, writing: int) -> subprocess.Popen[bytes]:
    # Popen passes a file on under the same number; READY tells the script which one.
    environment = {**(spawn.env or {}), "READY": str(writing)}
    return Spawn(spawn.command, spawn.log, spawn.join, spawn.inside, spawn.namespaces, environment, (writing,)).start()


def wait_gone(records: Sequence[Record], deadline: float) -> bool:
    """Wait until none of the processes is alive; returns whether that happened before the deadline."""
    until = time.monotonic() + deadline
    while any(record.alive for record in records):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()  # the name before it may contain anything, brackets too


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block. A process that is started but not recorded would never be found again, and
    would keep the ports that the next one needs."""
    in_main = threading.current_thread() is threading.main_thread()  # Python interrupts no other thread
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupted = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupted.is_set():
        raise KeyboardInterrupt


def _started(pid: int) -> int | None:
    """When the process started, in ticks since boot; None if it does not exist or is a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def _children(pid: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields and int(fields[1]) == pid:
                yield int(entry.name)


def _leaf(pid: int, name: str, deadline: float = 2.0) -> int:
    """The descendant with that program name: nsenter and unshare each fork before they run a program."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        generation = [pid]
        while generation:
            for member in generation:
                try:
                    if Path(f"/proc/{member}/comm").read_text().strip() == name:
                        return member
                except (FileNotFoundError, ProcessLookupError):
                    continue
            generation = [child for member in generation for child in _children(member)]
        time.sleep(0.005)
    raise SeltzerError(f"process {pid} did not become {name} within {deadline:.0f} s")
