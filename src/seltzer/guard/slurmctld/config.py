"""The configuration: read and written as a whole, and rolled back when slurmctld doesn't survive it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seltzer.guard import log

KEYS = ("slurm.key", "jwt_hs256.key")
_OURS = "seltzer."
_HALF = ".seltzer-half"
_HOST = re.compile(rb"^\s*SlurmctldHost\s*=\s*([^\s(#]+).*$", re.IGNORECASE | re.MULTILINE)
LOCAL = "seltzer.local.conf"
"""slurm.conf for clients in this container: not every network routes a pod's request to its own Service back to it."""
REST = "seltzer.rest.conf"
"""The same for a slurmrestd in this container, which refuses to run as the user that slurm.conf names as SlurmUser."""


@dataclass(frozen=True)
class Config:
    """The contents of the ConfigMap and the Secret at one moment."""

    digest: str
    restart: str
    """A reconfigure is enough unless this differs from the value that slurmctld was started with."""
    files: Mapping[str, bytes]


def read(config: Path, keys: Path | None) -> Config:
    """Reads all files of one version. Raises OSError or ValueError if there is none."""
    folder = _version(config)
    found = {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.startswith(".")}
    digest, restart = (found.get(f"{_OURS}{name}", b"").decode().strip() for name in ("digest", "restart"))
    files = {name: content for name, content in found.items() if not name.startswith(_OURS)}
    if not digest or "slurm.conf" not in files:
        raise ValueError(f"{config} needs slurm.conf and seltzer.digest")
    if keys:
        folder = _version(keys)
        files |= {name: (folder / name).read_bytes() for name in KEYS}
    return Config(digest, restart, files)


def _version(mount: Path) -> Path:
    """The folder behind a Kubernetes volume. Kubernetes swaps a link on changes, so versions never mix."""
    link = mount / "..data"
    return mount / link.readlink() if link.is_symlink() else mount


def write(config: Config, etc: Path, lines: str = "") -> None:
    """Make `etc` hold this configuration and nothing else, with `lines` at the end of slurm.conf.

    No file is ever half-written, and slurm.conf is written last.
    """
    files = dict(config.files)
    # The empty line terminates a last line that ends with a continuation.
    slurm_conf = files.pop("slurm.conf") + b"\n\n" + lines.encode()
    files[LOCAL] = _HOST.sub(rb"SlurmctldHost=\1(127.0.0.1)", slurm_conf)
    files[REST] = files[LOCAL] + b"\nSlurmUser=65534\n"
    files["slurm.conf"] = slurm_conf
    for name, content in files.items():
        _replace(etc / name, content, 0o400 if name in KEYS else 0o444)
    for file in etc.iterdir():
        if file.name not in files and not file.is_dir():
            file.unlink()


def _replace(file: Path, content: bytes, mode: int) -> None:
    half = file.with_name(_HALF)
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
    half.rename(file)


class Source:
    """The newest configuration. Checking for changes costs two small reads."""

    def __init__(self, config: Path, keys: Path) -> None:
        self._config = config
        self._keys = keys
        self._seen: tuple[Path, bytes] | None = None
        self._latest: Config | None = None

    def latest(self) -> Config:
        """Raises OSError or ValueError if there is none, or if it is changing right now: try again later."""
        folder = _version(self._config)
        seen = (folder, (folder / f"{_OURS}digest").read_bytes())
        if self._latest is None or seen != self._seen:
            self._latest = read(self._config, self._keys)
            self._seen = seen
        return self._latest


class Rollout:
    """Chooses slurmctld's configuration: the newest, unless slurmctld did not survive that one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._proven: Config | None = None
        self._refused = ""
        self.complaint = ""
        """Why the newest configuration isn't in use; empty if it is."""

    def choose(self) -> Config:
        """The configuration for a start. Raises OSError or ValueError if there is none."""
        latest = self._source.latest()
        if latest.digest == self._refused and self._proven:
            return self._proven
        self._forgive()
        return latest

    def change(self, running: Config) -> Config | None:
        """The configuration to replace the running one with, if any."""
        try:
            latest = self._source.latest()
        except (OSError, ValueError):
            return None
        if latest.digest == self._refused:
            return None
        self._forgive()
        return None if latest.digest == running.digest else latest

    def prove(self, running: Config) -> None:
        """Record that slurmctld runs well with it."""
        if self._proven is not running:
            log.say(f"configuration {running.digest[:10]} is good")
        self._proven = running

    def _forgive(self) -> None:
        """Forget the refused configuration: a newer one has replaced it."""
        self._refused = self.complaint = ""

    def refuse(self, running: Config, why: str) -> bool:
        """slurmctld may have died of this configuration. Returns whether there is a good one to go back to."""
        if self._proven is None or self._proven.digest == running.digest:
            return False
        self._refused = running.digest
        self.complaint = why
        return True
