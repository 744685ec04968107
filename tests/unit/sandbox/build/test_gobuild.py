"""A build is known by what it is made from, and only a finished one counts."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.programs import write_program

from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox.build import gobuild, golang
from seltzer_sandbox.build.gobuild import Module

GO_MOD = """\
module seltzer.dev/some

go 1.26.0

require k8s.io/kubernetes v1.35.2

require (
\tgo.etcd.io/etcd/api/v3 v3.6.1
\tgo.etcd.io/etcd v3.6.0 // indirect
)
"""
# Stands in for Go: what is built is up to the module's own `recipe`, which finds where to put it in $out.
GO = """#!/bin/sh
echo "$PWD $*" >> "$CALLS"
while [ "$1" != -o ]; do shift; done
out=$2
. ./recipe
"""
ONE = Module("one", "the first", ("first",), called=("uno", "eins"))
TWO = Module("two", "the second", ("second", "third"), tags="some", packages=("./...",))
APART = Module("apart", "the one apart", ("alone",))


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules, a go command that builds them, and folders of our own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    go = write_program(tmp_path / "go", GO)
    for module in (ONE, TWO, APART):
        folder = tmp_path / "sources" / module.folder
        (folder / "inner").mkdir(parents=True)
        (folder / "go.mod").write_text(GO_MOD)
        (folder / "inner/main.go").write_text("package main\n")
        recipe(folder, f"for each in {' '.join(module.outputs)}; do echo {module.folder} > $out/$each; done")
    monkeypatch.setattr(gobuild, "SOURCES", tmp_path / "sources")
    monkeypatch.setattr(gobuild, "modules", lambda: (ONE, TWO))
    monkeypatch.setattr(gobuild, "DISK_NEEDED", 0)
    monkeypatch.setattr(golang, "go", lambda progress: go)
    return tmp_path / "sources"


def recipe(folder: Path, script: str) -> None:
    (folder / "recipe").write_text(script)


def finished(cache: Path) -> set[str]:
    """The modules that look finished; fails if there is anything else in the folder of builds."""
    names = {entry.name for entry in (cache / "seltzer/bin").iterdir()}
    assert not [name for name in names if name.startswith(".")], "no scratch is left"
    return {name.split("-")[0] for name in names}


def calls(tmp_path: Path) -> list[str]:
    """The modules that Go was called for."""
    lines = (tmp_path / "calls").read_text().splitlines()
    return sorted(Path(line.split()[0]).name for line in lines)


@pytest.mark.parametrize("file", ["go.mod", "inner/main.go", "go.sum", "inner/more.go"])
def test_the_digest_changes_with_every_source(sources: Path, file: str) -> None:
    before = gobuild.digest(ONE), gobuild.digest(TWO)
    with (sources / "one" / file).open("a") as source:
        source.write("// changed\n")
    assert gobuild.digest(ONE) != before[0]
    assert gobuild.digest(TWO) == before[1]


def test_the_digest_changes_with_a_files_name(sources: Path) -> None:
    before = gobuild.digest(ONE)
    (sources / "one/inner/main.go").rename(sources / "one/inner/main_linux.go")
    assert gobuild.digest(ONE) != before


def test_the_digest_does_not_change_with_a_files_age_or_place(sources: Path, tmp_path: Path) -> None:
    before = gobuild.digest(ONE)
    os.utime(sources / "one/inner/main.go", (1, 1))
    assert gobuild.digest(ONE) == before
    sources.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", sources)
    assert gobuild.digest(ONE) == before


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Module) if field.name != "folder"])
def test_the_digest_changes_with_every_setting(field: str) -> None:
    value = getattr(ONE, field)
    changed: Any = f"{value} x" if isinstance(value, str) else (*value, "x")
    assert gobuild.digest(dataclasses.replace(ONE, **{field: changed})) != gobuild.digest(ONE)


@pytest.mark.parametrize(
    ("module", "version"),
    [("k8s.io/kubernetes", "v1.35.2"), ("go.etcd.io/etcd", "v3.6.0"), ("go.etcd.io/etcd/api/v3", "v3.6.1")],
)
def test_a_version_is_found_where_it_is_pinned(module: str, version: str) -> None:
    assert gobuild.required("one", module) == version


def test_a_pin_that_is_missing_is_reported_with_where_it_should_be() -> None:
    with pytest.raises(SeltzerError, match=r"one/go\.mod does not require example\.com/none"):
        gobuild.required("one", "example.com/none")


def test_kubernetes_knows_its_own_version() -> None:
    words = gobuild.kubernetes_ldflags("v1.35.2").split()
    prefix = "k8s.io/component-base/version."
    assert {word.removeprefix(prefix) for word in words if word.startswith(prefix)} == {
        "gitVersion=v1.35.2",
        "gitMajor=1",
        "gitMinor=35",
    }
    assert words.count("-X") == 3


def test_all_programs_are_found_in_one_folder_under_all_their_names(tmp_path: Path) -> None:
    folder = gobuild.build(Progress())
    assert {file.name for file in folder.iterdir()} == {"first", "uno", "eins", "second", "third"}
    assert (folder / "eins").read_text() == "one\n"
    assert (folder / "third").read_text() == "two\n"
    assert "-tags some" in (tmp_path / "calls").read_text()


def test_what_was_built_is_not_built_again(tmp_path: Path, sources: Path) -> None:
    folder = gobuild.build(Progress())
    assert gobuild.build(Progress()) == folder
    assert calls(tmp_path) == ["one", "two"]
    with (sources / "two/go.mod").open("a") as pins:
        pins.write("// changed\n")
    assert gobuild.build(Progress()) != folder
    assert calls(tmp_path) == ["one", "two", "two"]


@pytest.mark.parametrize(
    "script",
    ["echo half > $out/second; exit 1", "echo half > $out/second", "true"],
    ids=["it fails", "it forgets a program", "it makes nothing"],
)
def test_a_failed_build_leaves_nothing_that_looks_finished_and_keeps_the_others(
    tmp_path: Path, sources: Path, script: str
) -> None:
    recipe(sources / "two", f"until ls $XDG_CACHE_HOME/seltzer/bin/one-*; do sleep 0.02; done; {script}")
    with pytest.raises(SeltzerError, match=r"building the second: .* see .*/build-two\.log"):
        gobuild.build(Progress())
    assert finished(tmp_path / "cache") == {"one"}
    recipe(sources / "two", "echo two | tee $out/second > $out/third")
    folder = gobuild.build(Progress())
    assert (folder / "third").read_text() == "two\n"
    assert calls(tmp_path) == ["one", "two", "two"], "the first was not built again"


def test_what_no_sandbox_needs_is_built_when_it_is_asked_for(tmp_path: Path) -> None:
    everything = gobuild.build(Progress())
    assert calls(tmp_path) == ["one", "two"]
    folder = gobuild.build_one(Progress(), APART)
    assert (folder / "alone").read_text() == "apart\n"
    assert gobuild.build_one(Progress(), APART) == folder
    assert calls(tmp_path) == ["apart", "one", "two"], "it is built once, and nothing else with it"
    assert gobuild.build(Progress()) == everything, "nor is a sandbox another one for that"


def test_what_is_asked_for_alone_leaves_nothing_either_when_it_fails(tmp_path: Path, sources: Path) -> None:
    recipe(sources / "apart", "exit 1")
    with pytest.raises(SeltzerError, match=r"building the one apart: .* see .*/build-apart\.log"):
        gobuild.build_one(Progress(), APART)
    assert finished(tmp_path / "cache") == set()


def test_gos_caches_are_dropped_although_go_makes_them_read_only(tmp_path: Path, sources: Path) -> None:
    fill = "mkdir -p $GOMODCACHE/some $GOCACHE/some; echo > $GOMODCACHE/some/file; chmod -R a-w $GOMODCACHE"
    recipe(sources / "one", f"{fill}; echo > $out/first")
    gobuild.build(Progress())
    assert not [name for name in ("go-mod", "go-build") if (tmp_path / "cache/seltzer" / name).exists()]


def test_a_disk_that_is_too_small_is_reported_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gobuild, "DISK_NEEDED", 1 << 60)
    with pytest.raises(SeltzerError, match="XDG_CACHE_HOME"):
        gobuild.build(Progress())
    assert not (tmp_path / "calls").exists()


def test_every_real_module_has_its_pins_and_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    modules = (*gobuild.modules(), gobuild.kwok())
    programs = [name for module in modules for name in (*module.outputs, *module.called)]
    assert len(set(programs)) == len(programs), "they share one folder"
    for module in modules:
        assert (gobuild.SOURCES / module.folder / "go.mod").exists()
    assert gobuild.kubernetes_version().startswith("v1.")
