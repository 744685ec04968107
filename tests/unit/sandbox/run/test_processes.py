"""A process of ours is known past mistaking, and a stranger is never signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seltzer.errors import SeltzerError
from seltzer_sandbox.run import processes
from seltzer_sandbox.run.processes import Record, Registry, Spawn, wait_gone

# Longer than any test may take: what is waited for comes, or the test hangs.
DEADLINE = 3600.0


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "processes")


def test_a_process_is_alive_as_long_as_it_runs(registry: Registry, sleeper: subprocess.Popen[bytes]) -> None:
    record = registry.record("n1/kubelet", sleeper.pid)
    assert record.alive
    assert registry.get("n1/kubelet") == record
    sleeper.kill()
    sleeper.wait()
    assert not record.alive
    assert registry.get("n1/kubelet") is None
    assert registry.names() == ["n1/kubelet"], "that it was once there is known"


def test_a_process_that_is_started_under_control_c_is_recorded(
    registry: Registry, sleeper: subprocess.Popen[bytes]
) -> None:
    """One that isn't would never be found again, and its ports would stay taken."""

    class Interrupted:
        def start(self) -> subprocess.Popen[bytes]:
            os.kill(os.getpid(), signal.SIGINT)
            return sleeper

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            registry.start("etcd", cast(Spawn, Interrupted()))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    found = registry.get("etcd")
    assert found and found.pid == sleeper.pid


def test_after_a_reboot_nobody_is_one_of_ours(registry: Registry, sleeper: subprocess.Popen[bytes]) -> None:
    record = registry.record("etcd", sleeper.pid)
    assert not msgspec.structs.replace(record, boot="00000000-0000-0000-0000-000000000000").alive


def test_what_only_its_parent_remembers_is_not_alive(registry: Registry, sleeper: subprocess.Popen[bytes]) -> None:
    record = registry.record("etcd", sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped
    assert not record.alive


def test_a_stranger_with_a_number_that_was_ours_is_never_signalled(
    registry: Registry, sleeper: subprocess.Popen[bytes]
) -> None:
    record = registry.record("etcd", sleeper.pid)
    for other in (
        msgspec.structs.replace(record, started=record.started - 1),
        msgspec.structs.replace(record, boot="another"),
    ):
        assert not other.alive
        other.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        sleeper.wait(0.1)
    record.kill()
    assert sleeper.wait(DEADLINE) == -signal.SIGKILL
    record.kill()  # gone already: nothing to do


def test_waiting_for_the_end_tells_whether_it_came(registry: Registry, sleeper: subprocess.Popen[bytes]) -> None:
    record = registry.record("etcd", sleeper.pid)
    assert not wait_gone([record], 0.02)
    record.kill()
    assert wait_gone([record], DEADLINE)
    assert wait_gone([], 0.0)


def test_a_process_that_is_not_there_cannot_be_recorded(registry: Registry, sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(SeltzerError, match="etcd ended as soon as it was started"):
        registry.record("etcd", sleeper.pid)
    assert registry.names() == []


def mine() -> bytes:
    """The record of this very process, as it is on disk."""
    return msgspec.json.encode(Record(os.getpid(), processes._started(os.getpid()) or 0, processes._boot()))


@given(st.integers(min_value=0, max_value=len(mine()) - 1))
def test_a_half_written_record_is_no_record(length: int) -> None:
    assert decoded(mine()[:length]) is None
    assert decoded(mine()) is not None


@given(
    st.one_of(
        st.text().map(str.encode),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["pid", "started", "boot"]), inner),
            max_leaves=5,
        ).map(msgspec.json.encode),
    )
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_record_of_anything_else_is_no_record(content: bytes) -> None:
    assert decoded(content) is None


def decoded(content: bytes) -> Record | None:
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")
    file = folder / f"seltzer-test-{os.getpid()}.json"
    file.write_bytes(content)
    try:
        return Registry(folder).get(file.stem)
    finally:
        file.unlink()


def test_what_a_crash_left_behind_is_no_name(registry: Registry, tmp_path: Path) -> None:
    registry.record("n1/kubelet", os.getpid())
    (tmp_path / "processes/.etcd.json.new").write_bytes(mine())
    assert registry.names() == ["n1/kubelet"]
    assert registry.get("etcd") is None


def test_a_registry_without_a_folder_is_empty(registry: Registry) -> None:
    assert registry.names() == []
    assert registry.get("hub") is None


