"""An offline archive: everything that the sandbox and its tests need, for a machine without a network.

It is a folder: the script `seltzer-offline`, a decompressor, and parts of a given size, with checksums. Each component
(the system, the programs, the images, the checkout) is a compressed tar file, cut into parts.
"""

from __future__ import annotations

import platform
import shutil
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from seltzer import paths
from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox import shell
from seltzer_sandbox.build import base, gobuild, images
from seltzer_sandbox.build.buildah import Buildah
from seltzer_sandbox.build.offline import parts
from seltzer_sandbox.build.offline.parts import Component, Sink
from seltzer_sandbox.build.pool import Entry

HERE = Path(__file__).parent
SCRIPT = "seltzer-offline"
CHECKOUT, CACHE = "opt/seltzer", "root/.cache/seltzer"  # in the unpacked system


@dataclass(frozen=True)
class Packed:
    """What was written, and from which commit."""

    folder: Path
    commit: str
    components: tuple[Component, ...]


def check_folder(folder: Path) -> None:
    """Refuse to replace anything but an archive."""
    if folder.exists() and not folder.is_dir():
        raise SeltzerError(f"{folder} is a file; choose a folder for the archive")
    if folder.exists() and any(folder.iterdir()) and not (folder / parts.SUMS).exists():
        raise SeltzerError(f"{folder} has files that are no offline archive; choose a new or empty folder")
    root = images.checkout()
    if folder.is_relative_to(root) and not folder.parent.is_relative_to(root / "build"):
        raise SeltzerError(f"{folder} would be part of the checkout in the archive; choose a folder elsewhere")


def pack(progress: Progress, binaries: Path, archive: Path, folder: Path, part_size: int) -> Packed:
    """Write an offline archive into `folder`, which is made; an older archive there is replaced."""
    scratch = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        found = _write(progress, binaries, archive, scratch, part_size)
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Packed(folder, *found)


def _write(
    progress: Progress, binaries: Path, archive: Path, scratch: Path, part_size: int
) -> tuple[str, tuple[Component, ...]]:
    root = images.checkout()
    commit, snapshot, system = _commit(root), scratch / "checkout.tar", scratch / "system.tar"
    with snapshot.open("wb") as sink:
        _write_checkout(root, checkout_files(root), sink)
    if images.ready(binaries) != archive:
        raise SeltzerError("the sources changed while the images were built; try again")
    # Nobody waits for our locks while we compress: only this step needs one.
    with paths.alone("images", progress.note):
        buildah = Buildah(paths.cache() / "buildah", paths.logs())
        buildah.open()
        found = base.find(buildah.folder)
        if found is None:
            raise SeltzerError("the images were removed meanwhile; try again")
        images.build_alone(progress, buildah, _recipe(root), system)
    offline = base.Base(base.OFFLINE, found.image)
    write_tools(scratch / f"{parts.TOOLS}.tar.gz")
    fill: Mapping[str, Callable[[Sink], None]] = {
        "system": lambda sink: _write_system(system, sink),
        "programs": lambda sink: _write_programs(binaries, sink),
        "images": lambda sink: _write_images(archive, offline, sink),
        "checkout": lambda sink: _copy(snapshot, sink),
    }
    components = []
    for number, (name, write) in enumerate(fill.items(), start=1):
        with progress.step(f"compress the {name}"):
            components.append(parts.write(scratch, f"{number}-{name}", part_size, write))
    system.unlink()
    snapshot.unlink()
    manifest = [f"machine {platform.machine()}", f"commit {commit}"]
    manifest += [f"component {each.name} {each.unpacked}" for each in components]
    (scratch / "manifest").write_text("".join(f"{line}\n" for line in manifest))
    parts.write_sums(scratch)
    shutil.copy(HERE / SCRIPT, scratch / SCRIPT)
    (scratch / SCRIPT).chmod(0o755)
    return commit, tuple(components)


def _recipe(root: Path) -> images.Recipe:
    names = ("pyproject.toml", "README.md", "LICENSE", "requirements-dev.lock", "src/seltzer/__init__.py")
    return images.Recipe("offline", HERE / "Dockerfile", {name: root / name for name in names})


def checkout_files(root: Path) -> list[str]:
    """The files of the checkout that Git has, or would add."""
    words: list[str | Path] = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = shell.run(words, doing="listing the files of the checkout", log=paths.logs() / "pack.log", deadline=60)
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())


def _commit(root: Path) -> str:
    words: list[str | Path] = ["git", "-C", root, "describe", "--always", "--dirty=+", "--exclude=*"]
    return shell.run(words, doing="reading the commit", log=paths.logs() / "pack.log", deadline=60).strip()


def _write_system(archive: Path, sink: Sink) -> None:
    """The image's only layer, which is a tar file itself."""
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        (entry,) = msgspec.json.decode(manifest.read() if manifest else b"", type=list[Entry])
        (layer,) = entry.layers
        if content := tar.extractfile(layer):
            shutil.copyfileobj(content, sink, 1 << 20)


def _write_programs(binaries: Path, sink: Sink) -> None:
    """The folder with all programs, and those that it was collected from: hard links to the same files."""
    with tarfile.open(fileobj=sink, mode="w|") as tar:
        for folder in (*gobuild.folders(), binaries):
            tar.add(folder, f"{CACHE}/bin/{folder.name}")


def _write_images(archive: Path, found: base.Base, sink: Sink) -> None:
    """The archive of the images; a sandbox unpacks it when it first starts."""
    with tarfile.open(fileobj=sink, mode="w|") as tar:
        parts.add(tar, f"{CACHE}/buildah/base.json", msgspec.json.encode(found))
        tar.add(archive, f"{CACHE}/images/{archive.name}")


def _copy(file: Path, sink: Sink) -> None:
    with file.open("rb") as content:
        shutil.copyfileobj(content, sink, 1 << 20)


def _write_checkout(root: Path, files: list[str], sink: IO[bytes]) -> None:
    """The checkout. Its .venv is in the system."""

    def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        return entry

    with tarfile.open(fileobj=sink, mode="w|") as tar:
        for name in files:
            tar.add(root / name, f"{CHECKOUT}/{name}", recursive=False, filter=owned_by_root)


def write_tools(target: Path) -> None:
    """zstd with its libraries and their loader: it runs on any Linux, whatever is installed there."""
    zstd = shutil.which("zstd")
    if zstd is None:
        raise SeltzerError("zstd not found; 'make setup' installs what 'seltzer sandbox pack' needs")
    listed = shell.run(["ldd", zstd], doing="looking for zstd's libraries", log=paths.logs() / "pack.log", deadline=30)
    libraries = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
    with tarfile.open(target, "w:gz") as tar:
        parts.add_file(tar, f"{parts.TOOLS}/zstd", Path(zstd))
        for library in libraries:
            name = Path(library).name
            parts.add_file(tar, f"{parts.TOOLS}/{'loader' if name.startswith('ld-') else f'lib/{name}'}", Path(library))
