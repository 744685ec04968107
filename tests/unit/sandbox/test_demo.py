"""The demo's manifests are such as users write, it knows a disturbed job, and it ends at the first problem."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import wraps
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.programs import write_program

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.cli import install, kube, status
from seltzer.cli.main import arrange, build
from seltzer.errors import SeltzerError
from seltzer_sandbox import commands, demo

UNDISTURBED = {"JobState": "RUNNING", "StartTime": "T1", "NodeList": "cpu-[0-1]", "Restarts": "0", "ExitCode": "0:0"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo changes both; the monkeypatch brings them back."""
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("PATH", os.environ["PATH"])


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the demo did, where nothing of it is real and all of it goes well."""
    done: list[str] = []
    sandbox = SimpleNamespace(layout=SimpleNamespace(kubeconfig=tmp_path / "kubeconfig"), binaries=tmp_path)
    monkeypatch.setattr(commands, "up", lambda *_: done.append("up"))
    monkeypatch.setattr(commands, "find", lambda _: sandbox)
    # With its options, which the demo suggests to use.
    monkeypatch.setattr(install, "install", wraps(install.install)(lambda: done.append("install")))
    monkeypatch.setattr(kube, "locate", lambda _: None)
    monkeypatch.setattr(demo, "_bring_up", lambda _: done.append("cluster"))
    monkeypatch.setattr(status, "status", lambda *_, **__: done.append("status"))
    monkeypatch.setattr(demo, "_slurm", lambda _, verb, *__: done.append(verb))
    monkeypatch.setattr(demo, "_scale_under_a_job", lambda *_: done.append("scale"))
    return done


def test_its_manifests_are_what_the_api_takes_and_one_partition_spans_both_nodesets() -> None:
    namespace, cluster, *nodesets = demo.manifests()
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "baseline"}
    assert msgspec.convert(cluster, SlurmCluster).metadata.namespace == namespace["metadata"]["name"]
    read = [msgspec.convert(nodeset, NodeSet) for nodeset in nodesets]
    assert [(each.metadata.name, each.spec.replicas, each.spec.partition.name) for each in read] == [
        ("cpu", 2, "main"),
        ("highmem", 2, "main"),
    ]
    assert {each.spec.cluster_ref.name for each in read} == {cluster["metadata"]["name"]}


def test_all_goes_in_order(steps: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    demo.demo(name="other")
    assert steps == ["up", "install", "cluster", "status", "srun", "scale"]
    assert "seltzer sandbox down --name other" in capsys.readouterr().out


def test_what_it_suggests_is_understood(steps: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    demo.demo()
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  seltzer ")]
    suggested = [words.split() for line in lines for words in line.split(" && ")]
    assert len(suggested) >= 8
    for words in suggested:
        build(words[1]).parse_args(arrange(words[1:]), exit_on_error=False, print_error=False)


def test_it_ends_at_the_first_problem(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise SeltzerError("the cluster isn't ready")

    monkeypatch.setattr(demo, "_bring_up", fail)
    with pytest.raises(SeltzerError, match="isn't ready"):
        demo.demo()
    assert steps == ["up", "install"]


def test_a_cluster_with_problems_is_one(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "status", lambda *_, **__: sys.exit(3))
    with pytest.raises(SeltzerError, match="problems above"):
        demo.demo()
    assert steps == ["up", "install", "cluster"]


@pytest.mark.parametrize(
    "change", [{"StartTime": "T2"}, {"NodeList": "cpu-[1-2]"}, {"Restarts": "1"}, {"ExitCode": "1:0"}], ids=str
)
def test_a_job_that_was_moved_or_started_over_was_disturbed(change: dict[str, str]) -> None:
    assert next(iter(change)) in demo.differences(UNDISTURBED, {**UNDISTURBED, **change})


def test_a_job_that_only_ended_was_not_disturbed() -> None:
    assert demo.differences(UNDISTURBED, {**UNDISTURBED, "JobState": "COMPLETED", "EndTime": "T9"}) == ""


def test_its_job_succeeds_when_it_is_told_to_end(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    # The first sleep tells the script to end, as scancel would.
    write_program(tmp_path / "bin" / "sleep", "#!/bin/sh\nkill -USR1 $PPID\n")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", demo.SCRIPT], env={"PATH": path}, check=False)
    assert done.returncode == 0
