"""What `seltzer sandbox up` is asked for is checked before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from seltzer.errors import SeltzerError
from seltzer.progress import Progress
from seltzer_sandbox import commands


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ("0", "takes a number from 1 to 16, or 'real', not '0'"),
        ("17", "takes a number from 1 to 16"),
        ("many", "takes a number from 1 to 16"),
        ("-1", "takes a number from 1 to 16"),
        ("real", "this machine has no /dev/nvidia0"),
    ],
)
def test_gpus_that_no_sandbox_can_have_are_refused(
    gpus: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(commands, "_check_machine", lambda: None)
    monkeypatch.setattr(commands, "NVIDIA", tmp_path / "nvidia0")
    with pytest.raises(SeltzerError, match=words):
        commands.up(Progress(), "some", None, None, gpus)
    assert not list(tmp_path.iterdir())
