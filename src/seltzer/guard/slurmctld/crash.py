"""What a crashed slurmctld leaves behind: its last lines, its core and a backtrace, within bounds.

slurmctld runs in a folder of its own, which is where the kernel writes cores if core_pattern is a plain name. The
backtrace is made after slurmctld has been restarted, so that it delays nothing.
"""

from __future__ import annotations

import json
import queue
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.kube.report import JSON_LIMIT, Report, now
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Settings
from seltzer.guard.slurmctld.child import Child
from seltzer.guard.slurmctld.output import bare
from seltzer.wire.lease_json import Crash

KEPT = 3
KEPT_BYTES = 1 << 30
LINES = 20
_WIDTH = 300
_PATTERN = Path("/proc/sys/kernel/core_pattern")
_NAME = re.compile(r"core\.\d{8}T\d{6}\.\d{6}Z")
_DUMPING = frozenset(
    {
        *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGQUIT),
        *(signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP, signal.SIGXCPU, signal.SIGXFSZ),
    }
)


class Crashes:
    """All crashes since this guard started. `note` and `examine` are for the supervisor's thread."""

    def __init__(self, settings: Settings, processes: Processes, report: Report) -> None:
        self._places = settings.places
        self._deadline = settings.times.gdb
        self._processes = processes
        self._report = report
        self._count = 0
        self._last: Crash | None = None
        self._unexamined: Crash | None = None
        self._cores: queue.SimpleQueue[Crash] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._examine, daemon=True, name="gdb")

    def prepare(self) -> None:
        """Let crashes leave cores, up to the size that we keep. If this fails, only the core is missing."""
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        limit = KEPT_BYTES if hard == resource.RLIM_INFINITY else min(hard, KEPT_BYTES)
        try:
            # Our own limits, since children inherit them. The hard one, too: slurmctld would raise itself up to it.
            resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
            self._places.cores.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            log.say(f"a crash won't leave a core: {error}")

    def note(self, child: Child) -> None:
        """slurmctld ended by itself: count the crash, keep its core, and report its last lines at once."""
        self._count += 1
        core = self._keep_core()
        crash = Crash(now(), child.how, tuple(line for line in map(bare, child.lines) if line), core=str(core or ""))
        if core is None and -(child.code or 0) in _DUMPING:
            crash = replace(crash, backtrace=(_elsewhere(self._places.cores),))
        self._last = crash
        self._unexamined = crash if core else None
        self._report.set(restarts=str(self._count), crash=as_json(crash))

    def examine(self) -> None:
        """Start a backtrace of the last crash, if it left a core that wasn't examined yet. Returns at once."""
        if self._unexamined:
            self._cores.put(self._unexamined)
            self._unexamined = None
            if not self._thread.ident:
                self._thread.start()

    def _keep_core(self) -> Path | None:
        """Renames the newest core, so that the next crash doesn't overwrite it."""
        try:
            found = sorted(_files(self._places.cores), key=lambda file: file.stat().st_mtime_ns)
            fresh = [file for file in found if not _NAME.fullmatch(file.name)]
            kept = None
            for core in fresh:
                seconds, rest = divmod(time.time_ns(), 1_000_000_000)
                stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
                kept = core.rename(core.with_name(f"core.{stamp}.{rest // 1000:06d}Z"))
            _prune(self._places.cores)
        except OSError as error:
            log.say(f"the core isn't kept: {error}")
            return None
        return kept

    def _examine(self) -> None:
        while True:
            crash = self._cores.get()
            # In a crash loop the next crash may have happened already.
            if crash is self._last and (frames := self._backtrace(Path(crash.core))):
                log.say(f"backtrace of {crash.core}: {'; '.join(frames[:5])}")
                if crash is self._last:
                    self._report.set(crash=as_json(replace(crash, backtrace=tuple(frames))))

    def _backtrace(self, core: Path) -> list[str]:
        """The frames that gdb prints; empty without gdb, or if it takes too long."""
        gdb, slurmctld = shutil.which(self._places.gdb), shutil.which(self._places.slurmctld[0])
        if not gdb or not slurmctld:
            return []
        # Arguments are left out: they may contain what users wrote.
        commands = ["-iex", "set print frame-arguments none", "-ex", f"bt {LINES}"]
        argv = ["nice", "-n", "19", gdb, "--batch", "-nx", *commands, slurmctld, str(core)]
        try:
            process = self._processes.start(
                argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={"DEBUGINFOD_URLS": ""}
            )
        except OSError as error:
            log.say(f"gdb can't be run: {error}")
            return []
        try:
            said, _ = process.communicate(timeout=self._deadline)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            log.say(f"gdb didn't end within {self._deadline:g} s")
            return []
        frames = [bare(line) for line in said.decode(errors="replace").splitlines() if line.startswith("#")]
        # gdb prints the innermost frame on its own before it runs the command.
        first = max((index for index, frame in enumerate(frames) if frame.startswith("#0 ")), default=0)
        return frames[first:]


def as_json(crash: Crash) -> str:
    """Never longer than the annotation allows: the oldest lines go first, then the outermost frames."""
    shown = asdict(crash)
    shown["lines"] = [line[:_WIDTH] for line in crash.lines][-LINES:]
    shown["backtrace"] = [frame[:_WIDTH] for frame in crash.backtrace][:LINES]
    while len((text := json.dumps(shown, ensure_ascii=False)).encode()) > JSON_LIMIT:
        if shown["lines"]:
            del shown["lines"][0]
        else:
            del shown["backtrace"][-1]
    return text


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.is_file() and not file.is_symlink()]


def _prune(folder: Path) -> None:
    """Keep the newest cores, up to the allowed number and total size."""
    taken = 0
    for place, file in enumerate(sorted(_files(folder), key=lambda file: file.name, reverse=True)):
        taken += file.stat().st_blocks * 512
        if place >= KEPT or taken > KEPT_BYTES:
            with suppress(FileNotFoundError):
                file.unlink()


def _elsewhere(folder: Path) -> str:
    """Explains why there is no core where one should be."""
    try:
        pattern = _PATTERN.read_text().strip()
    except OSError:
        pattern = "unknown"
    return f"no core in {folder}: this machine's kernel.core_pattern is {pattern!r}, so it may be there"
