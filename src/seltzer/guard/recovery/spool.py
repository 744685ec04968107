"""The directories of batch jobs, which slurmctld creates before it answers sbatch: finds new ones and secures them.

slurmctld removes the directories of unknown jobs as soon as it starts. Before that they are linked into
`seltzer.recovery/job.ID`, where they stay until the jobs are back in the queue, or kept for good: in `lost/job.ID` of
the volume or, if that fails, in `seltzer.unkept/job.ID` beside slurmctld's state.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seltzer.guard import log
from seltzer.guard.state.epoch import sync
from seltzer.wire import environment

RECOVERY = "seltzer.recovery"
LOST = "lost"
UNKEPT = "seltzer.unkept"
KEPT = 1000
_DAY = 24 * 3600
_FILES = ("script", "environment")
_JOB = re.compile(r"job\.(\d{1,10})")
_OLD_IN_A_ROW = 20  # IDs grow: after this many old directories there are only old ones
_MOST = 64 << 20
_STUB = b"""#!/bin/sh
echo "slurmctld was killed after this job had started, and forgot that. So that it does not run twice, its script" >&2
echo "has been put aside. An administrator finds it in lost/job.$SLURM_JOB_ID of the controller's volume." >&2
exit 1
\0"""


@dataclass(frozen=True)
class Files:
    """The parts of a batch job. None if a part is missing or isn't text."""

    script: str | None
    environment: tuple[str, ...] | None

    @property
    def key(self) -> str:
        """The journal's key for this job."""
        for each in self.environment or ():
            name, _, value = each.partition("=")
            if name == environment.JOB:
                return value
        return ""


def newer(epoch: Path, than: float) -> set[int]:
    """The IDs of jobs whose directories are newer than this time of the volume's clock. Examines few of the others."""
    found: set[int] = set()
    for folder in _hashes(epoch):
        with suppress(OSError):
            if folder.stat().st_mtime < than:
                continue  # nothing was created in there since
            old = 0
            for job in sorted((job for job, _ in _jobs(folder)), reverse=True):
                with suppress(OSError):
                    new = (folder / f"job.{job}").stat().st_mtime >= than
                    old = 0 if new else old + 1
                    if new:
                        found.add(job)
                if old >= _OLD_IN_A_ROW:
                    break
    return found


def save(epoch: Path, jobs: Collection[int]) -> None:
    """Link or copy the directories of these jobs to where slurmctld doesn't remove them. Safe to repeat.

    Skips withdrawn jobs: the script that only fails would replace what is kept of them.
    """
    area = epoch / RECOVERY
    area.mkdir(exist_ok=True)
    for job in jobs:
        source, target = directory(epoch, job), area / f"job.{job}"
        if target.exists() or not source.is_dir() or _withdrawn(source):
            continue
        half = area / f"half.{job}"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        for name in _FILES:
            with suppress(FileNotFoundError):
                _link(source / name, half / name)
        half.rename(target)
    sync(area)


def saved(epoch: Path) -> set[int]:
    """The jobs whose directories are secured, by this start and by earlier ones that weren't finished."""
    try:
        return {job for job, _ in _jobs(epoch / RECOVERY)}
    except OSError:
        return set()


def read(epoch: Path, job: int) -> Files:
    folder = epoch / RECOVERY / f"job.{job}"
    return Files(_script(folder / "script"), _environment(folder / "environment"))


def key(epoch: Path, job: int) -> str:
    """The journal's key for this job, without reading its script."""
    return Files(None, _environment(epoch / RECOVERY / f"job.{job}" / "environment")).key


def is_same(epoch: Path, job: int, files: Files) -> bool:
    """Whether slurmctld's job with this ID is the job of these files, and not another one that was given the ID."""
    folder = directory(epoch, job)
    own = Files(_script(folder / "script"), _environment(folder / "environment"))
    return own.script is not None and (own == files or (own.key != "" and own.key == files.key))


def directory(epoch: Path, job: int) -> Path:
    """slurmctld's own directory of the job."""
    return epoch / f"hash.{job % 10}" / f"job.{job}"


