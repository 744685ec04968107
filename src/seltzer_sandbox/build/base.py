"""The base of all other images, built on this machine because there may be no registry to pull it from.

To the Dockerfiles it looks like Docker's `debian:forky-slim`: a minimal Debian with apt and without documentation,
where installing a daemon does not start it.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec

from seltzer.progress import Progress
from seltzer_sandbox import shell
from seltzer_sandbox.build import package_sources
from seltzer_sandbox.build.buildah import CONFINED, Buildah

SUITE = "forky"
TAG = "localhost/seltzer/base:dev"
OFFLINE = "offline"  # inputs of a base that came with an offline archive: there is nothing to make another one from
_DOCUMENTATION = ("doc", "info", "lintian", "locale", "man")
# mmdebstrap takes 21 s where debootstrap takes 48, and it can exclude files while it unpacks.
_OPTIONS = (
    *("--mode=root", "--variant=apt", "--components=main", "--format=tar"),
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _DOCUMENTATION),
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    # The image contains neither this machine's apt settings nor its name.
    '--customize-hook=rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/resolv.conf "$1"/etc/hostname',
    """--customize-hook=printf '#!/bin/sh\\nexit 101\\n' >"$1"/usr/sbin/policy-rc.d""",
    '--customize-hook=chmod 0755 "$1"/usr/sbin/policy-rc.d',
)


class Base(msgspec.Struct, frozen=True):
    """A base image in the storage: the digest of its inputs, and its ID."""

    inputs: str
    image: str


def inputs() -> str:
    """A digest of everything that determines the base image."""
    return hashlib.sha256("\0".join((SUITE, *_OPTIONS, package_sources.debian_mirror() or "")).encode()).hexdigest()


def find(folder: Path) -> Base | None:
    """The base image of a storage folder; None if it is missing or was made from other inputs."""
    try:
        base = msgspec.json.decode((folder / "base.json").read_bytes(), type=Base)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return base if base.inputs in (OFFLINE, inputs()) else None


def make(progress: Progress, buildah: Buildah) -> Base:
    """Make a new base image. Empties the storage first: every image there builds on the old base."""
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
    """Install a minimal Debian into a tar file."""
    target = buildah.scratch / "base.tar"
    log = buildah.log("base")
    settings = buildah.scratch / "base-apt.conf"
    settings.write_text(package_sources.apt_settings(log))
    mirror = package_sources.debian_mirror()
    # Without a mirror argument mmdebstrap uses its built-in default.
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
