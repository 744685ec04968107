"""Slurm's commands beside slurmctld: what they print is understood, and none is waited for without end."""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.programs import write_program

from seltzer.guard.processes import Processes
from seltzer.guard.recovery import slurm as recovery_slurm
from seltzer.guard.recovery.slurm import DUPLICATE, Cancelled, Rest, SlurmCommands, SlurmError
from seltzer.guard.settings import Places
from seltzer.guard.wake import Waker
from seltzer.wire.squeue import PendingJob, QueueEntry

# Answers as slurmrestd does: what it refuses it tells twice, and then it has gone.
SLURMRESTD = """
import json, sys
while True:
    length = 0
    while (line := sys.stdin.buffer.readline()) not in (b"\\r\\n", b""):
        if line.lower().startswith(b"content-length"):
            length = int(line.split(b":")[1])
    if not line:
        break
    job = json.loads(sys.stdin.buffer.read(length))["job"]
    number = {1: 2011, 2: 2040, 3: 1800, 4: "ESLURM"}.get(job["job_id"], 0)
    errors = [{"error": "no", "error_number": number}] if number else []
    body = json.dumps({"job_id": job["job_id"], "errors": errors}).encode()
    status = b"422 UNPROCESSABLE CONTENT" if number else b"200 OK"
    answer = b"HTTP/1.1 %b\\r\\nContent-Length: %d\\r\\n\\r\\n%b" % (status, len(body), body)
    sys.stdout.buffer.write(answer * (2 if number else 1))
    sys.stdout.flush()
    if number:
        break
"""


def command(folder: Path, name: str, script: str, shell: str = "/bin/sh") -> str:
    return str(write_program(folder / name, f"#!{shell}\n{script}"))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return dataclasses.replace(
        Places(),
        etc=tmp_path,
        squeue=command(tmp_path, "squeue", "printf '12|N/A|12|RUNNING|1000|5\\n20|3|24|PENDING|1001|0\\nnonsense\\n'"),
        scontrol=command(tmp_path, "scontrol", f'echo "$@" >> {tmp_path}/said'),
        scancel=command(tmp_path, "scancel", "echo 'scancel: error: Kill job error' >&2; exit 1"),
        slurmrestd=command(tmp_path, "slurmrestd", SLURMRESTD, sys.executable),
    )


@pytest.fixture
def slurm(places: Places) -> Iterator[SlurmCommands]:
    slurm = SlurmCommands(places, Processes(), time.monotonic() + 3600)
    yield slurm
    slurm.cancel()


def test_the_queue_is_read_and_what_makes_no_sense_is_left_out(slurm: SlurmCommands) -> None:
    assert slurm.queue() == [
        QueueEntry(12, "", 12, "RUNNING", 1000, held=False),
        QueueEntry(20, "3", 24, "PENDING", 1001, held=True),
    ]


SINFO = """case $* in
  *--dead*) echo "$DEAD" ;;
  *--responding*3*) echo n3; echo n3 ;;
esac"""


@pytest.mark.parametrize(("dead", "silent"), [("n[1-2]", True), ("", False)])
def test_whether_any_node_is_silent(places: Places, tmp_path: Path, dead: str, silent: bool) -> None:
    sinfo = command(tmp_path, "sinfo", f"DEAD={dead}\n{SINFO}")
    slurm = SlurmCommands(dataclasses.replace(places, sinfo=sinfo), Processes(), time.monotonic() + 3600)
    assert slurm.has_silent_nodes() is silent


@pytest.mark.parametrize(("hostlist", "silent"), [
    ("n3", set()),
    ("n[2-3],gone", {"n2", "gone"}),
    ("n1", {"n1"}),
])  # fmt: skip
def test_nodes_that_do_not_respond_or_are_not_known_are_silent(
    places: Places, tmp_path: Path, hostlist: str, silent: set[str]
) -> None:
    names = {"n[2-3],gone": "n2\nn3\ngone"}.get(hostlist, hostlist)
    scontrol = command(tmp_path, "scontrol", f"echo '{names}'")
    some = dataclasses.replace(places, sinfo=command(tmp_path, "sinfo", SINFO), scontrol=scontrol)
    slurm = SlurmCommands(some, Processes(), time.monotonic() + 3600)
    assert slurm.silent_nodes(hostlist) == silent


def test_what_is_no_list_of_nodes_is_an_error(places: Places, tmp_path: Path) -> None:
    scontrol = command(tmp_path, "scontrol", "echo 'Invalid hostlist: n[1' >&2")
    slurm = SlurmCommands(dataclasses.replace(places, scontrol=scontrol), Processes(), time.monotonic() + 3600)
    with pytest.raises(SlurmError, match="not a list of nodes"):
        slurm.silent_nodes("n[1")


def test_many_are_held_with_few_commands_and_told_why(slurm: SlurmCommands, tmp_path: Path) -> None:
    slurm.hold([str(job) for job in range(250)], "it had started")
    said = (tmp_path / "said").read_text().splitlines()
    assert [line.split()[0] for line in said] == ["uhold", "update"] * 2
    assert said[1].endswith("AdminComment=it had started")