@pytest.mark.parametrize("name", ["x) R 1 (y", "((", "))", "a b c", ") Z 0 0"])
def test_a_programs_name_cannot_hide_its_state(tmp_path: Path, name: str) -> None:
    program = tmp_path / name
    program.symlink_to("/bin/sh")
    with subprocess.Popen([program, "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        process.stdout.readline()
        fields = processes._stat(process.pid)
        assert fields is not None
        assert fields[0] in "RSD"
        assert int(fields[1]) == os.getpid(), "its parent"
        assert Record(process.pid, int(fields[19]), processes._boot()).alive
        process.stdin.close()


def test_a_started_program_runs_with_its_output_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs/some.log"
    script = 'echo "out $1"; echo "err $SOME" >&2; pwd; read line || echo "nothing to read"; echo "${JOIN-no JOIN}"'
    spawn = Spawn(["sh", "-c", script, "sh", "two  words"], log, env={"SOME": "value"})
    assert spawn.start().wait(DEADLINE) == 0
    assert log.read_text().splitlines() == ["out two  words", "err value", "/", "nothing to read", "no JOIN"]
    assert spawn.start().wait(DEADLINE) == 0
    assert len(log.read_text().splitlines()) == 10, "an earlier life's output is kept"


def test_it_joins_its_cgroups_before_it_becomes_the_program(tmp_path: Path) -> None:
    files = (tmp_path / "one", tmp_path / "two")
    spawn = Spawn(["sh", "-c", f"cat {files[0]} {files[1]}"], tmp_path / "log", files)
    assert spawn.start().wait(DEADLINE) == 0
    assert (tmp_path / "log").read_text() == "0\n0\n"


def test_it_does_not_run_at_all_where_it_cannot_join(tmp_path: Path) -> None:
    spawn = Spawn(["touch", tmp_path / "ran"], tmp_path / "log", (tmp_path / "missing/cgroup.procs",))
    assert spawn.start().wait(DEADLINE) != 0
    assert not (tmp_path / "ran").exists()
    assert "missing/cgroup.procs" in (tmp_path / "log").read_text()


def test_the_terminals_ctrl_c_does_not_reach_it(tmp_path: Path) -> None:
    process = Spawn(["sleep", "infinity"], tmp_path / "log").start()
    try:
        assert os.getsid(process.pid) == process.pid != os.getsid(0)
    finally:
        process.kill()
        process.wait()


def test_only_files_that_are_passed_on_reach_it(tmp_path: Path) -> None:
    passed, kept = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    try:
        os.set_inheritable(kept, True)
        process = Spawn(["ls", "/proc/self/fd"], tmp_path / "log", pass_fds=(passed,)).start()
        assert process.wait(DEADLINE) == 0
    finally:
        os.close(passed)
        os.close(kept)
    numbers = (tmp_path / "log").read_text().split()
    assert str(passed) in numbers
    assert str(kept) not in numbers


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes for who waits."""
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=time.sleep))


@pytest.fixture
def pause(tmp_path: Path) -> Path:
    """A program called pause that waits for its end."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "pause").symlink_to("/bin/sh")
    return tmp_path / "pause"


def waiting(pause: Path) -> str:
    return f"""'{pause}' -c 'exec 4<>"$0"; read line <&4' '{pause.with_name("fifo")}'"""


@pytest.mark.usefixtures("patience")
def test_an_init_is_recorded_when_it_says_that_it_is_ready(registry: Registry, tmp_path: Path, pause: Path) -> None:
    script = f'sh -c "echo ready > /proc/self/fd/$READY; exec {waiting(pause)}" & wait'.replace('"$0"', '\\"\\$0\\"')
    record = registry.start_init("hub", Spawn(["sh", "-c", script], tmp_path / "log"), DEADLINE)
    try:
        assert Path(f"/proc/{record.pid}/comm").read_text() == "pause\n", "not one of the processes before it"
        assert registry.get("hub") == record
    finally:
        record.kill()
    assert wait_gone([record], DEADLINE)


def test_an_init_whose_set_up_fails_is_an_error_that_names_the_log(registry: Registry, tmp_path: Path) -> None:
    spawn = Spawn(["sh", "-c", "echo no mount for you >&2; exit 1"], tmp_path / "log")
    with pytest.raises(SeltzerError, match=r"hub could not be set up; see .*/log"):
        registry.start_init("hub", spawn, DEADLINE)  # its end is noticed, not waited out
    assert registry.get("hub") is None
    assert "no mount for you" in (tmp_path / "log").read_text()


def test_an_init_that_never_gets_ready_is_ended(registry: Registry, tmp_path: Path) -> None:
    seconds = f"{10**6 + os.getpid()}"
    spawn = Spawn(["sh", "-c", f"exec sleep {seconds}"], tmp_path / "log")
    with pytest.raises(SeltzerError, match="hub could not be set up"):
        registry.start_init("hub", spawn, deadline=0.2)
    while running_with(seconds):
        time.sleep(0.01)


def running_with(word: str) -> list[str]:
    """The processes with this word in their command; what has ended has none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


def open_files() -> set[str]:
    return {file.name for file in Path("/proc/self/fd").iterdir()}


@pytest.mark.usefixtures("patience")
def test_starting_an_init_leaves_no_file_open(registry: Registry, tmp_path: Path, pause: Path) -> None:
    before = open_files()
    with pytest.raises(SeltzerError):
        registry.start_init("hub", Spawn(["false"], tmp_path / "log"), DEADLINE)
    script = f"echo ready > /proc/self/fd/$READY; exec {waiting(pause)}"
    registry.start_init("hub", Spawn(["sh", "-c", script], tmp_path / "log"), DEADLINE).kill()
    assert open_files() <= before
