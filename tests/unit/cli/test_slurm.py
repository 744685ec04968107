"""All words after the cluster's name are Slurm's, and reach it as they were written."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders import objects
from tests.builders.objects import condition
from tests.programs import write_program

from seltzer.api.common import Condition
from seltzer.api.slurmcluster import SlurmCluster, SlurmClusterStatus
from seltzer.cli import kube, kubectl, main, slurm
from seltzer.errors import SeltzerError
from seltzer.kube.config import Config

Run = Callable[..., list[str]]


def test_a_cluster_with_users_of_its_own_wants_to_know_who_it_is() -> None:
    plain = objects.cluster()
    named = objects.cluster({"users": {"inline": {"users": [{"name": "alice", "uid": 2001}]}}})
    assert [slurm.default_user(plain, each) for each in ("srun", "squeue")] == ["user", "user"]
    assert [slurm.default_user(named, each) for each in ("squeue", "sinfo")] == ["root", "root"]
    for command in ("srun", "sbatch", "scancel", "scontrol", "sh"):
        with pytest.raises(SeltzerError, match="--user NAME before the cluster's name"):
            slurm.default_user(named, command)


def cluster(*conditions: Condition, logins: int = 1) -> SlurmCluster:
    status = SlurmClusterStatus(conditions=conditions)
    return objects.cluster({"login": {"replicas": logins}}, namespace="here", status=status)


@pytest.mark.parametrize(
    ("words", "arranged"),
    [
        ("srun demo", "srun demo --"),
        ("srun demo -n 2 hostname", "srun demo -- -n 2 hostname"),
        ("srun -n ns demo -n 2 hostname", "srun -n ns demo -- -n 2 hostname"),
        ("srun -nns demo -n2", "srun -nns demo -- -n2"),
        ("srun --namespace=ns --user root demo --help", "srun --namespace=ns --user root demo -- --help"),
        ("srun demo -- -h -- --version", "srun demo -- -- -h -- --version"),
        ("-n ns --context=c squeue demo -u me", "squeue -n ns --context=c demo -- -u me"),
        ("srun --help", "srun --help"),
        ("srun -n ns -h demo", "srun -n ns -h"),
        ("srun", "srun"),
        ("srun -n", "srun -n"),
        ("-n ns status demo", "status -n ns demo"),
        ("status demo -n ns", "status demo -n ns"),
        ("-n ns", "-n ns"),
        ("", ""),
    ],
)
def test_slurms_words_are_kept_apart_from_ours(words: str, arranged: str) -> None:
    assert main.arrange(words.split()) == arranged.split()


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("job.sh", 0),
        ("-N 2 job.sh arg.txt", 2),
        ("-N2 job.sh", 1),
        ("-vvH job.sh", 1),
        ("-HN 2 job.sh", 2),
        ("--nodes 2 job.sh", 2),
        ("--nodes=2 job.sh", 1),
        ("-o out.txt job.sh", 2),
        ("--hold --wait --exclusive job.sh", 3),
        ("--export NONE job.sh", 2),
        ("-- -job.sh", 1),
        ("--wrap hostname", None),
        ("-N 2", None),
        ("--", None),
        ("", None),
    ],
)
def test_the_script_is_found_among_sbatchs_words(words: str, script: int | None) -> None:
    assert slurm.script_at(words.split()) == script


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command with a cluster that is there; returns the words that kubectl gets."""
    place = kube.Place(Config("https://server", ssl.create_default_context()), "here", ("--context", "c"))
    monkeypatch.setattr(kube, "locate", lambda namespace, context: place)
    monkeypatch.setattr(kube, "talk", lambda place, about: cluster(condition("Ready")))
    monkeypatch.setattr(kubectl, "find", lambda: "/kubectl")

    def run(*words: str) -> list[str]:
        became: list[list[str]] = []

        def execv(path: str, words: list[str]) -> None:
            became.append(words)
            raise SystemExit(0)

        monkeypatch.setattr(os, "execv", execv)
        monkeypatch.setattr(sys, "argv", ["seltzer", *words])
        with pytest.raises(SystemExit):
            main.main()
        return became[0]

    return run


