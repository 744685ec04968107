"""Real Slurm on the sandbox, from plain manifests: what `make demo` shows."""

from __future__ import annotations

import json
import re
import tarfile
from typing import Any

import pytest
from tests.harness import Sandbox, succeed, until

from seltzer.sandbox import commands, demo, images
from seltzer.sandbox.demo.cluster import DemoCluster


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> DemoCluster:
    shown = succeed("demo", "--name", sandbox.name)
    answers = re.search(r"\$ srun --nodes=2 hostname\n  (\S+)\n  (\S+)\n", shown)
    assert answers, shown
    assert set(answers.groups()) == {"cpu-0", "cpu-1"}
    assert "Try next" in shown
    return DemoCluster(commands.find(sandbox.name))


def test_srun_answers_from_two_pods_on_two_nodes(cluster: DemoCluster) -> None:
    assert sorted(cluster.login("srun", "-N2", "hostname").split()) == ["cpu-0", "cpu-1"]
    places = cluster.places()
    assert set(places) == {"cpu-0", "cpu-1"}
    assert len(set(places.values())) == 2


def test_a_job_runs_as_its_user(cluster: DemoCluster) -> None:
    assert cluster.login("srun", "id", "--user", "--name") == "user\n"


def test_rest_tells_the_same(cluster: DemoCluster) -> None:
    nodes = {node["name"]: node for node in cluster.rest("nodes/")["nodes"]}
    assert set(nodes) == {"cpu-0", "cpu-1"}
    job = int(cluster.login("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 0.1"))
    (found,) = cluster.rest(f"job/{job}")["jobs"]
    assert (found["job_id"], found["user_name"]) == (job, "user")
    until("the job is done", lambda: cluster.rest(f"job/{job}")["jobs"][0]["job_state"] == ["COMPLETED"])


def test_rest_refuses_a_token_of_somebody_else(cluster: DemoCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = demo.token
    monkeypatch.setattr(demo, "token", lambda key, user: ours(b"x" * 32, user))
    with pytest.raises(Exception, match="slurmrestd answered with"):
        cluster.rest("nodes/")


def test_nothing_in_the_demo_is_privileged(cluster: DemoCluster, sandbox: Sandbox) -> None:
    for pod in sandbox.get("pods", "--namespace", demo.NAMESPACE)["items"]:
        for container in pod["spec"]["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert not context.get("privileged")


def test_the_images_tell_which_slurm_is_in_them(cluster: DemoCluster, sandbox: Sandbox) -> None:
    installed = cluster.login("sinfo", "--version").split()[1]
    assert {node["version"] for node in cluster.rest("nodes/")["nodes"]} == {installed}
    archive = images.ready(commands.find(sandbox.name).binaries)
    assert archive
    with tarfile.open(archive) as tar:

        def read(name: str) -> Any:
            file = tar.extractfile(name)
            assert file
            return json.load(file)

        labels = {
            image["RepoTags"][0]: read(image["Config"])["config"].get("Labels") for image in read("manifest.json")
        }
    for name in ("slurmctld", "slurmdbd", "slurmrestd", "slurmd", "login"):
        assert labels[f"seltzer.dev/{name}:dev"]["dev.seltzer.slurm.version"] == installed
