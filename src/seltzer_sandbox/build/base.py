"""The image that all others start from, made on this machine: there may be no registry to pull it from.

It is what Docker's `debian:forky-slim` is, as far as the Dockerfiles can see: Debian's smallest system with apt,
without documentation, and with daemons that don't start when they are installed.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec

from seltzer.progress import Progress
from seltzer_sandbox import shell
from seltzer_sandbox.build import machine
from seltzer_sandbox.build.buildah import CONFINED, Buildah

SUITE = "forky"
TAG = "localhost/seltzer/base:dev"
_DOCUMENTATION = ("doc", "info", "lintian", "locale", "man")
# mmdebstrap took 21 s where debootstrap took 48, and can leave files out while it unpacks.
_OPTIONS = (
    *("--mode=root", "--variant=apt", "--components=main", "--format=tar"),
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _DOCUMENTATION),
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    # What apt needs on this machine and what names this machine are not the image's business.
    '--customize-hook=rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/resolv.conf "$1"/etc/hostname',
    """--customize-hook=printf '#!/bin/sh\\nexit 101\\n' >"$1"/usr/sbin/policy-rc.d""",
    '--customize-hook=chmod 0755 "$1"/usr/sbin/policy-rc.d',
)


class Base(msgspec.Struct, frozen=True):
    """A base image that is in the storage: what it was made with, and which one it is."""

    inputs: str
    image: str


def inputs() -> str:
    """Changes when a base image made now would be made differently."""
    return hashlib.sha256("\0".join((SUITE, *_OPTIONS, machine.debian_mirror() or "")).encode()).hexdigest()


def find(folder: Path) -> Base | None:
    """The base image of a storage folder, unless there is none or it was made differently."""
    try:
        base = msgspec.json.decode((folder / "base.json").read_bytes(), type=Base)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return base if base.inputs == inputs() else None


def make(progress: Progress, buildah: Buildah) -> Base:
    """Make a new base image. It empties the storage, since everything in there stands on the old one."""
    with progress.step(f"Debian {SUITE}, the base of the images"):
        system = _bootstrap(buildah)
        (buildah.folder / "base.json").unlink(missing_ok=True)
        shutil.rmtree(buildah.folder / "root", ignore_errors=True)
        base = Base(inputs(), _commit(buildah, system))
        system.unlink()
        scratch = buildah.scratch / "base.json"
        scratch.write_bytes(msgspec.json.encode(base))
        scratch.rename(buildah.folder / "base.json")
    return base


def _bootstrap(buildah: Buildah) -> Path:
    """A tar file with the system in it."""
    target = buildah.scratch / "base.tar"
    log = buildah.log("base")
    settings = buildah.scratch / "base-apt.conf"
    settings.write_text(machine.apt_settings(log))
    mirror = machine.debian_mirror()
    # Without a mirror mmdebstrap uses the one that is built into it.
    shell.run(
        [*CONFINED, "mmdebstrap", *_OPTIONS, f"--aptopt={settings}", SUITE, target, *([mirror] if mirror else [])],
        doing=f"installing Debian {SUITE} for the base image",
        log=log,
        deadline=900,
        env={"TMPDIR": str(buildah.scratch)},
    )
    return target


def _commit(buildah: Buildah, system: Path) -> str:
    doing = "storing the base image"
    container = buildah.run("from", "scratch", doing=doing, log="base", deadline=60).strip()
    buildah.run("add", "--quiet", container, system, "/", doing=doing, log="base", deadline=300)
    buildah.run("config", "--cmd", "/bin/bash", container, doing=doing, log="base", deadline=60)
    commit = ("commit", "--quiet", "--rm", container, TAG)
    return buildah.run(*commit, doing=doing, log="base", deadline=300).strip()
