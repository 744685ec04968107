"""The fence: slurmctld keeps its state in `epoch-N`, and the next guard renames that directory to `epoch-N+1`.

From then on the previous slurmctld, whether cut off, frozen or slow, can neither save nor acknowledge anything: its
path is gone. That needs no clock and no API server. The name is looked up before the Lease is checked: a guard that
sleeps in between and loses the Lease meanwhile finds the name gone. The same holds for what is learned about the state
in between: it is true of the directory that had the name, or of nothing.

Numbers only grow, even when a person decides to continue from an older state. No name is ever used twice.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"epoch-([1-9][0-9]{0,17})")
# Not `.new`: that suffix marks Slurm's half-written files.
_ROLLED_OUT = "seltzer.told"


class Blocked(Exception):
    """The state isn't as the guard would have left it. A person has to look at it."""


class LostRace(Exception):
    """Another guard changed the state first: the Lease isn't ours, or won't be for long."""


@dataclass(frozen=True)
class Epoch:
    """The state directory of this term."""

    path: Path
    number: int
    inode: tuple[int, int]

    def ours(self) -> bool:
        """Whether it still has its name, so that slurmctld can save its state. Raises OSError if that is unknown."""
        try:
            # NFS caches names for half a minute, unless their folder is opened.
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                found = os.stat(self.path.name, dir_fd=folder, follow_symlinks=False)
            finally:
                os.close(folder)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self.inode

    def link(self, link: Path) -> None:
        """Make it StateSaveLocation under a constant name: slurmds complain when slurm.conf differs from theirs.

        It still fences, since the link leads to the epoch's name.
        """
        half = link.with_name(f"{link.name}.half")
        half.unlink(missing_ok=True)
        half.symlink_to(self.path)
        half.rename(link)

    @property
    def rolled_out(self) -> str:
        """The configuration that a reconfigure has spread to all nodes; empty in a new cluster.

        A new cluster needs one reconfigure in any case: until then a crash would leave accounting without a file that
        slurmctld doesn't start without.
        """
        try:
            return (self.path / _ROLLED_OUT).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def set_rolled_out(self, digest: str) -> None:
        half = self.path / f"{_ROLLED_OUT}.half"
        with suppress(OSError):  # then it is spread once more the next time, which is harmless
            half.write_text(digest)
            half.rename(self.path / _ROLLED_OUT)


def begin(
    state: Path,
    leading: Callable[[], bool],
    *,
    check: Callable[[Path | None], object] = lambda found: None,
    above: int = 0,
) -> Epoch:
    """Fence off all previous guards. Raises Blocked, LostRace or OSError, and then nothing was started.

    `leading` says whether we hold the Lease for certain. `check` raises Blocked if we may not continue from the state
    that was found; then nothing was changed. The new number is greater than `above`.
    """
    found = _epochs(state)
    if len(found) > 1:
        names = ", ".join(f"epoch-{number}" for number in found)
        raise Blocked(f"{state} has {names}, but a cluster has one state: keep the right one, move the others away")
    _check(state / f"epoch-{found[0]}" if found else None, check)
    if not leading():
        raise LostRace("the Lease has to be renewed first")
    newest = max([*found, above])
    ours = _rename(state / f"epoch-{found[0]}", newest + 1) if found else _make(state, newest)
    sync(state)
    # Half-written files, Slurm's and ours: on a full volume they take the space that a start needs.
    for left in (*ours.path.glob("*.new"), *ours.path.glob("*.half")):
        left.unlink(missing_ok=True)
    return ours


def _check(found: Path | None, check: Callable[[Path | None], object]) -> None:
    try:
        check(found)
    except Blocked:
        if found and not found.exists():
            raise LostRace(f"another guard renamed {found.name}") from None
        raise


def _rename(old: Path, number: int) -> Epoch:
    try:
        found = old.stat()
        ours = Epoch(old.parent / f"epoch-{number}", number, (found.st_dev, found.st_ino))
        old.rename(ours.path)
    except FileNotFoundError:
        raise LostRace(f"another guard renamed {old.name}") from None
    if not ours.ours():
        raise LostRace(f"another guard renamed {ours.path.name}")
    return ours


def _make(state: Path, above: int) -> Epoch:
    """The first epoch comes from one origin for ever, which is renamed like any other epoch.

    If it were just created, a guard that slept before creating it could give the name back to a slurmctld that was
    fenced by the name's disappearance.
    """
    origin = state / f".origin-{above}"
    if not origin.is_symlink():
        half = Path(tempfile.mkdtemp(prefix=".epoch-", dir=state))
        try:
            origin.symlink_to(half.name)
        except FileExistsError:
            half.rmdir()
    try:
        return _rename(state / origin.readlink(), above + 1)
    except LostRace:
        if _epochs(state):
            raise
        todo = f"restore it, or start with an empty one (rm {origin})"
        raise Blocked(f"{state} had a state, which is gone: {todo}") from None


def _epochs(state: Path) -> list[int]:
    return sorted(int(match[1]) for file in state.iterdir() if (match := _NAME.fullmatch(file.name)))


def sync(folder: Path) -> None:
    """Make the names in this folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
