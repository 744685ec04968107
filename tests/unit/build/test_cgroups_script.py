"""What precedes slurmd's start script with `cgroups: v2`, on files that look like cgroups."""

from __future__ import annotations

import subprocess
from importlib import resources
from pathlib import Path

import pytest

SCRIPT = resources.files("seltzer.build").joinpath("cgroups.sh").read_text()
ALL = "cpuset cpu io memory hugetlb pids rdma misc"


class Container:
    """A folder in place of /sys/fs/cgroup, and a mountinfo about it."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "cgroup"
        self._mounts = folder / "mountinfo"
        self.tree.mkdir()
        self.write("cgroup.controllers", ALL)
        self.write("cgroup.procs", "1\n17")
        self.write("cgroup.subtree_control", "")
        self.mount()

    def write(self, name: str, text: str) -> None:
        (self.tree / name).write_text(f"{text}\n")

    def mount(
        self, mode: str = "rw", kind: str = "cgroup2", options: str = "rw,nsdelegate,memory_recursiveprot"
    ) -> None:
        line = f"475 337 0:28 / {self.tree} {mode},nosuid,noexec,relatime master:3 - {kind} cgroup {options}\n"
        other = f"476 337 0:29 / {self.tree}/other ro - tmpfs tmpfs rw\n"
        self._mounts.write_text(f"1 0 0:1 / / rw - overlay overlay rw\n{line}{other}")

    def start(self) -> subprocess.CompletedProcess[str]:
        script = SCRIPT.replace("/sys/fs/cgroup", str(self.tree)).replace("/proc/self/mountinfo", str(self._mounts))
        script = script.replace("sleep 0.1", ":")
        words = ["bash", "-c", f"{script}\necho slurmd starts"]
        return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def test_controllers_are_handed_down(container: Container) -> None:
    done = container.start()
    assert done.stdout == "slurmd starts\n", done
    assert (container.tree / "cgroup.subtree_control").read_text() == "+cpu +cpuset +memory +pids\n"


def test_all_processes_leave_the_container_itself(container: Container) -> None:
    container.start()
    # The kernel takes one at a time; of a file the last one is left.
    assert (container.tree / "seltzer/cgroup.procs").read_text() == "17\n"


def test_out_of_memory_does_not_end_the_whole_container(container: Container) -> None:
    container.write("memory.oom.group", "1")
    container.start()
    assert (container.tree / "memory.oom.group").read_text() == "0\n"


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ({"kind": "tmpfs"}, "Version1: "),
        ({"mode": "ro"}, "ReadOnly: "),
        ({"options": "rw"}, "NoDelegation: "),
        ({"options": "rw,memory_recursiveprot"}, "NoDelegation: "),
    ],
)
def test_without_cgroups_slurmd_does_not_start(container: Container, mount: dict[str, str], said: str) -> None:
    container.mount(**mount)
    done = container.start()
    assert done.returncode == 1
    assert done.stdout.startswith(f"seltzer: cgroups: {said}"), done
    assert "slurmd starts" not in done.stdout
    assert not (container.tree / "cgroup.subtree_control").read_text().strip()


def test_what_is_mounted_last_counts(container: Container) -> None:
    mounts = container._mounts.read_text()
    container.mount(mode="ro")
    container._mounts.write_text(mounts + container._mounts.read_text())
    assert container.start().stdout.startswith("seltzer: cgroups: ReadOnly: ")


@pytest.mark.parametrize("missing", ["cpu", "cpuset", "memory", "pids"])
def test_each_controller_is_needed(container: Container, missing: str) -> None:
    container.write("cgroup.controllers", " ".join(each for each in ALL.split() if each != missing))
    done = container.start()
    assert done.stdout.startswith("seltzer: cgroups: NoControllers: "), done
    assert f"no controller {missing}, only: " in done.stdout


def test_a_container_that_stays_busy_says_so(container: Container) -> None:
    (container.tree / "cgroup.subtree_control").unlink()
    (container.tree / "cgroup.subtree_control").mkdir()  # can't be written, as while a process is there
    done = container.start()
    assert done.stdout.startswith("seltzer: cgroups: NoControllers: "), done
    assert "can't hand its controllers down" in done.stdout
