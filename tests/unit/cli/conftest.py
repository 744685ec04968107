"""Slurm's answers to verbs of the CLI."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.fakes.slurm_output import NODES, printed

from seltzer.cli import kubectl
from seltzer.cli.kube import Place
from seltzer.errors import SeltzerError


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> list[str | SeltzerError]:
    """What slurmctld's commands print: change its only element. JSON stands for what scontrol tells of nodes."""
    answers: list[str | SeltzerError] = [NODES]

    def output(place: Place, pod: str, container: str, command: Sequence[str]) -> str:
        assert (place.namespace, pod, container) == ("ns", "deployment/demo-slurmctld", "slurmctld")
        if isinstance(answers[0], SeltzerError):
            raise answers[0]
        return answers[0] if answers[0] == "half" else printed(told=answers[0], separator=command[4])

    monkeypatch.setattr(kubectl, "output", output)
    return answers
