"""Programs are run to their end, or the error says what was being done and where to look."""

from __future__ import annotations

from pathlib import Path

import pytest

from seltzer.errors import SeltzerError
from seltzer_sandbox import shell


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs/some.log"


def bash(script: str, log: Path, deadline: float = 3600.0, stdin: Path | None = None) -> str:
    return shell.run(["bash", "-c", script], doing="counting sheep", log=log, deadline=deadline, stdin=stdin)


def test_what_it_wrote_comes_back_and_its_errors_are_in_the_log(log: Path) -> None:
    assert bash("echo out; echo err >&2", log) == "out\n"
    assert "err\n" in log.read_text()


def test_the_log_can_be_pasted_into_a_shell(log: Path) -> None:
    bash("true 'two words'", log)
    assert log.read_text().startswith("$ bash -c 'true '\"'\"'two words'\"'\"''\n")


def test_a_failure_names_what_was_being_done_and_the_log_which_has_both_outputs(log: Path) -> None:
    with pytest.raises(SeltzerError) as error:
        bash("echo out; echo err >&2; exit 3", log)
    assert str(error.value) == f"counting sheep: failed with exit code 3; see {log}"
    assert {"out", "err", "exit code 3"} <= set(log.read_text().splitlines())


def test_a_program_that_does_not_end_is_ended_at_the_deadline(log: Path) -> None:
    with pytest.raises(SeltzerError, match=r"counting sheep: no end after 0 s; see "):
        bash("exec sleep 10000", log, deadline=0.2)


def test_a_missing_program_says_how_to_get_it(log: Path) -> None:
    with pytest.raises(SeltzerError, match=r"no-such-program is not installed; run 'make setup'"):
        shell.run(["no-such-program"], doing="counting sheep", log=log, deadline=3600)


def test_it_reads_a_file_of_ours_and_never_waits_for_the_keyboard(log: Path, tmp_path: Path) -> None:
    assert bash("cat", log, deadline=3600) == ""
    (tmp_path / "file").write_text("from us")
    assert bash("cat", log, deadline=3600, stdin=tmp_path / "file") == "from us"


def test_the_environment_is_added_to_ours(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "kept")
    words = shell.run(
        ["bash", "-c", "echo $OURS $MORE"], doing="looking", log=log, deadline=3600, env={"MORE": "added"}
    ).split()
    assert words == ["kept", "added"]


def test_bytes_that_are_no_text_do_no_harm(log: Path) -> None:
    assert bash(r"printf 'a\xffb'", log) == "a\N{REPLACEMENT CHARACTER}b"


def test_a_second_run_adds_to_the_log(log: Path) -> None:
    bash("echo first >&2", log)
    bash("echo second >&2", log)
    assert log.read_text().index("first") < log.read_text().index("second")