def test_a_command_runs_on_a_login_pod_as_a_user(run: Run) -> None:
    words = run("srun", "demo", "-n", "2", "--", "sh", "-c", "echo '$x'")
    assert words[:5] == ["kubectl", "--context", "c", "--namespace", "here"]
    assert words[5:11] == ["exec", "--stdin", "--quiet", "deployment/demo-login", "--container", "login"]
    assert words[-8:] == ["user", "srun", "-n", "2", "--", "sh", "-c", "echo '$x'"]


def test_another_user_is_asked_for_before_the_name(run: Run) -> None:
    assert run("scontrol", "--user", "root", "demo", "show", "config")[-4:] == ["root", "scontrol", "show", "config"]


def test_a_shell_is_a_login_shell_or_any_command(run: Run) -> None:
    assert run("shell", "demo")[-1] == 'exec "$SHELL" -l'
    assert run("shell", "demo", "sacct", "-a")[-3:] == ["user", "sacct", "-a"]


def test_a_script_that_is_here_is_sent_along_under_its_own_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "my job.sh"
    script.write_text("#!/bin/sh\n")
    sent: list[Path | None] = []
    monkeypatch.setattr(kubectl, "become", lambda place, *words: os.execv("", list(words)))
    monkeypatch.setattr(os, "dup2", lambda file, to: sent.append(Path(f"/proc/self/fd/{file}").readlink()))
    words = run("sbatch", "demo", "-N", "2", str(script), "one", "two words")
    assert sent == [script]
    there = words[-6]
    assert there.startswith("/tmp/seltzer-") and there.endswith("/my job.sh")
    assert words[-5:] == ["-N", "2", there, "one", "two words"]


def test_a_script_that_is_not_here_is_looked_for_there(run: Run) -> None:
    assert run("sbatch", "demo", "nowhere/job.sh")[-3:] == ["user", "sbatch", "nowhere/job.sh"]


def test_without_login_pods_it_says_why() -> None:
    with pytest.raises(SeltzerError, match=r"spec.login.replicas is 0; set it"):
        slurm.deployment(cluster(logins=0), None)
    with pytest.raises(SeltzerError, match="the operator hasn't made demo yet"):
        slurm.hindrance(cluster())


def test_commands_run_on_the_named_login_set_or_the_first_that_has_pods() -> None:
    sets = {"logins": [{"name": "none", "replicas": 0}, {"name": "gpu"}]}
    assert slurm.deployment(objects.cluster(sets), None) == "deployment/demo-login"
    assert slurm.deployment(objects.cluster(sets), "gpu") == "deployment/demo-login-gpu"
    assert slurm.deployment(objects.cluster({"login": {"replicas": 0}, **sets}), None) == "deployment/demo-login-gpu"
    with pytest.raises(SeltzerError, match="demo has no login set 'gpo'; did you mean 'gpu'"):
        slurm.deployment(objects.cluster(sets), "gpo")
    with pytest.raises(SeltzerError, match=r"no login pods, since its replicas of none in spec.logins is 0"):
        slurm.deployment(objects.cluster(sets), "none")
    with pytest.raises(SeltzerError, match="no login set 'gpu'; there are none"):
        slurm.deployment(objects.cluster(), "gpu")


def test_a_cluster_that_is_not_ready_is_reported_and_tried() -> None:
    assert slurm.hindrance(cluster(condition("LoginReady"), condition("ControllerReady"))) == ""
    note = slurm.hindrance(cluster(condition("ControllerReady", "False", "Starting", "slurmctld is starting")))
    assert note == "note: demo isn't ready: slurmctld is starting (Starting)"


def test_a_command_that_fails_is_reported_in_its_own_words(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = "E1116 00:13:02.431074 20562 websocket.go:296] Unknown stream"
    lines = (noise, "scontrol: no", "command terminated with exit code 1")
    script = "#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines) + "exit 1\n"
    fake = write_program(tmp_path / "kubectl", script)
    monkeypatch.setattr(kubectl, "find", lambda: str(fake))
    with pytest.raises(SeltzerError, match=r"^scontrol: no$"):
        kubectl.output(kube.locate(None, None), "pod/x", "x", ["scontrol"])