def keep(epoch: Path, job: int, why: str, options: dict[str, object] | None) -> Path | None:
    """Move the secured parts of a job into `lost` or, failing that, into `seltzer.unkept`, for a person.

    Returns where they are now; None if there are none. Safe to repeat. Raises OSError if neither place accepts them.
    """
    source = epoch / RECOVERY / f"job.{job}"
    if not source.is_dir():
        return kept(epoch, job)
    with suppress(OSError):  # on a full volume: the script matters more than the reason
        (source / "options.json").write_text(json.dumps({"why": why, "options": options}, indent=1))
    lost, beside = epoch.parent / LOST, epoch / UNKEPT
    try:
        return _move(source, lost)
    except OSError as error:
        log.say(f"job {job} can't be put into {lost}: {error}")
        return _move(source, beside)


def kept(epoch: Path, job: int) -> Path | None:
    """Where a job is that was kept for a person."""
    places = (epoch.parent / LOST / f"job.{job}", epoch / UNKEPT / f"job.{job}")
    return next((place for place in places if place.is_dir()), None)


def why_kept(folder: Path) -> str:
    """The reason that `keep` was given; empty if it couldn't be written."""
    try:
        return str(json.loads((folder / "options.json").read_text())["why"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _move(source: Path, folder: Path) -> Path:
    target = folder / source.name
    folder.mkdir(mode=0o700, exist_ok=True)  # an environment may contain secrets
    if target.is_dir():
        shutil.rmtree(target)
    source.rename(target)
    with suppress(OSError):  # the move itself has succeeded
        sync(folder)
    return target


def withdraw(epoch: Path, job: int) -> None:
    """Keep the job for a person, and replace its script by one that only fails. Safe to repeat.

    A missing script would be fatal to slurmctld when it starts that job. Raises OSError; a job that could then run
    again still has its own script.
    """
    source = directory(epoch, job)
    if not source.is_dir() or _withdrawn(source):
        return
    save(epoch, [job])
    # First, and by a link: whenever the guard is killed, the job's own script is in place or where a person finds it.
    keep(epoch, job, "it had started before, and slurmctld could not be told to hold it", None)
    half = source / "half"
    half.write_bytes(_STUB)
    half.chmod(0o700)
    half.rename(source / "script")  # never written into the old file, which is the one that is kept


def _withdrawn(folder: Path) -> bool:
    """Whether its script is the one that only fails."""
    file = folder / "script"
    try:
        return file.stat().st_size == len(_STUB) and file.read_bytes() == _STUB
    except FileNotFoundError:
        return False


def forget(epoch: Path) -> None:
    """The repair is done: remove the secured directories, and the oldest of those that were kept."""
    shutil.rmtree(epoch / RECOVERY, ignore_errors=True)
    with suppress(OSError):
        _shorten(epoch.parent / LOST)


def _hashes(epoch: Path) -> Iterator[Path]:
    yield from (epoch / f"hash.{number}" for number in range(10))


def _jobs(folder: Path) -> Iterator[tuple[int, Path]]:
    for entry in os.scandir(folder):
        match = _JOB.fullmatch(entry.name)
        if match:
            yield int(match[1]), Path(entry.path)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)  # not every file system supports links


def _script(file: Path) -> str | None:
    text = _text(file)
    return text.rstrip("\0") if text is not None else None


def _environment(file: Path) -> tuple[str, ...] | None:
    """A 32-bit count, followed by that many NUL-terminated strings."""
    try:
        content = file.read_bytes()[:_MOST]
        (count,) = struct.unpack_from("=I", content)
        texts = content[4:].decode().split("\0")
    except (OSError, struct.error, UnicodeDecodeError):
        return None
    return tuple(texts[:count]) if len(texts) > count else None


def _text(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST).decode()
    except (OSError, UnicodeDecodeError):
        return None


def _shorten(lost: Path) -> None:
    """Keep the newest jobs, and all of the last day, which perhaps nobody has seen. More would fill the volume."""
    found = sorted((folder.stat().st_mtime, folder) for _, folder in _jobs(lost))
    for at, folder in found[:-KEPT]:
        if at < found[-1][0] - _DAY:
            shutil.rmtree(folder, ignore_errors=True)
