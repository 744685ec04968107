"""seff, which the login image has: its reading of Slurm's answers, and what it prints."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

SOURCE = Path(__file__).parents[3] / "images" / "slurm" / "seff.py"
DISABLED = "Slurm accounting storage is disabled"
GIB = 1 << 30


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("seff", SOURCE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["seff"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


seff: Any = _load()
Slurm = Callable[[Mapping[str, str]], None]


def rows(*lines: tuple[str, ...]) -> str:
    return "".join("\x1f".join(line) + "\n" for line in lines)


def queue_row(
    state: str = "RUNNING", id_: str = "12", allocated: str = "cpu=4,mem=8G,node=2,billing=4"
) -> tuple[str, ...]:
    return (id_, "12", "demo", "ada", "users", state, "0:0", "2", "4", "1:00", allocated, "")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Programs by name, each with what it prints; one whose text begins with `error:` fails with it."""

    def say(answers: Mapping[str, str]) -> None:
        def run(line: list[str], **_: object) -> SimpleNamespace:
            answer = answers[line[0]]
            if answer.startswith("error:"):
                return SimpleNamespace(returncode=1, stdout="", stderr=f"{line[0]}: {answer}\n")
            return SimpleNamespace(returncode=0, stdout=answer, stderr="")

        monkeypatch.setattr(seff.subprocess, "run", run)

    return say


def test_a_job_that_ended_is_reported_as_seff_does_everywhere(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    job = (
        "12",
        "12",
        "demo",
        "ada",
        "users",
        "COMPLETED",
        "0:0",
        "2",
        "8",
        "3600",
        "04:00:00",
        "cpu=8,mem=16G,node=2",
        "",
    )
    batch = (
        "12.batch",
        "12.batch",
        "demo",
        "",
        "",
        "COMPLETED",
        "0:0",
        "1",
        "4",
        "3600",
        "00:01",
        "cpu=4",
        "cpu=00:00:01,mem=512M",
    )
    step = (
        "12.0",
        "12.0",
        "demo",
        "",
        "",
        "COMPLETED",
        "0:0",
        "2",
        "8",
        "3590",
        "03:59:59",
        "cpu=8",
        "cpu=03:59:59,mem=4G",
    )
    slurm({"sacct": rows(job, batch, step)})
    assert seff.main(["12"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Job ID: 12",
        "Cluster: demo",
        "User/Group: ada/users",
        "State: COMPLETED (exit code 0)",
        "Nodes: 2",
        "Cores per node: 4",
        "CPU Utilized: 04:00:00",
        "CPU Efficiency: 50.00% of 08:00:00 core-walltime",
        "Job Wall-clock time: 01:00:00",
        "Memory Utilized: 4.00 GB",
        "Memory Efficiency: 25.00% of 16.00 GB",
    ]


def test_without_accounting_a_job_that_runs_shows_its_usage_so_far(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = "12.batch|cpu=00:00:30,energy=0,mem=1G\n12.0|cpu=00:01:30,energy=0,mem=3072M\n"
    slurm({"sacct": f"error: {DISABLED}", "squeue": rows(queue_row()), "sstat": usage})
    assert seff.main(["12"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "State: RUNNING" in said
    assert "CPU Efficiency so far: 50.00% of 00:04:00 core-walltime" in said
    assert "Memory Efficiency so far: 50.00% of 8.00 GB" in said


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            {"sacct": f"error: {DISABLED}", "squeue": rows(queue_row("FAILED"))},
            "CPU Utilized: unknown: this cluster keeps no accounting",
        ),
        (
            {"sacct": "error: Unable to contact slurm database", "squeue": rows(queue_row("COMPLETED"))},
            "CPU Utilized: unknown: Unable to contact slurm database",
        ),
        ({"sacct": "", "squeue": rows(queue_row()), "sstat": ""}, "unknown: Slurm has not measured this job yet"),
        ({"sacct": "", "squeue": rows(queue_row()), "sstat": "error: Access denied"}, "unknown: Access denied"),
        ({"sacct": "", "squeue": rows(queue_row("PENDING"))}, "Efficiency: known once the job runs"),
        (
            {"sacct": "", "squeue": rows(queue_row(allocated="cpu=4")), "sstat": "12.0|cpu=00:01,mem=1M\n"},
            "the job has no limit of its own",
        ),
        ({"sacct": "", "squeue": rows(queue_row("PENDING", "12_3"))}, "Array Job ID: 12_3"),
    ],
)
def test_what_is_not_known_is_said(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], answers: dict[str, str], expected: str
) -> None:
    slurm(answers)
    assert seff.main(["12"]) == 0
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "answers", "expected"),
    [
        ("x", {}, "'x' isn't the ID of a job"),
        ("--x=1", {}, ""),
        ("7", {"sacct": "", "squeue": ""}, "job 7 isn't known"),
        ("7", {"sacct": "", "squeue": "error: Invalid job id specified"}, "job 7 isn't known"),
        (
            "7",
            {"sacct": "", "squeue": "error: Unable to contact slurm controller"},
            "Unable to contact slurm controller",
        ),
    ],
)
def test_a_wrong_question_and_a_silent_slurm_get_one_line(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], asked: str, answers: dict[str, str], expected: str
) -> None:
    slurm(answers)
    try:
        code = seff.main([asked])
    except SystemExit as end:  # argparse's own
        code = end.code
    said = capsys.readouterr()
    assert code and not said.out
    assert expected in said.err and "Traceback" not in said.err


def test_slurm_has_a_deadline_and_may_be_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, expected in (
        (subprocess.TimeoutExpired("squeue", 1), "squeue didn't answer within 20 s"),
        (FileNotFoundError(2, "No such file or directory"), "squeue can't be run: No such file or directory"),
    ):

        def run(*_: object, error: Exception = error, **options: object) -> None:
            assert options["timeout"] == seff.PATIENCE
            raise error

        monkeypatch.setattr(seff.subprocess, "run", run)
        assert seff.main(["7"]) == 1
        assert expected in capsys.readouterr().err


@given(st.text())
def test_no_answer_of_slurm_is_an_exception(answer: str) -> None:
    assert all(seff.text(job) for job in seff.queued(answer))
    assert seff.seconds(answer) is None or seff.seconds(answer) >= 0
    assert seff.memory(answer) is None or seff.memory(answer) >= 0


@given(
    st.lists(
        st.text(st.characters(codec="ascii", exclude_characters="\n\x1f")),
        min_size=11,
        max_size=11,
    )
)
def test_no_value_of_a_job_is_an_exception(values: list[str]) -> None:
    for job in seff.queued(rows((*values, ""))):
        assert seff.text(job)


def test_units() -> None:
    assert [seff.size(number) for number in (0, 1024, 1536 * 1024, 4 * GIB)] == [
        "0.00 KB",
        "1.00 KB",
        "1.50 MB",
        "4.00 GB",
    ]
    assert [seff.clock(number) for number in (0, 61.9, 86400 + 3661)] == ["00:00:00", "00:01:01", "1-01:01:01"]
    assert [seff.seconds(word) for word in ("1-02:03:04", "02:03:04", "03:04", "03:04.5", "INVALID")] == [
        93784,
        7384,
        184,
        184.5,
        None,
    ]
