"""The layers of all images, each stored once, and archives packed from them.

buildah writes archives of single images and takes a second for each. The pool unpacks each image once, after its
build, and packs an archive of many images from these files. Layers stay uncompressed: an archive is read on the
machine where it was made. The format is Docker's, which `ctr images import` and `docker load` read.
"""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from seltzer.errors import SeltzerError
from seltzer_sandbox.build.buildah import Buildah


class Entry(msgspec.Struct, frozen=True, rename="pascal"):
    """An image in an archive's manifest.json: the names of its files, and its tags."""

    config: str
    layers: list[str]
    repo_tags: list[str] = []

    @property
    def files(self) -> list[str]:
        return [self.config, *self.layers]


class Pool:
    """A folder of layers and image configurations, named by digest, and of entries that list them per image."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, digest: str) -> bool:
        """Whether the image is in the pool with all its files."""
        entry = self._entry(digest)
        return entry is not None and all((self._folder / name).exists() for name in entry.files)

    def add(self, buildah: Buildah, tag: str, digest: str) -> None:
        """Copy an image from buildah's storage into the pool."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=buildah.scratch, prefix="export-", ignore_cleanup_errors=True) as scratch:
            file = Path(scratch) / "image.tar"
            buildah.run(
                *("push", "--quiet", tag, f"docker-archive:{file}"), doing=f"packing {tag}", log="pack", deadline=300
            )
            with tarfile.open(file) as tar:
                (entry,) = msgspec.json.decode(_member(tar, "manifest.json").read(), type=list[Entry])
                for name in entry.files:
                    self._put(name, _member(tar, name), Path(scratch))
            # The entry is written last: an image without one does not exist.
            fresh = Path(scratch) / "entry"
            fresh.write_bytes(msgspec.json.encode(entry))
            fresh.rename(self._folder / f"{digest}.image")

    def _put(self, name: str, content: IO[bytes], scratch: Path) -> None:
        target = self._folder / name
        if target.exists():
            return
        fresh = scratch / "layer"
        with fresh.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        fresh.rename(target)

    def pack(self, names: Mapping[str, str], target: Path) -> None:
        """Write an archive of images: `names` maps digests to tags. The file appears when it is complete."""
        entries = []
        for digest, name in names.items():
            entry = self._entry(digest)
            if entry is None:
                raise SeltzerError(f"the image {name} is not built; run 'seltzer sandbox up', which builds it")
            entries.append(Entry(entry.config, entry.layers, [name]))
        scratch = target.with_name(".new")
        with tarfile.open(scratch, "w") as tar:
            content = msgspec.json.encode(entries)
            manifest = tarfile.TarInfo("manifest.json")
            manifest.size = len(content)
            tar.addfile(manifest, io.BytesIO(content))
            for name in sorted({name for entry in entries for name in entry.files}):
                tar.add(self._folder / name, arcname=name)
        scratch.rename(target)

    def keep(self, digests: set[str]) -> None:
        """Remove all other images, and layers that only they use."""
        entries = [self._entry(digest) for digest in digests]
        wanted = {name for entry in entries if entry for name in entry.files} | {f"{name}.image" for name in digests}
        for file in self._folder.iterdir():
            if file.name not in wanted:
                file.unlink()

    def _entry(self, digest: str) -> Entry | None:
        try:
            return msgspec.json.decode((self._folder / f"{digest}.image").read_bytes(), type=Entry)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    found = tar.extractfile(name)
    if found is None:
        raise SeltzerError(f"buildah wrote an archive without {name}; run 'make setup' for a buildah that works")
    return found
