"""What is kept of a crash, and that it stays within bounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.guard.rig import until
from tests.programs import write_program

from seltzer.guard import log
from seltzer.guard.kube.report import JSON_LIMIT, Report
from seltzer.guard.processes import Processes
from seltzer.guard.settings import Places, Settings, Times
from seltzer.guard.slurmctld import child, crash
from seltzer.guard.slurmctld.child import Child
from seltzer.guard.slurmctld.crash import Crashes, as_json
from seltzer.wire.lease_json import Crash


class Scene:
    """Crashes that are noted one after the other, with a gdb that is a script."""

    def __init__(self, folder: Path) -> None:
        self.cores = folder / "cores"
        self.cores.mkdir()
        self.gdb = folder / "gdb"
        self.report = Report(lambda: None)
        self._processes = Processes()
        places = Places(cores=self.cores, gdb=str(self.gdb), slurmctld=(sys.executable,))
        settings = Settings("ns", "lease", "slice", "pod", "address", places, Times(gdb=600.0))
        self.crashes = Crashes(settings, self._processes, self.report)

    def script(self, text: str) -> None:
        write_program(self.gdb, f"#!/bin/sh\n{text}\n")

    def crash(self, how: str = "kill -KILL $$", core: str | None = "core") -> dict[str, object]:
        """A slurmctld that says something and ends like this; what is told of it at once."""
        made = Child(self._processes, ["sh", "-c", f"echo '[2026-01-02T03:04:05.678] error: a'; echo b; {how}"])
        until("it has ended", lambda: made.code is not None)
        made.exit_summary()
        if core:
            (self.cores / core).write_text(core)
        self.crashes.note(made)
        return self.told

    @property
    def told(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.report.get("crash"))
        return found

    @property
    def kept(self) -> list[str]:
        return [file.read_text() for file in sorted(self.cores.iterdir())]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(child, "LAST_LINES", 600.0)
    return Scene(tmp_path)


def test_a_crash_is_reported_at_once_and_its_backtrace_when_it_is_known(scene: Scene) -> None:
    scene.script(f"""echo "$@" > {scene.gdb}.words; printf '#0 boom (x=1)\\nnoise\\n#0 boom ()\\n#1 main ()\\n'""")
    told = scene.crash()
    assert told.pop("time", "") != ""
    core = told.pop("core")
    assert told == {"how": "was ended by SIGKILL", "lines": ["error: a", "b"], "backtrace": []}
    scene.crashes.examine()
    until("it has a backtrace", lambda: scene.told["backtrace"])
    assert scene.told["backtrace"] == ["#0 boom ()", "#1 main ()"]
    assert scene.told["core"] == core
    assert Path(f"{scene.gdb}.words").read_text().split()[-2:] == [sys.executable, core]
    assert scene.report.get("restarts") == "1"


def test_a_gdb_that_is_missing_is_no_error(scene: Scene) -> None:
    scene.crash()
    scene.crashes.examine()
    scene.script("echo '#0  boom ()'")
    scene.crash()
    scene.crashes.examine()
    until("the next one is looked at", lambda: scene.told["backtrace"] == ["#0  boom ()"])


def test_a_gdb_that_hangs_is_no_error(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(log, "say", said.append)
    scene.script("exec sleep 1000")
    monkeypatch.setattr(scene.crashes, "_deadline", 0.2)
    scene.crash()
    scene.crashes.examine()
    until("it is given up", lambda: "gdb didn't end within 0.2 s" in said)
    monkeypatch.setattr(scene.crashes, "_deadline", 600.0)
    scene.script("echo '#0  boom ()'")
    scene.crash()
    scene.crashes.examine()
    until("the next one is looked at", lambda: scene.told["backtrace"] == ["#0  boom ()"])


def test_of_a_crash_that_is_not_the_last_nothing_is_reported(scene: Scene) -> None:
    scene.script(f"while [ ! -e {scene.gdb}.go ]; do sleep 0.01; done; echo \"#0  $(cat $(eval echo '$'$#))\"")
    scene.crash(core="core.1")
    scene.crashes.examine()
    last = scene.crash(core="core.2")
    scene.crashes.examine()
    Path(f"{scene.gdb}.go").touch()
    until("there is a backtrace", lambda: scene.told["backtrace"])
    assert (scene.told["backtrace"], scene.told["core"]) == (["#0  core.2"], last["core"])


def test_the_last_three_cores_are_kept(scene: Scene) -> None:
    for number in range(5):
        scene.crash(core=f"core.{number}")
    assert scene.kept == ["core.2", "core.3", "core.4"]
    scene.crash(core=None)
    assert len(scene.kept) == 3
    assert scene.told["core"] == ""


def test_cores_take_no_more_than_they_may(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash, "KEPT_BYTES", 10_000)
    for name in ("core.1", "core.2", "core.3"):
        scene.crash(core=name)
    assert scene.kept == ["core.2", "core.3"]


def test_where_the_kernel_sends_cores_is_said_if_there_should_be_one(scene: Scene) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    assert pattern in str(scene.crash("ulimit -c 0; kill -SEGV $$", core=None)["backtrace"])
    assert scene.crash("exit 1", core=None)["backtrace"] == []
    assert scene.told["how"] == "exited with code 1"


def test_what_is_reported_has_bounds(scene: Scene) -> None:
    full = as_json(Crash("time", "how", ("ü" * 999,) * 99, ("#" * 999,) * 99, "core"))
    assert len(full.encode()) <= JSON_LIMIT
    told = json.loads(full)
    assert len(told["backtrace"]) == 20
    assert {len(line) for line in told["lines"]} == {300}


def test_a_process_may_leave_a_core_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: limits stay."""
    script = f"""
import resource
from pathlib import Path
from seltzer.guard.slurmctld.crash import Crashes
from seltzer.guard.processes import Processes
from seltzer.guard import log
from seltzer.guard.kube.report import Report
from seltzer.guard.settings import Places, Settings
settings = Settings("ns", "lease", "slice", "pod", "address", Places(cores=Path({str(tmp_path / "cores")!r})))
Crashes(settings, Processes(), Report(lambda: None)).prepare()
print(*resource.getrlimit(resource.RLIMIT_CORE))
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    soft, hard = map(int, said.stdout.split())
    assert soft == hard <= 1 << 30
    assert (tmp_path / "cores").is_dir()
    monkeypatch.setattr(child, "LAST_LINES", 600.0)
    made = Child(Processes(), ["sh", "-c", "pwd; kill -TERM $$"], cwd=tmp_path / "cores")
    until("it has ended", lambda: made.code == -signal.SIGTERM)
    assert made.exit_summary().endswith(f": {os.path.realpath(tmp_path / 'cores')}")
