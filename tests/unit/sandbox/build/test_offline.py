"""An offline archive arrives whole in its parts, and its script notices missing, damaged and foreign ones."""

from __future__ import annotations

import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seltzer.errors import SeltzerError
from seltzer_sandbox.build import base, images, offline
from seltzer_sandbox.build.offline import parts

SCRIPT = offline.HERE / offline.SCRIPT


@pytest.mark.parametrize(
    ("text", "bytes_"), [("1M", 1 << 20), ("55M", 55 << 20), ("2G", 2 << 30), ("2048K", 2 << 20), ("1048576", 1 << 20)]
)
def test_a_part_size_is_a_number_with_a_unit(text: str, bytes_: int) -> None:
    assert parts.size(text) == bytes_


@pytest.mark.parametrize("text", ["", "0", "M", "55", "55MB", "-1G", "1.5G", "1023K", "9" * 20 + "G"])
def test_other_part_sizes_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(SeltzerError, match="such as 55M"):
        parts.size(text)


@given(length=st.integers(0, 3000), part_size=st.integers(100, 700))
def test_content_is_whole_in_its_parts(tmp_path_factory: pytest.TempPathFactory, length: int, part_size: int) -> None:
    folder = tmp_path_factory.mktemp("parts")
    content = os.urandom(length)
    packed, count = parts.cut(io.BytesIO(content), folder, "x", part_size)
    files = sorted(folder.iterdir())
    assert b"".join(file.read_bytes() for file in files) == content
    assert packed == length
    assert len(files) == count == -(-length // part_size)
    assert all(file.stat().st_size == part_size for file in files[:-1])


def test_a_failure_while_a_component_is_written_is_raised(tmp_path: Path) -> None:
    def fill(sink: parts.Sink) -> None:
        sink.write(b"the beginning")
        raise SeltzerError("there is no end")

    with pytest.raises(SeltzerError, match="there is no end"):
        parts.write(tmp_path, "1-thing", 1 << 20, fill)


def tree(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            parts.add(tar, name, content)
    return buffer.getvalue()


def make(folder: Path, **components: bytes) -> Path:
    """A small archive, as `pack` writes it."""
    folder.mkdir()
    offline.write_tools(folder / f"{parts.TOOLS}.tar.gz")
    lines = [f"machine {platform.machine()}", "commit abc"]
    for number, (name, content) in enumerate(components.items(), start=1):

        def fill(sink: parts.Sink, content: bytes = content) -> None:
            sink.write(content)

        written = parts.write(folder, f"{number}-{name}", 1 << 16, fill)
        lines.append(f"component {written.name} {written.unpacked}")
    (folder / "manifest").write_text("".join(f"{line}\n" for line in lines))
    parts.write_sums(folder)
    shutil.copy(SCRIPT, folder)
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    noise = os.urandom(3 << 16)  # can't be compressed: several parts
    return make(
        tmp_path / "archive", system=tree({"etc/name": b"system", "noise": noise}), checkout=tree({"a/b": b"c"})
    )


def script(archive: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [archive / offline.SCRIPT, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_a_complete_archive_passes(archive: Path) -> None:
    assert len(list(archive.glob("1-system.tar.zst.*"))) > 1, "this test needs several parts"
    done = script(archive, "check")
    assert done.returncode == 0, done.stderr
    assert "parts are complete" in done.stderr


def test_missing_parts_are_named(archive: Path) -> None:
    (archive / "1-system.tar.zst.0001").unlink()
    (archive / "2-checkout.tar.zst.0000").unlink()
    done = script(archive, "unpack")
    assert done.returncode == 1
    assert "2 of 7 parts are missing" in done.stderr
    assert "1-system.tar.zst.0001 2-checkout.tar.zst.0000" in done.stderr
    assert not (archive / "root").exists()


@pytest.mark.parametrize("part", ["1-system.tar.zst.0001", "manifest", "0-tools.tar.gz"])
def test_a_damaged_part_is_named(archive: Path, part: str) -> None:
    content = bytearray((archive / part).read_bytes())
    content[len(content) // 2] ^= 1
    (archive / part).write_bytes(content)
    done = script(archive, "check")
    assert done.returncode == 1
    assert f"{part} is damaged: copy it again" in done.stderr


def test_without_checksums_nothing_is_unpacked(archive: Path) -> None:
    (archive / parts.SUMS).unlink()
    done = script(archive, "unpack")
    assert done.returncode == 1
    assert "SHA256SUMS is missing" in done.stderr


def test_an_archive_for_another_machine_says_so(archive: Path) -> None:
    (archive / "manifest").write_text("machine vax\n")
    (archive / parts.SUMS).unlink()
    (archive / offline.SCRIPT).rename(archive.parent / offline.SCRIPT)
    parts.write_sums(archive)
    (archive.parent / offline.SCRIPT).rename(archive / offline.SCRIPT)
    done = script(archive, "check")
    assert done.returncode == 1
    assert "this archive is for vax" in done.stderr


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="unpacking keeps owners, for which it needs root")


@needs_root
def test_it_is_unpacked_once(archive: Path) -> None:
    done = script(archive, "unpack")
    assert done.returncode == 0, done.stderr
    assert (archive / "root/etc/name").read_bytes() == b"system"
    assert (archive / "root/a/b").read_bytes() == b"c"
    assert not (archive / "root" / parts.TOOLS).exists()
    (archive / "root/mine").touch()
    assert script(archive, "unpack").returncode == 0
    assert (archive / "root/mine").exists(), "it was unpacked again"


@needs_root
def test_an_interrupted_unpacking_is_done_again(archive: Path) -> None:
    (archive / "root.new/left").mkdir(parents=True)
    assert script(archive, "unpack").returncode == 0
    assert not (archive / "root/left").exists()
    assert not (archive / "root.new").exists()


@needs_root
def test_a_folder_of_another_archive_stays(archive: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "other", system=tree({"etc/name": b"other"}))
    assert script(archive, "unpack").returncode == 0
    done = script(other, "--root", str(archive / "root"), "unpack")
    assert done.returncode == 1
    assert "was unpacked from another archive" in done.stderr
    assert (archive / "root/etc/name").read_bytes() == b"system"


@needs_root
def test_a_folder_with_other_files_stays(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "home/important").mkdir(parents=True)
    done = script(archive, "--root", str(tmp_path / "home"), "unpack")
    assert done.returncode == 1
    assert "isn't empty" in done.stderr
    assert script(archive, "--root", str(tmp_path / "home"), "remove").returncode == 1
    assert (tmp_path / "home/important").exists()


@pytest.mark.parametrize("words", [(), ("unknown",), ("run",), ("--other", "x", "check")])
def test_other_words_show_the_usage(archive: Path, words: tuple[str, ...]) -> None:
    done = script(archive, *words)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_only_an_archive_is_replaced(tmp_path: Path) -> None:
    offline.check_folder(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    offline.check_folder(tmp_path / "empty")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/important").touch()
    with pytest.raises(SeltzerError, match="no offline archive"):
        offline.check_folder(tmp_path / "home")
    with pytest.raises(SeltzerError, match="is a file"):
        offline.check_folder(tmp_path / "home/important")


def test_the_system_has_all_that_setup_installs_but_what_builds() -> None:
    setup = (images.checkout() / "scripts/setup.sh").read_text()
    (listed,) = re.findall(r"^needs=\(\n(.*?)^\)", setup, re.MULTILINE | re.DOTALL)
    needed = {line.split("#")[0].strip().partition(":")[2] for line in listed.splitlines()}
    builds = {"buildah", "debian-archive-keyring", "gpgv", "mmdebstrap", "netavark"}
    assert len(needed) > 10
    system = (offline.HERE / "Dockerfile").read_text().partition("FROM system")[0].split()
    assert needed - builds <= set(system)


def test_an_archive_is_no_part_of_itself() -> None:
    root = images.checkout()
    offline.check_folder(root / "build/offline")  # which Git ignores
    for inside in (root / "offline", root / "src/offline", root / "build"):
        with pytest.raises(SeltzerError, match="choose"):
            offline.check_folder(inside)


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git here")
def test_the_checkout_is_what_git_has_or_would_add(tmp_path: Path) -> None:
    for name in ("kept", "new", "gone", "ignored", "in a folder/é"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("ignored\n")
    for words in (("init", "--quiet"), ("add", "kept", "gone")):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    (tmp_path / "gone").unlink()
    assert offline.checkout_files(tmp_path) == [".gitignore", "in a folder/é", "kept", "new"]


def test_the_base_of_an_offline_archive_is_current_with_any_package_source(tmp_path: Path) -> None:
    (tmp_path / "base.json").write_bytes(msgspec.json.encode(base.Base(base.OFFLINE, "abc")))
    assert base.find(tmp_path) == base.Base(base.OFFLINE, "abc")
    (tmp_path / "base.json").write_bytes(msgspec.json.encode(base.Base("other", "abc")))
    assert base.find(tmp_path) is None


def test_changed_sources_in_an_offline_archive_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SeltzerError, match="make setup"):
        images.check_builder()
    (tmp_path / "seltzer/buildah").mkdir(parents=True)
    (tmp_path / "seltzer/buildah/base.json").write_bytes(msgspec.json.encode(base.Base(base.OFFLINE, "abc")))
    with pytest.raises(SeltzerError, match="pack an archive again"):
        images.check_builder()
