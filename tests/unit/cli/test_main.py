"""Whatever goes wrong, the person at the terminal sees one line, and a script sees why in the exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

from seltzer import __version__
from seltzer.cli import kube, main
from seltzer.errors import SeltzerError
from seltzer_sandbox import commands
from seltzer_sandbox.commands import NodeStatus, Status

# Cyclopts thinks that a test means to pass it words; ours sets sys.argv, as a shell does.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

Run = Callable[..., tuple[int, str, str]]
SOME = Status(
    name="some",
    up=True,
    kubernetes="v1.35.2",
    server="https://127.0.0.1:1234",
    kubeconfig="/kubeconfig",
    kubectl="/kubectl",
    stopped=[],
    nodes=[NodeStatus("n1", "running", "True", "10.90.0.11"), NodeStatus("n2", "killed", "Unknown", "10.90.0.12")],
)


@pytest.fixture
def seltzer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; returns its exit code and what it printed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["seltzer", *words])
        code: Any = 0
        try:
            main.main()
        except SystemExit as end:
            code = end.code or 0
        return int(code), *capsys.readouterr()

    return run


def every_command() -> Iterator[tuple[str, ...]]:
    def below(app: App, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name in app:
            if not name.startswith("-"):
                yield from below(app[name], (*words, name))

    yield from below(main.build(), ())


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `seltzer sandbox status` end in this way."""

    def status(name: str) -> Status:
        raise error

    monkeypatch.setattr(commands, "status", status)


def test_the_commands_are_those_that_we_know() -> None:
    shared = ("install", "upgrade", "uninstall", "version", "operator", "create", "status", "events", "logs", "scale")
    nodes = ("nodes", "explain", "top", "drain", "resume")
    slurm = ("shell", "srun", "sbatch", "squeue", "sinfo", "scontrol", "scancel")
    assert {
        *((verb,) for verb in (*shared, *nodes, *slurm, "failover", "debug", "completion", "demo")),
        *(("sandbox", verb) for verb in ("up", "down", "status", "kubeconfig", "kubectl", "load", "logs", "node")),
        *(("sandbox", "node", verb) for verb in ("kill", "cut", "freeze", "heal")),
    } <= set(every_command())


@pytest.mark.parametrize("words", list(every_command()), ids=lambda words: " ".join(words) or "seltzer")
def test_every_command_has_help(seltzer: Run, words: tuple[str, ...]) -> None:
    code, out, err = seltzer(*words, "--help")
    assert (code, err) == (0, "")
    usage, _, text = out.strip().partition("\n")
    assert usage.startswith(f"Usage: {' '.join(('seltzer', *words))}")
    first = next(line for line in text.splitlines() if line.strip())
    assert not first.startswith("╭"), "no line says what it is for"


def test_the_version_is_ours(seltzer: Run) -> None:
    assert seltzer("--version") == (0, f"{__version__}\n", "")


