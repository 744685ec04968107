"""The cgroups of a sandbox, one per node: they freeze a node, and they find all its processes.

Supports the unified hierarchy (v2) and one hierarchy per controller (v1). A sandbox has one folder below the root of
each hierarchy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from seltzer.errors import SeltzerError

ROOT = Path("/sys/fs/cgroup")
KILL_DEADLINE = 10.0
REMOVE_DEADLINE = 5.0
FREEZE_DEADLINE = 5.0
_NEEDED = {"cpu", "cpuset", "memory", "pids"}  # the kubelet exits without them


def hierarchies(mountinfo: str) -> tuple[Path, ...]:
    """The mount points of the hierarchies that Kubernetes uses: the unified one alone, or those of v1 first."""
    first: list[Path] = []
    unified: list[Path] = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, point = after.split()[0], Path(before.split()[4])
        if kind == "cgroup":
            first.append(point)
        elif kind == "cgroup2":
            unified.append(point)
    if ROOT in unified:
        return (ROOT,)  # Kubernetes ignores a v1 hierarchy beside it, such as VPN programs mount
    # Beside v1 hierarchies a v2 hierarchy has no controllers, but runc creates cgroups in it too.
    return tuple(dict.fromkeys(first + unified))


class Cgroups:
    """The cgroups of one sandbox, by their paths below its own folder: "hub", "n1", "n1/sys"."""

    def __init__(self, name: str, mounts: tuple[Path, ...] | None = None) -> None:
        self.name = name
        self._mounts = mounts if mounts is not None else hierarchies(Path("/proc/self/mountinfo").read_text())
        if not self._mounts:
            raise SeltzerError("this machine has no cgroups mounted at /sys/fs/cgroup; mount them and try again")
        self.unified = (self._mounts[0] / "cgroup.controllers").exists()  # the first is v2, so there is no v1

    def create(self, path: str) -> None:
        """Create the cgroup in every hierarchy, with all controllers of its parents."""
        for mount in self._mounts:
            above = mount
            for part in (self.name, *path.split("/")):
                self._hand_down(above)
                (above / part).mkdir(exist_ok=True)
                above = above / part
                self._inherit_cpuset(above)
            self._check_controllers(above)

    def _hand_down(self, above: Path) -> None:
        """v2: children have only the controllers that their parent enables for them."""
        if not self.unified:
            return
        for controller in (above / "cgroup.controllers").read_text().split():
            # Some controllers (rdma, misc) can't always be enabled; Kubernetes doesn't need them.
            with contextlib.suppress(OSError):
                (above / "cgroup.subtree_control").write_text(f"+{controller}")

    def _check_controllers(self, here: Path) -> None:
        """v2: in a container the root cgroup may contain processes, and then enables no controllers for children."""
        if self.unified and (missing := _NEEDED - set((here / "cgroup.controllers").read_text().split())):
            raise SeltzerError(
                f"this machine's cgroups don't give us the controllers {', '.join(sorted(missing))}; "
                "run the sandbox on a machine of its own, not inside a container"
            )

    def _inherit_cpuset(self, here: Path) -> None:
        """v1: a new cpuset is empty, and no process can run in it."""
        for name in ("cpuset.cpus", "cpuset.mems"):
            file = here / name
            if not self.unified and file.exists() and not file.read_text().strip():
                file.write_text((here.parent / name).read_text())

    def join_files(self, path: str) -> tuple[Path, ...]:
        """Files into which a process writes 0 to move itself into the cgroup."""
        return tuple(mount / self.name / path / "cgroup.procs" for mount in self._mounts)

    def freeze(self, path: str, frozen: bool) -> None:
        """Freeze or thaw every process in the cgroup and below it; returns when the kernel confirms it."""
        file, words = self._freezer(path)
        file.write_text(words[frozen])
        deadline = time.monotonic() + FREEZE_DEADLINE
        while not self._settled(file, frozen):
            if time.monotonic() > deadline:
                file.write_text(words[False])  # don't leave a node partly frozen
                raise SeltzerError(f"the kernel did not {'freeze' if frozen else 'thaw'} {file.parent} within 5 s")
            time.sleep(0.01)

    def frozen(self, path: str) -> bool:
        """Whether the cgroup is frozen or freezing."""
        try:
            file, words = self._freezer(path)
            return file.read_text().strip() != words[False]
        except (FileNotFoundError, SeltzerError):
            return False

    def _settled(self, file: Path, frozen: bool) -> bool:
        if self.unified:
            return f"frozen {frozen:d}" in (file.parent / "cgroup.events").read_text()
        return file.read_text().strip() == ("FROZEN" if frozen else "THAWED")

    def _freezer(self, path: str) -> tuple[Path, tuple[str, str]]:
        if self.unified:
            return self._mounts[0] / self.name / path / "cgroup.freeze", ("0", "1")
        for mount in self._mounts:
            file = mount / self.name / path / "freezer.state"
            if file.exists() or mount.name == "freezer":
                return file, ("THAWED", "FROZEN")
        raise SeltzerError("this machine has no freezer cgroup, which 'node freeze' needs")

    def kill(self, path: str = "") -> None:
        """Kill every process in the cgroup and below it: membership proves that a process belongs to the sandbox.

        This includes processes without a record: a command may be killed after it starts a process and before it
        writes the record.
        """
        deadline = time.monotonic() + KILL_DEADLINE
        while processes := self._processes(path):
            if time.monotonic() > deadline:
                raise SeltzerError(f"processes of the sandbox would not end: {sorted(processes)}")
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)

    def _processes(self, path: str) -> set[int]:
        found: set[int] = set()
        for file in (self._mounts[0] / self.name / path).rglob("cgroup.procs"):
            with contextlib.suppress(FileNotFoundError, OSError):
                found |= {int(line) for line in file.read_text().split()}
        return found - {0, os.getpid()}

    def exists(self) -> bool:
        return any((mount / self.name).exists() for mount in self._mounts)

    def remove(self, path: str = "") -> None:
        """Remove the cgroup and all below it; waits for processes that are exiting."""
        deadline = time.monotonic() + REMOVE_DEADLINE
        for mount in self._mounts:
            top = mount / self.name / path
            while top.exists() and not _remove_tree(top):
                if time.monotonic() > deadline:
                    raise SeltzerError(f"processes are still running in {top}; see its cgroup.procs")
                time.sleep(0.02)


def _remove_tree(top: Path) -> bool:
    """Remove from the bottom up; returns whether everything is gone."""
    try:
        children = [entry for entry in top.iterdir() if entry.is_dir()]
        if not all([_remove_tree(child) for child in children]):
            return False
        top.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
