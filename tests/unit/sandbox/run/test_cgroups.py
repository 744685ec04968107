"""Cgroups are made, frozen and removed as the kernel wants it, with v1 hierarchies and with the unified one."""

from __future__ import annotations

import errno
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seltzer.errors import SeltzerError
from seltzer_sandbox.run import cgroups
from seltzer_sandbox.run.cgroups import Cgroups, hierarchies

V1 = """\
25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw
31 25 0:28 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 master:3 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/freezer rw,nosuid - cgroup cgroup rw,freezer
35 31 0:32 / /sys/fs/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd
"""
V2_LINE = "32 31 0:29 / {} rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
FIRST = (Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup/systemd"))


@pytest.mark.parametrize(
    ("mountinfo", "found"),
    [
        (V1, FIRST),
        (V2_LINE.format("/sys/fs/cgroup/unified") + V1, (*FIRST, Path("/sys/fs/cgroup/unified"))),
        (V2_LINE.format("/sys/fs/cgroup"), (Path("/sys/fs/cgroup"),)),
        (V1 + V1, FIRST),
        ("25 30 0:23 / /cgroup rw - ext4 /dev/cgroup rw\n", ()),
        ("", ()),
    ],
    ids=["v1", "hybrid", "v2", "mounted over itself", "only by name", "nothing"],
)
def test_hierarchies_are_found_those_of_v1_first(mountinfo: str, found: tuple[Path, ...]) -> None:
    assert hierarchies(mountinfo) == found


def test_a_machine_without_cgroups_is_told_so() -> None:
    with pytest.raises(SeltzerError, match="no cgroups mounted"):
        Cgroups("seltzer-some", ())


class Kernel:
    """Folders that behave like cgroups as far as we use them, and a clock that runs only while somebody sleeps."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.now = 0.0
        self.slow = 0.0  # how long it takes to freeze
        self.leave: dict[Path, float] = {}  # when the processes of a cgroup are gone
        self.stubborn = {"rdma"}  # controllers that can't be handed down
        self._freezing: dict[Path, tuple[float, str]] = {}
        self._mkdir, self._write, self._read, self._rmdir = Path.mkdir, Path.write_text, Path.read_text, Path.rmdir
        for name in ("mkdir", "write_text", "read_text", "rmdir"):
            monkeypatch.setattr(Path, name, self._instead_of(name))
        monkeypatch.setattr(cgroups, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def mount(self, name: str, **files: str) -> Path:
        mount = self.folder / name
        self._mkdir(mount)
        for file, content in files.items():
            self._write(mount / file.replace("_", ".", 1), content)
        return mount

    def _instead_of(self, name: str) -> Any:
        real, ours = getattr(Path, name), getattr(self, f"_on_{name}")

        def call(path: Path, *arguments: Any, **named: Any) -> Any:
            if path.is_relative_to(self.folder):
                return ours(path, *arguments, **named)
            return real(path, *arguments, **named)

        return call

    def _on_mkdir(self, path: Path, exist_ok: bool = False) -> None:
        if path.exists() and exist_ok:
            return
        self._mkdir(path)
        above = path.parent
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (above / name).exists():
                self._write(path / name, "\n")
        if (above / "freezer.state").exists() or above.name == "freezer":
            self._write(path / "freezer.state", "THAWED\n")
        if (above / "cgroup.controllers").exists():
            self._write(path / "cgroup.controllers", self._read(above / "cgroup.subtree_control"))
            self._write(path / "cgroup.subtree_control", "")
            self._write(path / "cgroup.events", "populated 0\nfrozen 0\n")
            self._write(path / "cgroup.freeze", "0\n")

    def _on_write_text(self, path: Path, text: str) -> None:
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        if path.name == "cgroup.subtree_control":
            controller = text.strip().removeprefix("+")
            if controller in self.stubborn or controller not in self._read(path.parent / "cgroup.controllers").split():
                raise OSError(errno.EINVAL, "Invalid argument")
            text = " ".join(sorted({*self._read(path).split(), controller}))
        if path.name.startswith("cpuset.") and not text.strip():
            raise OSError(errno.EINVAL, "Invalid argument")
        if path.name == "cgroup.freeze":
            self._freezing[path.parent / "cgroup.events"] = (self.now + self.slow, f"populated 1\nfrozen {text}\n")
        if path.name == "freezer.state":
            self._freezing[path] = (self.now + self.slow, text)
            text = "FREEZING" if text == "FROZEN" else self._read(path)
        self._write(path, text)

    def _on_read_text(self, path: Path) -> str:
        when, then = self._freezing.get(path, (0.0, None))
        if then is not None and self.now >= when:
            self._write(path, then)
        return self._read(path)

    def _on_rmdir(self, path: Path) -> None:
        if any(entry.is_dir() for entry in path.iterdir()) or self.now < self.leave.get(path, 0.0):
            raise OSError(errno.EBUSY, "Device or resource busy")
        for file in path.iterdir():
            file.unlink()
        self._rmdir(path)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


def first(kernel: Kernel) -> tuple[Cgroups, tuple[Path, ...]]:
    """A sandbox's cgroups on a machine with v1 hierarchies, and where those are."""
    mounts = (
        kernel.mount("cpu,cpuacct"),
        kernel.mount("cpuset", cpuset_cpus="0-3\n", cpuset_mems="0\n"),
        kernel.mount("freezer"),
    )
    return Cgroups("seltzer-some", mounts), mounts


def unified(kernel: Kernel) -> tuple[Cgroups, Path]:
    mount = kernel.mount("unified", cgroup_controllers="cpuset cpu io memory pids rdma\n", cgroup_subtree_control="")
    return Cgroups("seltzer-some", (mount,)), mount


def test_v1_a_cgroup_is_made_in_every_hierarchy(kernel: Kernel) -> None:
    some, mounts = first(kernel)
    some.create("n1/sys")
    assert all((mount / "seltzer-some/n1/sys").is_dir() for mount in mounts)
    assert some.join_files("n1/sys") == tuple(mount / "seltzer-some/n1/sys/cgroup.procs" for mount in mounts)


def test_v1_a_cpuset_is_inherited_at_every_level(kernel: Kernel) -> None:
    some, (_, cpuset, _) = first(kernel)
    some.create("n1/sys")
    for level in ("seltzer-some", "seltzer-some/n1", "seltzer-some/n1/sys"):
        assert (cpuset / level / "cpuset.cpus").read_text() == "0-3\n"
        assert (cpuset / level / "cpuset.mems").read_text() == "0\n"


def test_v1_a_cpuset_that_somebody_narrowed_stays_as_it_is(kernel: Kernel) -> None:
    some, (_, cpuset, _) = first(kernel)
    some.create("n1")
    (cpuset / "seltzer-some/n1/cpuset.cpus").write_text("2")
    some.create("n1/sys")
    assert (cpuset / "seltzer-some/n1/cpuset.cpus").read_text() == "2"
    assert (cpuset / "seltzer-some/n1/sys/cpuset.cpus").read_text() == "2"


def test_v2_controllers_are_handed_down_to_where_processes_are_and_no_further(kernel: Kernel) -> None:
    some, mount = unified(kernel)
    some.create("n1/sys")
    most = {"cpuset", "cpu", "io", "memory", "pids"}
    for level in ("seltzer-some", "seltzer-some/n1", "seltzer-some/n1/sys"):
        assert set((mount / level / "cgroup.controllers").read_text().split()) == most
    # A cgroup that hands down controllers can't have processes of its own.
    assert (mount / "seltzer-some/n1/sys/cgroup.subtree_control").read_text() == ""


def test_v2_one_controller_that_cannot_be_handed_down_does_not_keep_the_others(kernel: Kernel) -> None:
    some, mount = unified(kernel)
    kernel.stubborn = {"rdma", "io"}
    some.create("hub")
    handed_down = set((mount / "seltzer-some/hub/cgroup.controllers").read_text().split())
    assert handed_down == {"cpu", "cpuset", "memory", "pids"}


def test_v2_without_a_controller_that_the_kubelet_needs_is_refused(kernel: Kernel) -> None:
    some, _ = unified(kernel)
    kernel.stubborn = {"cpuset", "io"}
    with pytest.raises(SeltzerError, match="don't give us the controllers cpuset"):
        some.create("hub")


def test_killing_ends_what_is_in_the_cgroup_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The deadline never comes, however long the thread below takes.
    monkeypatch.setattr(cgroups, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=time.sleep))
    some = Cgroups("seltzer-some", (tmp_path,))
    inside, outside = subprocess.Popen(["sleep", "infinity"]), subprocess.Popen(["sleep", "infinity"])
    files = {process: some.join_files(f"{node}/sys")[0] for process, node in ((inside, "n1"), (outside, "n2"))}
    for process, file in files.items():
        file.parent.mkdir(parents=True)
        file.write_text(f"{process.pid}\n")
    try:
        # The real kernel takes a process out when it is gone.
        gone = threading.Thread(target=lambda: (inside.wait(), files[inside].write_text("")))
        gone.start()
        some.kill("n1")
        gone.join()
        assert inside.returncode == -signal.SIGKILL
        assert outside.poll() is None
    finally:
        inside.kill()
        outside.kill()
        outside.wait()


