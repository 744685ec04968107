"""The sandbox is found where it is installed; where it is not, one line says so and every other verb works."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from seltzer.cli import kube, kubectl, main, sandbox
from seltzer.cli.sandbox import RunningSandbox
from seltzer.errors import SeltzerError
from seltzer.kube.errors import ConfigError
from seltzer_sandbox import commands

# Cyclopts thinks that a test means to pass it words; ours sets sys.argv, as a shell does.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation of the product alone, as in the operator's image."""
    monkeypatch.setattr(sandbox, "find_spec", lambda name: None)


@pytest.fixture
def no_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def exit_code(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["seltzer", *words])
    try:
        main.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    "words", [("sandbox", "up"), ("sandbox", "--help"), ("sandbox", "kubectl", "get", "pods"), ("demo",)], ids=" ".join
)
@pytest.mark.usefixtures("missing")
def test_a_verb_of_a_missing_sandbox_is_one_line_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert exit_code(monkeypatch, *words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: 'seltzer {words[0]}' needs the sandbox") and err.count("\n") == 1
    assert "make setup" in err


@pytest.mark.usefixtures("missing")
def test_the_help_of_the_product_alone_lists_all_other_verbs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "--help") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "scancel" in out and "completion" in out
    assert "sandbox" not in out and "demo" not in out


@pytest.mark.usefixtures("missing", "no_kubectl")
def test_without_the_package_there_is_nothing_to_fall_back_to(tmp_path: Path) -> None:
    assert sandbox.running() is None
    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        kube.locate(None, None, {"HOME": str(tmp_path)})
    with pytest.raises(SeltzerError, match="kubectl isn't on your PATH"):
        kubectl.find()


@pytest.mark.usefixtures("no_kubectl")
def test_the_sandbox_that_is_up_is_fallen_back_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    layout = SimpleNamespace(name="default", kubeconfig=tmp_path / "kubeconfig")
    monkeypatch.setattr(commands, "find", lambda name: SimpleNamespace(layout=layout, binaries=tmp_path / "bin"))
    assert sandbox.running() == RunningSandbox("default", tmp_path / "kubeconfig", tmp_path / "bin/kubectl")
    assert kubectl.find() == str(tmp_path / "bin/kubectl")


def test_a_sandbox_that_is_not_up_is_not_fallen_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> None:
        raise SeltzerError(f"sandbox {name!r} is not up")

    monkeypatch.setattr(commands, "find", find)
    assert sandbox.running() is None


@pytest.mark.parametrize(
    ("words", "name", "passed"),
    [
        (("get", "pods", "--help"), "default", ("get", "pods", "--help")),
        (("--name", "other", "get", "pods"), "other", ("get", "pods")),
        (("--name=other", "--", "exec", "pod", "--", "ls"), "other", ("exec", "pod", "--", "ls")),
        (("--", "--name", "its own"), "default", ("--name", "its own")),
    ],
    ids=str,
)
def test_kubectl_gets_its_words_as_they_are(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], name: str, passed: tuple[str, ...]
) -> None:
    called: list[tuple[tuple[str, ...], str]] = []
    monkeypatch.setattr("seltzer_sandbox.cli.kubectl", lambda *words, name: called.append((words, name)))
    sandbox.kubectl(list(words))
    assert called == [(passed, name)]
