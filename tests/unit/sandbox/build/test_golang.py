"""Which Go is good enough, and what the fallback is pinned to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.programs import write_program

from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox.build import golang


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.27 linux/arm64", (1, 27, 0)),
        ("go version go1.26.1-X:nodwarf5 linux/amd64", (1, 26, 1)),
        ("go version devel go1.28-a1b2c3d Mon Jan 1 00:00:00 2029 +0000 linux/amd64", (1, 28, 0)),
        ("go version go1.27rc2 linux/amd64", (1, 27, -1)),
        ("gccgo, who knows", (0, 0, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_the_version_is_found_in_what_go_says(said: str, version: golang.Version) -> None:
    assert golang.parse(said) == version


def test_a_preview_comes_before_its_release_and_after_the_one_before() -> None:
    assert golang.parse("go1.26.9") < golang.parse("go1.27rc1") < golang.parse("go1.27.0")


def test_the_pinned_go_can_build_all_of_our_modules() -> None:
    assert golang.parse(f"go{golang.pinned()}") >= golang.needed() > (1, 0, 0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return tmp_path


def put_go(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return write_program(folder / "go", f"#!/bin/sh\n{script}\n")


def test_a_go_on_path_that_is_new_enough_is_used(home: Path) -> None:
    program = put_go(home / "bin", "echo go version go99.0.1 linux/amd64")
    assert golang.go(Progress()) == program


@pytest.mark.parametrize("script", ["echo go version go1.19.8 linux/amd64", "echo broken >&2; exit 3", "echo hello"])
def test_an_old_or_broken_go_on_path_is_passed_over(home: Path, script: str) -> None:
    put_go(home / "bin", script)
    ours = put_go(home / "cache/seltzer/go" / golang.pinned() / "go/bin", "")
    assert golang.go(Progress()) == ours


def test_go_is_asked_for_its_own_version_and_not_for_one_it_would_download(home: Path) -> None:
    program = put_go(home / "bin", 'test "$GOTOOLCHAIN" = local && echo go version go99.0.1 linux/amd64')
    assert golang.go(Progress()) == program


def test_a_download_that_fails_leaves_nothing_that_looks_finished(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = put_go(home / "broken", "exit 1")
    monkeypatch.setattr(sys, "executable", str(interpreter))
    put_go(home / "bin", "exit 1")
    with pytest.raises(SeltzerError, match=r"downloading Go .* see .*go\.log"):
        golang.go(Progress())
    assert list((home / "cache/seltzer/go").iterdir()) == []
