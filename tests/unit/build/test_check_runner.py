"""The runner of checks, with real processes and a scontrol that writes down what it is told."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest
from tests.programs import write_program

FOLDER = resources.files("seltzer.build")
SCONTROL = """#!/bin/bash
[[ -e $FOLDER/away ]] && exit 1
[[ $1 == -o ]] && exec cat "$FOLDER/record"
for word in "$@"; do [[ $word == extra=* ]] && sed -i "s|Extra=.*|${word/extra/Extra}|" "$FOLDER/record"; done
printf '%s\\n' "$*" >>"$FOLDER/updates"
"""
IDLE = "NodeName=cpu-0 Arch=x86_64 State=IDLE+DYNAMIC_NORM Partitions=cpu Extra="


class Node:
    """The container of a node: its checks, and what Slurm knows of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mount, self.state, bin_ = folder / "mount", folder / "state", folder / "bin"
        self.mount.mkdir()
        bin_.mkdir()
        runner = FOLDER.joinpath("check_runner.sh").read_text()
        # Time is what a test says, and passes quickly.
        runner = runner.replace('<"$PROC/uptime"', '<"$STATE/uptime"').replace("readonly TICK=3", "readonly TICK=0.05")
        assert "$STATE/uptime" in runner
        assert "TICK=0.05" in runner
        assert "waited < 50" in FOLDER.joinpath("check_library.sh").read_text()
        (self.mount / "runner").write_text(runner)
        (self.mount / "library").write_text(
            FOLDER.joinpath("check_library.sh").read_text().replace("waited < 50", "waited < 5")
        )
        (self.mount / "list").touch()
        (bin_ / "scontrol").write_text(SCONTROL)
        (bin_ / "scontrol").chmod(0o755)
        self.state.mkdir(mode=0o700)
        self.clock(1000)
        self.knows(IDLE)
        self.env = {
            **os.environ,
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "FOLDER": str(folder),
            "SELTZER_CHECKS_STATE": str(self.state),
            "POD_NAME": "cpu-0",
        }

    def clock(self, seconds: int) -> None:
        (self.state / "uptime.new").write_text(f"{seconds}.00 1.00\n")
        (self.state / "uptime.new").rename(self.state / "uptime")

    def knows(self, record: str) -> None:
        (self.folder / "record").write_text(f"{record}\n")

    def check(self, name: str, command: str, when: str = "before", on_fail: str = "drain", timeout: int = 600) -> None:
        with (self.mount / "list").open("a") as file:
            file.write(f"{name} {when} {on_fail} 60 {timeout}\n")
        (self.mount / f"check.{name}").write_text(f"{command}\n")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", str(self.mount / "runner"), *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = ["bash", str(self.mount / "runner"), *words]
        out = (self.folder / "log").open("a")
        return subprocess.Popen(command, env=self.env, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True)

    def failed(self, name: str) -> str:
        file = self.state / f"failed.{name}"
        return file.read_text().rstrip("\n") if file.exists() else ""

    @property
    def updates(self) -> list[str]:
        file = self.folder / "updates"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def until(what: Callable[[], object]) -> None:
    """pytest ends a test that waits in vain."""
    while not what():
        time.sleep(0.02)


def time_passes(node: Node, what: Callable[[], object], seconds: int = 1000) -> None:
    """Until then, so many seconds at once."""
    while not what():
        node.clock(int(float((node.state / "uptime").read_text().split()[0])) + seconds)
        time.sleep(0.1)


@contextlib.contextmanager
def looping(node: Node) -> Iterator[None]:
    loop = node.start("loop")
    try:
        until(lambda: (node.state / "told").exists())
        yield
    finally:
        os.killpg(loop.pid, signal.SIGKILL)
        loop.wait()


# --- one check --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("true", ""),
        ("echo fine", ""),
        ("false", "exit code 1"),
        ("echo /tmp is full; exit 3", "/tmp is full"),
        ("echo /tmp is full >&2; exit 3", "/tmp is full"),
        ("echo; echo one; echo two; echo three; false", "one; two"),
        ("printf 'a\\0b\\033[31m\\tc'; false", "ab [31m c"),
        ("echo '\"x\" \\ {y} a : b : : c #1'; false", "'x' / (y) a: b:: c 1"),
        ("head -c 1048576 /dev/zero | tr '\\0' x; false", "x" * 160),
        ("head -c 1048576 /dev/zero | tr '\\0' x", ""),
        ("kill -KILL $$", "killed, as by a lack of memory"),
        ("echo dying; kill -SEGV $$", "ended by signal 11: dying"),
        ("nothing-of-this-name", "check.it: line 1: nothing-of-this-name: command not found"),
        ("if", "check.it: line 2: syntax error: unexpected end of file"),
        ("cat", ""),
        ("check_disk /=1%", ""),
        ("echo $SLURM_JOB_ID; false", "7"),
    ],
)
def test_a_check_fails_with_what_it_prints(node: Node, command: str, says: str) -> None:
    node.check("it", command)
    node.env["SLURM_JOB_ID"] = "7"
    code = node.run("before").returncode
    assert (code, node.failed("it").removeprefix(f"{node.mount}/")[:160]) == (int(bool(says)), says)
    assert [each.name for each in node.state.glob("run.*")] == []