COMMANDS: dict[str, Callable[[SlurmCommands, list[str]], None]] = {
    "delay": lambda slurm, names: slurm.delay(names),
    "start now": lambda slurm, names: slurm.start_now(names),
    "requeue": lambda slurm, names: slurm.requeue([int(name) for name in names]),
    "hold": lambda slurm, names: slurm.hold(names, "it had started"),
    "release": lambda slurm, names: slurm.release(names),
    "cancel": lambda slurm, names: slurm.cancel_jobs(names),
    "complete": lambda slurm, names: slurm.complete({int(name): 256 for name in names}),
    "never requeue": lambda slurm, names: slurm.never_requeue(names),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_part_that_is_refused_prevents_no_other_part(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    job = "case ,$(echo $* | tr ' =:' ,), in *,%s,*) echo 'error: job %s' >&2; exit 1 ;; esac\n"
    refuses = command(tmp_path, "refuses", f'echo "$@" >> {tmp_path}/said\n' + job % (300, 300) + job % (500, 500))
    version = command(tmp_path, "slurmctld", "echo slurm 26.05.5")
    monkeypatch.setattr(sys, "executable", refuses)
    other = dataclasses.replace(places, scontrol=refuses, scancel=refuses, slurmctld=(version,))
    slurm = SlurmCommands(other, Processes(), time.monotonic() + 3600)
    with pytest.raises(SlurmError, match="job 300"):
        COMMANDS[name](slurm, [str(job) for job in range(100, 900)])
    asked = [re.findall(r"\b[1-8]\d\d\b", line) for line in (tmp_path / "said").read_text().splitlines()]
    firsts = [numbers[0] for numbers in asked]
    wanted = ["100", "300", "500", "700"]
    assert firsts == (sorted(wanted * 2) if name == "hold" else wanted), "what is held needs its reason"


def test_what_a_command_complains_about_is_reported(slurm: SlurmCommands) -> None:
    with pytest.raises(SlurmError, match="Kill job error"):
        slurm.cancel_jobs(["12"])


def test_jobs_are_put_back_over_one_slurmrestd_until_it_refuses_one(slurm: SlurmCommands) -> None:
    rest = slurm.rest()
    try:
        for job in (7, 8, 9):
            rest.submit({"job_id": job}, "#!/bin/sh\n" * 20_000)
        for job, refused in ((1, True), (2, True), (3, False), (4, False)):
            with pytest.raises(SlurmError) as error:
                rest.submit({"job_id": job}, "")
            assert error.value.refused is refused
            assert (error.value.number == DUPLICATE) is (job == 1)
            rest.submit({"job_id": 10 + job}, "")
    finally:
        rest.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """As when over a thousand nodes are silent, and all of them are asked."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    first = os.open(os.devnull, os.O_RDONLY)
    others = [first]
    while others[-1] < 1100:
        others.append(os.dup(first))
    yield
    for each in others:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("many_files")
def test_jobs_are_put_back_while_many_silent_nodes_are_asked(slurm: SlurmCommands) -> None:
    rest = slurm.rest()
    rest.submit({"job_id": 7}, "#!/bin/sh\n" * 20_000)
    rest.close()


@pytest.mark.usefixtures("many_files")
def test_a_wake_is_heard_however_many_files_are_open() -> None:
    waker = Waker()
    waker.wake()
    waker.wait(3600)  # or the test would never end


@pytest.mark.parametrize("broken", ["exit 1", "echo nonsense", "printf 'HTTP/1.1 200 OK\\r\\n\\r\\n[]'", "sleep 60"])
def test_a_slurmrestd_that_is_broken_is_an_error_in_time(places: Places, tmp_path: Path, broken: str) -> None:
    other = dataclasses.replace(places, slurmrestd=command(tmp_path, "broken", broken))
    rest = SlurmCommands(other, Processes(), time.monotonic() + 0.3).rest()
    with pytest.raises(SlurmError):
        rest.submit({"job_id": 5}, "")
    rest.close()


class Clock:
    """It stands still until it is moved. In place of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(recovery_slurm, "time", made)
    return made


def test_a_submission_that_is_not_answered_leaves_the_time_to_look_into_the_queue(
    places: Places, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(places, slurmrestd=command(tmp_path, "broken", "exec sleep 1000"))
    slurm = SlurmCommands(other, Processes(), 3600.0)

    def silence(rest: Rest, pipe: int, event: int) -> bool:
        """It takes what it is sent, and says nothing for as long as it is waited for."""
        if event == select.POLLIN:
            clock.now += slurm.left_to_submit()
        return event == select.POLLOUT

    monkeypatch.setattr(Rest, "_wait", silence)
    rest = slurm.rest()
    with pytest.raises(SlurmError, match="no answer") as error:
        rest.submit({"job_id": 5}, "")
    assert not error.value.unasked
    with pytest.raises(SlurmError, match="no time left") as error:
        rest.submit({"job_id": 6}, "")
    assert error.value.unasked
    rest.close()
    assert slurm.queue()


def test_a_command_that_hangs_is_ended_at_the_deadline(places: Places, tmp_path: Path, clock: Clock) -> None:
    other = dataclasses.replace(places, squeue=command(tmp_path, "hangs", "exec sleep 1000"))
    slurm = SlurmCommands(other, Processes(), 0.3)
    with pytest.raises(SlurmError, match="in time"):
        slurm.queue()
    clock.now = 0.3
    with pytest.raises(SlurmError, match="no time left"):
        slurm.queue()


def test_a_command_is_not_left_behind_by_an_error_that_comes_right_after_its_start(
    places: Places, tmp_path: Path, clock: Clock
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Slow(Processes):
        def start(self, *args: Any, **named: Any) -> subprocess.Popen[bytes]:
            started.append(super().start(*args, **named))
            clock.now = 0.3
            return started[-1]

    other = dataclasses.replace(places, squeue=command(tmp_path, "hangs", "exec sleep 1000"))
    with pytest.raises(SlurmError, match="no time left"):
        SlurmCommands(other, Slow(), 0.3).queue()
    (process,) = started
    assert process.wait() == -signal.SIGKILL


def test_a_cancel_ends_what_is_under_way(places: Places, tmp_path: Path) -> None:
    other = dataclasses.replace(places, squeue=command(tmp_path, "hangs", "exec sleep 1000"))
    slurm = SlurmCommands(other, Processes(), time.monotonic() + 3600)
    threading.Timer(0.3, slurm.cancel).start()
    with pytest.raises(Cancelled):
        slurm.queue()
    with pytest.raises(Cancelled):
        slurm.left()


def test_pending_jobs_are_read_with_what_a_requeue_needs(places: Places, tmp_path: Path) -> None:
    awaits = "afterok:7(unfulfilled),afterany:9_*"
    line = "".join(f"{value}\x1f" for value in ("12", "1", "2", "2", "N/A", "No", awaits))
    other = "".join(f"{value}\x1f" for value in ("13", "0", "0", "1", "N/A", "Yes", "(null)"))
    het = "".join(f"{value}\x1f" for value in ("14", "1", "0", "1", "14", "No", "(null)"))
    places = dataclasses.replace(places, squeue=command(tmp_path, "squeue", f"printf '{line}\n{other}\n{het}\n'"))
    slurm = SlurmCommands(places, Processes(), time.monotonic() + 3600)
    assert slurm.pending() == {
        12: PendingJob(12, may_requeue=True, restarts=2, awaits=frozenset({7, 9})),
        13: PendingJob(13, may_requeue=False, restarts=0, awaits=frozenset(), from_crontab=True),
        14: PendingJob(14, may_requeue=False, restarts=0, awaits=frozenset()),
    }


def test_a_crontab_is_saved_as_it_is(places: Places, tmp_path: Path) -> None:
    (tmp_path / "crontab").write_bytes(b"@daily caf\xe9\n")
    script = f'[ "$3" = -l ] && exec cat {tmp_path}/crontab; cp "$3" {tmp_path}/of"$1$2"'
    places = dataclasses.replace(places, scrontab=command(tmp_path, "scrontab", script))
    slurm = SlurmCommands(places, Processes(), time.monotonic() + 3600)
    slurm.save_crontab_again(1000)
    assert (tmp_path / "of-u1000").read_bytes() == b"@daily caf\xe9\n"


def test_half_a_list_of_pending_jobs_is_no_list(slurm: SlurmCommands) -> None:
    with pytest.raises(SlurmError, match="makes no sense"):
        slurm.pending()


@pytest.mark.parametrize(("conf", "requeues"), [
    ("", True),
    ("JobRequeue=0\n", False),
    ("jobrequeue = 0\nJobRequeue=1\n", True),
    ("#JobRequeue=0\n", True),
])  # fmt: skip
def test_whether_jobs_are_requeued_by_default(slurm: SlurmCommands, tmp_path: Path, conf: str, requeues: bool) -> None:
    assert not slurm.requeues_by_default(), "unknown is no"
    (tmp_path / "seltzer.local.conf").write_text(conf)
    assert slurm.requeues_by_default() is requeues


def test_requeued_jobs_start_late_until_they_are_told_otherwise(slurm: SlurmCommands, tmp_path: Path) -> None:
    slurm.delay(["12", "20_1"])
    slurm.start_now(["12"])
    assert (tmp_path / "said").read_text().splitlines() == [
        "update JobId=12,20_1 StartTime=now+600",
        "update JobId=12 StartTime=now",
    ]


def test_another_slurm_requeues_no_pending_job(places: Places, tmp_path: Path) -> None:
    places = dataclasses.replace(places, slurmctld=(command(tmp_path, "slurmctld", "echo slurm 25.11.1"),))
    with pytest.raises(SlurmError, match=r"only Slurm 26\.05"):
        SlurmCommands(places, Processes(), time.monotonic() + 3600).requeue([12])
