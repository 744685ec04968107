"""Compressed tar files in parts of a given size, and their checksums."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from seltzer.errors import SeltzerError

SUMS = "SHA256SUMS"
TOOLS = "0-tools"
SMALLEST = 1 << 20
# Level 19 makes the archive a little smaller and takes many times as long.
_ZSTD = ("zstd", "--quiet", "--stdout", "-10", "--long=27", "--threads=0")
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Component:
    """A component of the archive: how many bytes it had, and how many its parts have."""

    name: str
    unpacked: int
    packed: int
    parts: int


def size(text: str) -> int:
    """The number of bytes in a text such as 55M (MiB)."""
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", text)
    found = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0
    if found < SMALLEST:
        raise SeltzerError(f"--part-size is a size of 1M or more, such as 55M or 2G, not {text!r}")
    return found


def write(folder: Path, name: str, part_size: int, fill: Callable[[Sink], None]) -> Component:
    """Compress what `fill` writes into `<name>.tar.zst.0000` and so on."""
    with subprocess.Popen(_ZSTD, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        counted = Sink(process.stdin)
        failed: list[BaseException] = []

        def feed() -> None:
            try:
                fill(counted)
            except BaseException as error:
                failed.append(error)
            finally:
                counted.close()

        feeding = threading.Thread(target=feed)
        feeding.start()
        packed, parts = cut(process.stdout, folder, f"{name}.tar.zst", part_size)
        feeding.join()
    if failed:
        raise failed[0]
    if process.returncode:
        raise SeltzerError(f"zstd failed with exit code {process.returncode} while it compressed {name}")
    return Component(name, counted.bytes, packed, parts)


def cut(source: IO[bytes], folder: Path, name: str, part_size: int) -> tuple[int, int]:
    packed = parts = 0
    block = source.read(min(_BLOCK, part_size))
    while block:
        room = part_size
        with (folder / f"{name}.{parts:04}").open("wb") as part:
            while block:
                part.write(block)
                room -= len(block)
                packed += len(block)
                block = source.read(min(_BLOCK, room or part_size))
                if not room:
                    break
        parts += 1
    return packed, parts


def write_sums(folder: Path) -> None:
    """The checksums of all files in the folder, as sha256sum reads them."""
    lines = []
    for file in sorted(folder.iterdir()):
        with file.open("rb") as content:
            lines.append(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {file.name}\n")
    (folder / SUMS).write_text("".join(lines))


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def add_file(tar: tarfile.TarFile, name: str, file: Path) -> None:
    """The content of a file, through symbolic links; executable."""
    add(tar, name, file.read_bytes(), 0o755)


class Sink(io.RawIOBase):
    """Passes on what is written, and counts it."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink
        self.bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._sink.write(data)
        self.bytes += len(data)
        return len(data)

    def close(self) -> None:
        super().close()
        self._sink.close()