def test_a_check_that_hangs_fails_with_what_it_has_printed_and_holds_up_no_other(node: Node) -> None:
    printed = 'until [ -e "$FOLDER/printed" ]; do /bin/sleep 0.01; done'  # its second begins when it has printed
    write_program(node.folder / "bin" / "sleep", f'#!/bin/sh\n[ "$1" != 1 ] || {printed}\nexec /bin/sleep "$@"\n')
    node.check("hangs", 'echo asking the disk; : >"$FOLDER/printed"; sleep 1000', timeout=1)
    node.check("other", "true")
    assert node.run("before").returncode == 1
    assert node.failed("hangs") == "no result after 1 s: asking the disk"
    assert not node.failed("other")


@pytest.mark.parametrize(
    "leaves",
    ["sleep 4321 &", "setsid sleep 4321 & disown", "(setsid nohup sleep 4321 >/dev/null 2>&1 &)", "(sleep 4321 &) &"],
)
def test_what_a_check_leaves_behind_is_ended(node: Node, leaves: str) -> None:
    node.env["MARK"] = str(node.folder)
    node.check("leaves", f"{leaves}\necho done; false")
    assert node.run("before").returncode == 1
    assert node.failed("leaves") == "done"
    mark = f"MARK={node.folder}"  # who was killed may take a moment to be gone
    until(lambda: not [each for each in Path("/proc").glob("[0-9]*/environ") if mark in _text(each)])


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def test_a_check_keeps_the_reason_with_which_it_began_to_fail(node: Node) -> None:
    node.check("disk", "cat $FOLDER/now; false")
    for words in ("4% free", "3% free"):
        (node.folder / "now").write_text(words)
        node.run("before")
    assert node.failed("disk") == "4% free"
    assert len(node.updates) == 1


# --- what Slurm is told -----------------------------------------------------------------------------------------------


def extra(**failing: str) -> str:
    return "extra=" + json.dumps({"seltzer-checks": failing}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("record", "drains"),
    [
        (IDLE, True),
        (IDLE.replace("IDLE", "MIXED"), True),
        (IDLE.replace("IDLE", "IDLE+DRAIN").replace("Partitions", "Reason=fan [ann@2030] Partitions"), False),
        (IDLE.replace("IDLE", "DOWN"), False),
        (IDLE.replace("IDLE", "ALLOCATED+FAIL"), False),
    ],
)
def test_a_node_is_drained_in_the_same_call_unless_somebody_has_done_so(node: Node, record: str, drains: bool) -> None:
    node.knows(record)
    node.check("disk", "echo full; false")
    assert node.run("before").returncode == 1
    change = " state=drain reason=seltzer: check disk: full" if drains else ""
    assert node.updates == [f"update nodename=cpu-0 {extra(disk='full')}{change}"]


def test_a_check_that_only_comments_lets_the_job_run(node: Node) -> None:
    node.check("scratch", "echo gone; false", on_fail="comment")
    assert node.run("before").returncode == 0
    assert node.updates == [f"update nodename=cpu-0 {extra(scratch='gone')}"]


def test_after_a_job_nothing_but_the_drain_says_that_a_check_failed(node: Node) -> None:
    node.check("clean", "echo left; false", when="after")
    node.check("gate", "false")
    assert node.run("after").returncode == 0, "slurmd would drain the node with its own words"
    assert node.updates == [
        f"update nodename=cpu-0 {extra(clean='left')} state=drain reason=seltzer: check clean: left"
    ]


def test_nothing_is_written_while_all_pass(node: Node) -> None:
    node.check("fine", "true")
    assert node.run("before").returncode == 0
    assert node.updates == []


def test_a_job_doesnt_start_on_a_broken_node_although_slurmctld_is_away(node: Node) -> None:
    (node.folder / "away").touch()
    node.check("gate", "false")
    assert node.run("before").returncode == 1