@pytest.mark.parametrize("make", [first, unified], ids=["v1", "v2"])
def test_making_a_cgroup_twice_is_making_it_once(kernel: Kernel, make: Any) -> None:
    some, _ = make(kernel)
    some.create("n1/sys")
    before = {path: path.read_text() for path in kernel.folder.rglob("*") if path.is_file()}
    some.create("n1/sys")
    assert {path: path.read_text() for path in kernel.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("make", [first, unified], ids=["v1", "v2"])
def test_freezing_ends_when_the_kernel_says_that_it_is_done(kernel: Kernel, make: Any) -> None:
    some, _ = make(kernel)
    some.create("n1/sys")
    some.create("n2/sys")
    assert not some.frozen("n1")
    kernel.slow = 0.5
    some.freeze("n1", True)
    assert some.frozen("n1")
    assert not some.frozen("n2")
    assert kernel.now >= 0.5
    some.freeze("n1", False)
    assert not some.frozen("n1")


def test_the_freezers_files_are_those_of_the_kernel(kernel: Kernel) -> None:
    some, mounts = first(kernel)
    some.create("n1")
    some.freeze("n1", True)
    assert (mounts[2] / "seltzer-some/n1/freezer.state").read_text() == "FROZEN"
    other, mount = unified(kernel)
    other.create("n1")
    other.freeze("n1", True)
    assert (mount / "seltzer-some/n1/cgroup.freeze").read_text() == "1"


@pytest.mark.parametrize("make", [first, unified], ids=["v1", "v2"])
def test_a_kernel_that_does_not_freeze_in_time_is_an_error(kernel: Kernel, make: Any) -> None:
    some, _ = make(kernel)
    some.create("n1")
    kernel.slow = 3600
    with pytest.raises(SeltzerError, match=r"did not freeze .*/seltzer-some/n1 within"):
        some.freeze("n1", True)
    assert kernel.now < 60


@pytest.mark.parametrize("make", [first, unified], ids=["v1", "v2"])
def test_what_is_not_there_is_not_frozen(kernel: Kernel, make: Any) -> None:
    some, _ = make(kernel)
    assert not some.frozen("n1")


def test_freezing_without_a_freezer_says_what_is_missing(kernel: Kernel) -> None:
    some = Cgroups("seltzer-some", (kernel.mount("cpu"),))
    some.create("n1")
    with pytest.raises(SeltzerError, match="no freezer cgroup"):
        some.freeze("n1", True)


@pytest.mark.parametrize("make", [first, unified], ids=["v1", "v2"])
def test_removing_goes_from_the_bottom_up_and_touches_nobody_else(kernel: Kernel, make: Any) -> None:
    some, _ = make(kernel)
    mounts = [file.parent.parent for file in some.join_files("")]
    for path in ("n1/sys", "n1/kubepods/burstable/pod1", "n2/sys", "hub"):
        some.create(path)
    for mount in mounts:
        (mount / "seltzer-some2").mkdir()
    some.remove("n1")
    for mount in mounts:
        assert {entry.name for entry in (mount / "seltzer-some").iterdir() if entry.is_dir()} == {"n2", "hub"}
    some.remove()
    assert not some.exists()
    assert all((mount / "seltzer-some2").exists() for mount in mounts)
    some.remove()  # nothing there: nothing to do


def test_removing_waits_for_processes_that_are_on_their_way_out(kernel: Kernel) -> None:
    some, mounts = first(kernel)
    some.create("n1/sys")
    for mount in mounts:
        kernel.leave[mount / "seltzer-some/n1/sys"] = 1.0
    assert some.exists()
    some.remove()
    assert not some.exists()
    assert kernel.now >= 1.0


def test_removing_gives_up_on_processes_that_stay_and_names_their_cgroup(kernel: Kernel) -> None:
    some, mount = unified(kernel)
    for number in range(1, 8):
        some.create(f"n{number}/sys")
    kernel.leave[mount / "seltzer-some/n4/sys"] = 3600
    with pytest.raises(SeltzerError, match=r"still running in .*/seltzer-some"):
        some.remove()
    assert kernel.now < 60
    left = {entry.name for entry in (mount / "seltzer-some").iterdir() if entry.is_dir()}
    assert left == {"n4"}, "one that stays keeps no other"
