"""What the keys of `seltzer top` run, and where."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import pytest
from tests.fakes.top_world import CONTROLLER, facts, job, node

from seltzer.cli import kubectl
from seltzer.cli.kube import Place
from seltzer.cli.top.actions import KubectlActions, cancelling
from seltzer.errors import SeltzerError
from seltzer.kube.config import Config
from seltzer.slurm.snapshot import Job

PLACE = Place(Config("https://one", ssl.create_default_context()), "ns", ("--context", "one"))
KNOWN = facts([node("cpu-0"), node("cpu-1", "IDLE", "DRAIN", reason="bad fan", by="grace")], [job(7, "cpu-0")])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What was run beside slurmctld."""
    found: list[tuple[str, ...]] = []

    def output(place: Place, pod: str, container: str, command: Sequence[str]) -> str:
        assert (place, pod, container) == (PLACE, f"pod/{CONTROLLER}", "slurmctld")
        found.append(tuple(command))
        return ""

    monkeypatch.setattr(kubectl, "output", output)
    monkeypatch.setattr(kubectl, "find", lambda: "kubectl")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    return found


async def test_a_drain_is_signed(ran: list[tuple[str, ...]]) -> None:
    assert await KubectlActions(PLACE).drain(KNOWN, "cpu-0", " bad  fan ") == "cpu-0 takes no new jobs (bad fan)"
    assert ran == [("scontrol", "update", "NodeName=cpu-0", "State=DRAIN", "Reason=bad fan [ada]")]


@pytest.mark.parametrize("reason", ["", "seltzer: scale-in"])
async def test_a_reason_that_will_not_do_drains_nothing(ran: list[tuple[str, ...]], reason: str) -> None:
    with pytest.raises(SeltzerError):
        await KubectlActions(PLACE).drain(KNOWN, "cpu-0", reason)
    assert ran == []


async def test_a_drained_node_is_resumed(ran: list[tuple[str, ...]]) -> None:
    assert await KubectlActions(PLACE).resume(KNOWN, "cpu-1") == "cpu-1 takes jobs again"
    assert ran == [("scontrol", "update", "NodeName=cpu-1", "State=RESUME")]


async def test_one_that_takes_jobs_is_not(ran: list[tuple[str, ...]]) -> None:
    with pytest.raises(SeltzerError, match="cpu-0 is neither drained nor down"):
        await KubectlActions(PLACE).resume(KNOWN, "cpu-0")
    assert ran == []


async def test_a_job_is_cancelled(ran: list[tuple[str, ...]]) -> None:
    assert await KubectlActions(PLACE).cancel(KNOWN, job(7, "cpu-0")) == "job 7 is cancelled"
    assert ran == [("scancel", "7")]


@pytest.mark.parametrize(
    ("id_", "words"),
    [
        ("42", ["scancel", "42"]),
        ("42_7", ["scancel", "42_7"]),
        ("42+1", ["scancel", "42+1"]),
        ("42_[8-99%4]", ["scancel", "--state=PENDING", "42"]),  # those of the array that run go on
    ],
)
def test_tasks_that_wait_are_cancelled_without_those_that_run(id_: str, words: list[str]) -> None:
    assert cancelling(Job(id_, 42, "ada", "train", "PENDING", "", "cpu")) == words


def test_logs_are_followed(ran: list[tuple[str, ...]]) -> None:
    logs = KubectlActions(PLACE).logs
    begin = ["kubectl", "--context", "one", "--namespace", "ns", "logs"]
    end = ["--follow", "--tail=1000"]
    assert logs(KNOWN, "cpu-0") == [*begin, "pod/cpu-0", "--container", "slurmd", *end]
    assert logs(KNOWN, None) == [*begin, f"pod/{CONTROLLER}", "--container", "slurmctld", *end]
    with pytest.raises(SeltzerError, match="cpu-9 has no pod, so there is no log"):
        logs(KNOWN, "cpu-9")