def test_a_check_that_passes_again_is_reported_and_nothing_is_resumed(node: Node) -> None:
    node.check("disk", "test ! -e $FOLDER/full || { echo full; false; }")
    (node.folder / "full").touch()
    assert node.run("before").returncode == 1
    (node.folder / "full").unlink()
    assert node.run("before").returncode == 0
    assert node.updates[1:] == [f"update nodename=cpu-0 {extra()}"]


# --- the start of slurmd ----------------------------------------------------------------------------------------------

SLURMD = ("slurmd", "sh", "-c", 'umask; echo "$LD_PRELOAD"; for each; do echo "$each"; done', "slurmd", "-Z", "--conf")


def started(node: Node, *words: str) -> list[str]:
    """What slurmd's container prints: the runner first, then slurmd, which ends at once here."""
    node.env["LD_PRELOAD"] = "/of/slurmd.so"
    slurmd = node.start(*SLURMD, *words)
    slurmd.wait()
    # The loop outlives it: no container ends.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(slurmd.pid, signal.SIGKILL)
    return node.log.splitlines()


def test_a_new_node_begins_drained_if_a_check_fails_at_its_start(node: Node) -> None:
    node.check("gpu", "echo there are 0 GPUs; false", when="start")
    node.check("disk", "echo full; false", when="interval")
    assert started(node, "CPUs=4 Feature=cpu", "-v") == [
        "seltzer: check gpu fails: there are 0 GPUs",
        subprocess.run(["sh", "-c", "umask"], capture_output=True, text=True).stdout.strip(),
        "/of/slurmd.so",
        "-Z",
        "--conf",
        'CPUs=4 Feature=cpu State=DRAIN Reason="seltzer: check gpu: there are 0 GPUs"',
        "-v",
    ]


def test_slurmd_is_started_as_it_would_be_without_checks(node: Node) -> None:
    node.check("gpu", "true", when="start")
    assert started(node, "CPUs=4")[2:] == ["-Z", "--conf", "CPUs=4"]


def test_slurmd_starts_although_no_check_can_run(node: Node) -> None:
    node.check("gpu", "false", when="start")
    node.env["SELTZER_CHECKS_STATE"] = "/proc/nowhere"
    assert started(node, "CPUs=4")[2:] == ["-Z", "--conf", "CPUs=4"]


def test_a_node_that_slurm_knows_is_drained_before_slurmd_starts(node: Node) -> None:
    """Its record stays as it is when its slurmd registers: jobs would come."""
    node.check("gpu", "echo lost; false", when="start")
    started(node, "CPUs=4")
    assert node.updates == [f"update nodename=cpu-0 {extra(gpu='lost')} state=drain reason=seltzer: check gpu: lost"]


# --- the loop ---------------------------------------------------------------------------------------------------------


def test_the_loop_runs_and_repeats_checks_and_says_so_in_the_log(node: Node) -> None:
    node.check("disk", "test ! -e $FOLDER/full || { echo full; false; }", when="interval")
    (node.folder / "full").touch()
    with looping(node):
        assert not node.failed("disk"), "nobody begins at once"
        time_passes(node, lambda: len(node.updates) == 1)
        (node.folder / "full").unlink()
        time_passes(node, lambda: len(node.updates) == 2)
    assert node.updates[1] == f"update nodename=cpu-0 {extra()}"
    assert node.log == "seltzer: check disk fails: full\nseltzer: check disk passes again\n"


def test_a_check_that_failed_before_a_job_is_repeated_without_one(node: Node) -> None:
    node.check("gate", "test ! -e $FOLDER/full || { echo full; false; }")
    (node.folder / "full").touch()
    with looping(node):
        assert node.run("before").returncode == 1
        (node.folder / "full").unlink()
        time_passes(node, lambda: not node.failed("gate"))
        until(lambda: len(node.updates) == 2)


def test_nodes_that_start_together_dont_run_their_checks_together(tmp_path: Path) -> None:
    """Each begins at another moment of the interval."""
    runner = FOLDER.joinpath("check_runner.sh").read_text()
    line = re.search(r"due\[\$name\]=\$\(\(now \+ 1 \+ RANDOM % every\)\)", runner)
    assert line
    script = f"now=0 every=60 name=x; declare -A due; {line[0]}; echo ${{due[x]}}"
    begins = {subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout for _ in range(30)}
    assert len(begins) > 10


