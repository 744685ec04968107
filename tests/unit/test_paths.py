"""Where the sandbox keeps its things."""

from __future__ import annotations

from pathlib import Path

import pytest

from seltzer import paths


def test_the_xdg_variables_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    assert (paths.cache(), paths.state()) == (tmp_path / "c/seltzer", tmp_path / "s/seltzer")


@pytest.mark.parametrize("value", [None, "", "relative/path"])
def test_without_a_valid_variable_it_is_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert (paths.cache(), paths.state()) == (tmp_path / ".cache/seltzer", tmp_path / ".local/state/seltzer")


def test_the_log_folder_is_there_when_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert paths.logs() == tmp_path / "seltzer/logs"
    assert paths.logs().is_dir()
