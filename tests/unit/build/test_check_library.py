"""The checks that NodeSets can use, each made to fail. Hung mounts are in test_check_runner."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

LIBRARY = resources.files("seltzer.build").joinpath("check_library.sh").read_text()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def program(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/bash\n{script}\n")
    (programs / name).chmod(0o755)


def run(check: str, programs: Path | None = None, library: str = LIBRARY, **env: str) -> str:
    """What a check prints when it fails; empty if it passes."""
    path = f"{programs}:{os.environ['PATH']}" if programs else os.environ["PATH"]
    words = ["bash", "-c", f"{library}\n{check}"]
    answer = subprocess.run(words, env={"PATH": path, **env}, capture_output=True, text=True, check=False)
    assert bool(answer.returncode) == bool(answer.stdout), answer
    return answer.stdout.rstrip("\n")


# --- disk -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 10 MiB and 100 inodes."""
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10M,nr_inodes=100", "tmpfs", str(path)], check=True)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_disk_with_space_passes(disk: Path) -> None:
    assert run(f"check_disk {disk}") == ""
    assert run(f"check_disk {disk}=9M {disk}=90%") == ""


def test_a_full_disk_fails_in_percent_and_in_size(disk: Path) -> None:
    (disk / "file").write_bytes(bytes(10 * 1024**2 - 300_000))
    assert run(f"check_disk {disk}") == f"{disk} has 2% free, and needs 5%"
    assert run(f"check_disk {disk}=1M") == f"{disk} has 292Ki free, and needs 1M"
    assert run(f"check_disk {disk}=1%") == ""


def test_a_disk_without_inodes_fails(disk: Path) -> None:
    for number in range(97):
        (disk / str(number)).touch()
    assert run(f"check_disk {disk}") == f"{disk} has 2% of its inodes free, and needs 5%"


def test_a_path_that_isnt_there_and_a_size_that_is_none_fail(disk: Path) -> None:
    assert run("check_disk /nowhere") == "/nowhere isn't there"
    assert run(f"check_disk {disk}=much") == "much isn't a size: write 5%, 500M or 20Gi"


# --- mounts -----------------------------------------------------------------------------------------------------------


def test_a_path_that_isnt_mounted_fails(disk: Path, tmp_path: Path) -> None:
    assert run(f"check_mounts {disk}") == ""
    assert run(f"check_mounts {disk} {tmp_path}") == f"nothing is mounted at {tmp_path}"


def test_all_network_file_systems_are_looked_at_by_default(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 0:1 / / rw - overlay overlay rw\n"
        "2 1 0:2 / /gone/nfs rw shared:1 master:2 - nfs4 files:/home rw\n"
        "3 1 0:3 / /gone/with\\040space rw - fuse.sshfs x rw\n"
        "4 1 0:4 / /gone/tmpfs rw - tmpfs tmpfs rw\n"
    )
    said = run("check_mounts", library=LIBRARY.replace("/proc/self/mountinfo", str(table)))
    assert sorted(said.splitlines()) == ["/gone/nfs can't be read", "/gone/with space can't be read"]


# --- clock ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("off", "words"),
    [
        (0, ""),
        (-4, ""),
        (600, "the clock is 600 s behind slurmctld's"),
        (-600, "the clock is 600 s ahead of slurmctld's"),
    ],
)
def test_a_clock_that_is_off_fails(programs: Path, off: int, words: str) -> None:
    now = int(time.time())
    program(programs, "date", f"echo {now}")
    program(programs, "sdiag", f"echo '****'; echo 'sdiag output at Thu Nov 19 18:49:28 2026 ({now + off})'")
    assert run("check_clock", programs) == words
    assert run("check_clock 1000", programs) == ""


def test_a_clock_that_slurmctld_refuses_fails_and_an_unknown_one_doesnt(programs: Path) -> None:
    program(programs, "sdiag", "echo 'sdiag: error: Unable to contact slurm controller'; exit 1")
    assert run("check_clock", programs) == ""
    program(programs, "sdiag", "echo 'Protocol authentication error: credential expired'; exit 1")
    assert run("check_clock", programs).startswith("slurmctld refuses this machine's clock: Protocol")


# --- GPUs -------------------------------------------------------------------------------------------------------------

DEVICES = "/dev/nvidia[0-9]* /dev/dri/renderD[0-9]*"


def gpus(count: int) -> str:
    """The library, where character devices that there are everywhere stand for GPUs."""
    assert DEVICES in LIBRARY
    return LIBRARY.replace(DEVICES, " ".join(("/dev/null", "/dev/zero", "/dev/full")[:count]) or "/dev/nothing")


def test_a_missing_gpu_fails() -> None:
    assert run("check_gpu", library=gpus(0)) == "there are 0 GPUs, and should be 1"
    assert run("check_gpu 3", library=gpus(2)) == "there are 2 GPUs, and should be 3"
    assert run("check_gpu 2", library=gpus(2)) == ""


LISTED = "GPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)"


@pytest.mark.parametrize(
    ("listed", "queried", "says"),
    [
        (f"echo '{LISTED}'", "echo '0, 0, 0\n1, 0, No'", ""),
        (f"echo '{LISTED}'", "echo '0, [N/A], [N/A]\n1, [N/A], [N/A]'", ""),
        (f"echo '{LISTED}'", "echo 'Field is not a valid field'; exit 2", ""),
        ("echo No devices were found; exit 6", "exit 1", "nvidia-smi: No devices were found"),
        (
            "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo 'Unable to determine the device handle: Unknown Error'",
            "exit 1",
            "nvidia-smi knows 1 GPUs, and should know 2: Unable to determine the device handle: Unknown Error",
        ),
        (
            f"echo '{LISTED}'",
            "echo '0, 0, 0\n1, 3, 0'",
            "GPU 1 has 3 memory errors that could not be corrected",
        ),
        (f"echo '{LISTED}'", "echo '0, 0, 1'", "GPU 0 has no spare memory left to replace what is broken"),
        (f"echo '{LISTED}'", "echo '0, 0, Yes'", "GPU 0 has no spare memory left to replace what is broken"),
    ],
)
def test_a_gpu_that_nvidia_smi_finds_broken_fails(programs: Path, listed: str, queried: str, says: str) -> None:
    program(programs, "nvidia-smi", f"if [[ $1 == -L ]]; then {listed}; else {queried}; fi")
    assert run("check_gpu 2", programs, gpus(2)) == says


# --- network ----------------------------------------------------------------------------------------------------------

QUICK = LIBRARY.replace("&& sleep 2", "&& sleep 0.01")


def test_a_name_that_isnt_known_and_a_port_that_is_closed_fail() -> None:
    assert "&& sleep 2" in LIBRARY
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        says = f"localhost accepts no connections at port {port}"
        assert run(f"check_network localhost:{port}", library=QUICK) == says
        listener.listen()
        assert run(f"check_network localhost localhost:{port}", library=QUICK) == ""
        assert run("check_network", library=QUICK, SELTZER_HOST="localhost", SELTZER_PORT=str(port)) == ""
    assert run("check_network a.invalid", library=QUICK) == "the name a.invalid isn't known"
    closed = run("check_network", library=QUICK, SELTZER_HOST="localhost", SELTZER_PORT=str(port))
    assert closed == says
