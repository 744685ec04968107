"""A node takes over a template's images without changing the template, whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from seltzer_sandbox.build import template

BLOBS = "io.containerd.content.v1.content/blobs/sha256"
LAYERS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    folder = tmp_path / "cache/seltzer/templates/one"
    for file in (*DATABASES, f"{BLOBS}/aaaa", f"{BLOBS}/bbbb", f"{LAYERS}/1/fs/etc/passwd", f"{LAYERS}/2/fs/bin/sh"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(file)
    (folder / "io.containerd.content.v1.content/ingest").mkdir()
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "state/n1/varlib").mkdir(parents=True)
    return tmp_path / "state/n1/varlib/containerd"


def files(folder: Path) -> dict[str, str]:
    """All that can be read below the folder, symbolic links followed, as containerd does."""
    found = {}
    for inner, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(inner) / name
            found[str(path.relative_to(folder))] = path.read_text()
    return found


def test_a_node_sees_all_that_the_template_has(filled: Path, root: Path) -> None:
    template.take(filled, root)
    assert files(root) == files(filled)
    assert (root / "io.containerd.content.v1.content/ingest").is_dir()


def test_big_things_are_linked_and_databases_are_copied(filled: Path, root: Path) -> None:
    template.take(filled, root)
    for blob in ("aaaa", "bbbb"):
        assert (root / BLOBS / blob).samefile(filled / BLOBS / blob)
        assert not (root / BLOBS / blob).is_symlink(), "the template may be deleted one day"
    for layer in ("1", "2"):
        assert (root / LAYERS / layer).is_symlink()
        assert (root / LAYERS / layer).readlink() == filled / LAYERS / layer
    for database in DATABASES:
        assert not (root / database).samefile(filled / database)
        assert not (root / database).is_symlink()


def test_what_a_node_does_later_does_not_reach_the_template(filled: Path, root: Path) -> None:
    before = files(filled)
    template.take(filled, root)
    for database in DATABASES:
        (root / database).write_text("changed")
    (root / BLOBS / "cccc").write_text("loaded later")
    (root / LAYERS / "3").mkdir()
    (root / BLOBS / "aaaa").unlink()
    (root / LAYERS / "1").unlink()
    assert files(filled) == before


def test_a_node_keeps_the_root_that_it_has(filled: Path, root: Path) -> None:
    template.take(filled, root)
    (root / DATABASES[0]).write_text("its own by now")
    template.take(filled, root)
    assert (root / DATABASES[0]).read_text() == "its own by now"


def test_a_root_that_was_half_made_is_made_again(filled: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(template, "_link", interrupt)
        template.take(filled, root)
    assert not root.exists(), "it doesn't look finished"
    template.take(filled, root)
    assert files(root) == files(filled)
    assert [entry.name for entry in root.parent.iterdir()] == ["containerd"]


def test_cache_and_state_may_be_on_different_file_systems(
    filled: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    template.take(filled, root)
    assert files(root) == files(filled)
    assert not (root / BLOBS / "aaaa").samefile(filled / BLOBS / "aaaa")


def test_a_node_can_be_removed_without_its_template(filled: Path, root: Path) -> None:
    before = files(filled)
    template.take(filled, root)
    shutil.rmtree(root)
    assert files(filled) == before


def test_only_templates_that_nobody_stands_on_are_dropped(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("two", ".new-interrupted"):
        (filled.with_name(name) / "inner").mkdir(parents=True)
    template.prune({str(filled), "/another/template"})
    assert [entry.name for entry in filled.parent.iterdir()] == ["one"]
    assert files(filled)


def test_without_templates_there_is_nothing_to_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    template.prune(set())