def test_a_failure_that_slurm_cant_be_told_is_tried_again_and_doesnt_count(node: Node) -> None:
    """A network that was down for a moment would drain all nodes when it is back."""
    node.check("net", "test ! -e $FOLDER/away")
    look = ["bash", "-c", f"source {node.mount}/runner none; prepare; look net 20"]
    (node.folder / "away").touch()
    subprocess.run(look, env=node.env, check=False)
    assert not node.failed("net")
    assert (node.state / "again").exists(), "it is reported soon, if it still fails"
    (node.folder / "away").unlink()
    subprocess.run(look, env=node.env, check=True)
    assert node.updates == []


def test_a_slurmctld_that_has_forgotten_is_told_again(node: Node) -> None:
    node.check("disk", "echo full; false", when="interval")
    with looping(node):
        time_passes(node, lambda: node.updates)
        node.knows(IDLE)
        time_passes(node, lambda: len(node.updates) > 1, seconds=10)
    assert node.updates[0] == node.updates[1]


def test_what_failed_before_the_container_was_started_again_has_to_pass(node: Node) -> None:
    node.knows(IDLE.replace("IDLE", "IDLE+DRAIN") + '{"seltzer-checks":{"gate":"lost"}}')
    node.check("gate", "test ! -e $FOLDER/broken")
    (node.folder / "broken").touch()
    with looping(node):
        assert node.failed("gate") == "lost"
        (node.folder / "broken").unlink()
        time_passes(node, lambda: node.updates == [f"update nodename=cpu-0 {extra()}"])


def test_what_failed_before_is_not_forgotten_when_a_check_fails_at_the_start(node: Node) -> None:
    node.knows(IDLE.replace("IDLE", "IDLE+DRAIN") + '{"seltzer-checks":{"gate":"lost","gpu":"broken"}}')
    node.check("gate", "true")
    node.check("gpu", "true", when="start")
    node.check("disk", "echo full; false", when="start")
    started(node, "CPUs=4")
    assert node.updates == [f"update nodename=cpu-0 {extra(gate='lost', disk='full')}"]


def test_changed_checks_are_taken_over_without_a_restart(node: Node) -> None:
    (node.mount / "..data").symlink_to("one")
    node.check("old", "echo full; false", when="interval")
    with looping(node):
        time_passes(node, lambda: node.failed("old"))
        (node.mount / "list").write_text("")
        (node.mount / "check.old").unlink()
        node.check("new", "echo also full; false", when="interval")
        (node.mount / "..new").symlink_to("two")
        (node.mount / "..new").rename(node.mount / "..data")
        until(lambda: not node.failed("old"))
        time_passes(node, lambda: node.failed("new"))
        until(lambda: extra(new="also full") in (node.updates or [""])[-1])


# --- a file system that hangs -----------------------------------------------------------------------------------------


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system whose server takes questions and never answers: who asks can't be killed."""
    path = tmp_path / "hung"
    path.mkdir()
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no FUSE here: {errno.errorcode[error.errno or 0]}")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    subprocess.run(["mount", "-i", "-t", "fuse", "-o", options, "hung", str(path)], pass_fds=[device], check=True)
    serving = threading.Thread(target=_serve, args=(device,), daemon=True)
    serving.start()
    yield path
    subprocess.run(["umount", "--force", "--lazy", str(path)], check=False)
    os.close(device)


def _serve(device: int) -> None:
    """Answer the first question, FUSE_INIT, and no other."""
    with contextlib.suppress(OSError):
        while True:
            question = os.read(device, 1 << 20)
            _, opcode, unique = struct.unpack_from("=IIQ", question)
            if opcode == 26:
                major, minor = struct.unpack_from("=II", question, 40)
                answer = struct.pack("=IIIIHHIIHHI28x", major, minor, 0, 0, 0, 0, 1 << 17, 1, 0, 0, 0)
                os.write(device, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)


def test_a_hung_mount_is_named_and_who_hangs_in_it_isnt_waited_for(node: Node, hung: Path) -> None:
    node.check("mounts", f"check_mounts {hung}")
    assert node.run("before").returncode == 1
    assert node.failed("mounts") == f"{hung} doesn't answer"


def test_a_check_that_cant_even_be_killed_fails_and_isnt_started_again(node: Node, hung: Path) -> None:
    node.check("looks", f"echo run >>$FOLDER/runs; stat -f {hung} & stat -f {hung}", timeout=1)
    assert node.run("before").returncode == 1
    assert "no result after 1 s" in node.failed("looks")
    if (node.state / "hung.looks").exists():
        assert node.run("before").returncode == 1
        assert (node.folder / "runs").read_text() == "run\n"