def test_an_error_is_one_line_and_exits_with_1(seltzer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, SeltzerError(f"it broke\nover two lines; see /a [folder]/{'long' * 50}, with [/] in it"))
    code, out, err = seltzer("sandbox", "status")
    assert (code, out) == (1, "")
    assert err == f"error: it broke over two lines; see /a [folder]/{'long' * 50}, with [/] in it\n"


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("sandbox", "nonsense"),
        ("sandbox", "status", "--nonsense"),
        ("sandbox", "status", "surplus"),
        ("sandbox", "up", "--nodes", "three"),
        ("sandbox", "status", "--output", "xml"),
        ("sandbox", "node", "kill"),
        ("sandbox", "load"),
        ("status", "some", "surplus"),
        ("status", "-o", "xml"),
        ("create",),
        ("scale", "cpu"),
        ("scale", "cpu", "many"),
        ("drain",),
        ("nodes",),
        ("nodes", "demo", "--output", "xml"),
        ("explain",),
        ("explain", "42", "surplus"),
        ("failover",),
        ("failover", "demo", "--timeout", "soon"),
        ("debug",),
        ("debug", "demo", "surplus"),
        ("completion", "csh"),
        ("srun",),
        ("srun", "--nodes=2", "demo", "hostname"),
        ("-n", "here"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_exits_with_2(seltzer: Run, words: tuple[str, ...]) -> None:
    code, out, err = seltzer(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1


def test_ctrl_c_is_one_line_and_exits_with_130(seltzer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    code, _, err = seltzer("sandbox", "status")
    assert code == 130
    assert err.startswith("interrupted") and "Traceback" not in err


def test_a_bug_is_one_line_that_names_the_log_with_the_details(
    seltzer: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fail_with(monkeypatch, ZeroDivisionError("not by\nzero [please]"))
    code, _, err = seltzer("sandbox", "status", "--name", "some")
    log = tmp_path / "state/seltzer/logs/crash.log"
    assert code == 70
    assert err.count("\n") == 1 and "Traceback" not in err
    assert "not by zero [please]" in err and "ZeroDivisionError" in err and str(log) in err
    assert "Traceback" in log.read_text()
    assert "$ seltzer sandbox status --name some" in log.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("sandbox", "up"),
        ("sandbox", "down"),
        ("sandbox", "status"),
        ("sandbox", "kubeconfig"),
        ("sandbox", "kubectl", "get", "nodes"),
        ("sandbox", "load", "archive.tar"),
        ("sandbox", "node", "kill", "n1"),
        ("demo",),
    ],
    ids=" ".join,
)
def test_whoever_is_not_root_is_told_so(seltzer: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, _, err = seltzer(*words)
    assert code == 1
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and err.splitlines()[-1] == errors[0]
    assert "root" in errors[0] and "sudo" in errors[0]


@pytest.mark.parametrize("words", [("status",), ("kubeconfig",), ("logs",), ("node", "heal", "n1"), ("load", "x")])
def test_a_sandbox_that_is_not_there_is_reported_with_how_to_make_it(
    seltzer: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    code, out, err = seltzer("sandbox", *words, "--name", "none")
    assert (code, out) == (1, "")
    assert "no sandbox 'none'" in err and "seltzer sandbox up" in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["Upper", "../escape", "", "a" * 31])
def test_a_name_that_cannot_be_is_refused_before_anything_is_made(
    seltzer: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    code, _, err = seltzer("sandbox", "status", "--name", name)
    assert code == 1 and "can't be a sandbox's name" in err
    assert not (tmp_path / "state/seltzer/sandboxes").exists()


def test_a_status_is_for_people_and_for_programs(seltzer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "status", lambda name: SOME)
    code, out, _ = seltzer("sandbox", "status")
    assert code == 0
    assert "v1.35.2 at https://127.0.0.1:1234" in out
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["NODE", "STATE", "READY", "ADDRESS"],
        ["n1", "running", "True", "10.90.0.11"],
        ["n2", "killed", "Unknown", "10.90.0.12"],
    ]
    code, out, _ = seltzer("sandbox", "status", "-o", "json")
    assert code == 0
    assert out == commands.encode(SOME) + "\n"


def test_a_status_exits_with_1_when_a_program_has_stopped(seltzer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Status("some", False, "v1", "https://", "/kubeconfig", "/kubectl", ["etcd", "n1/kubelet"], [])
    monkeypatch.setattr(commands, "status", lambda name: broken)
    code, out, _ = seltzer("sandbox", "status")
    assert code == 1
    assert "stopped: etcd, n1/kubelet" in out


def test_logs_end_with_their_newest_lines(seltzer: Run, tmp_path: Path) -> None:
    logs = tmp_path / "state/seltzer/sandboxes/some/logs"
    logs.mkdir(parents=True)
    (logs / "etcd.log").write_bytes(b"one\n\xff two\nthree\n")
    (logs / "n1-kubelet.log").write_text("four\n")
    assert seltzer("sandbox", "logs", "etcd", "--name", "some", "--tail", "2") == (0, "� two\nthree\n", "")
    assert seltzer("sandbox", "logs", "etcd", "--name", "some", "--tail", "0") == (0, "", "")
    assert seltzer("sandbox", "logs", "n1/kubelet", "--name", "some") == (0, "four\n", "")
    code, out, _ = seltzer("sandbox", "logs", "--name", "some")
    assert code == 0
    assert [line for line in out.splitlines() if not line.startswith("==>")] == ["one", "� two", "three", "four"]
    code, _, err = seltzer("sandbox", "logs", "nobody", "--name", "some")
    assert code == 1 and "no log of 'nobody'; there are etcd, n1-kubelet" in err
    code, _, err = seltzer("sandbox", "logs", "--name", "some", "--tail", "-1")
    assert code == 1 and "--tail" in err


def test_ctrl_c_speaks_of_sandboxes_only_where_there_is_one(seltzer: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kube, "locate", status)
    assert seltzer("status") == (130, "", "interrupted\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion(seltzer: Run, shell: str) -> None:
    code, out, err = seltzer("completion", shell)
    assert (code, err) == (0, "")
    assert "scancel" in out and "--namespace" in out


def test_the_list_of_verbs_is_there_before_anything_large_is_imported() -> None:
    ask = """
import sys
from seltzer.cli import main
sys.argv = ["seltzer", "--help"]
main.main()
print(*{"aiohttp", "yaml", "rich.markdown", "seltzer.kube", "seltzer_sandbox"} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    assert "scancel" in done.stdout
    assert (done.returncode, done.stderr.split()) == (0, [])
