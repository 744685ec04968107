"""What `make demo` shows: Seltzer on a sandbox, a Slurm cluster with two NodeSets, and jobs that nothing disturbs."""

from __future__ import annotations

import json
import re
import tarfile
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, succeed, until

from seltzer.progress import Progress
from seltzer_sandbox import commands, demo
from seltzer_sandbox.build import images

NODES = {"cpu-0", "cpu-1", "highmem-0", "highmem-1"}


@pytest.fixture(scope="module")
def shown(sandbox: Sandbox) -> str:
    """What the demo says."""
    return succeed("demo", "--name", sandbox.name)


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox, shown: str) -> Cluster:
    return Cluster(sandbox, demo.NAMESPACE, demo.CLUSTER, user=demo.USER)


def test_the_demo_shows_all_that_it_promises(shown: str) -> None:
    answers = re.search(r"\$ seltzer srun .* --nodes=4 hostname\n((?:  \S+\n){4})", shown)
    assert answers, shown
    assert set(answers[1].split()) == NODES
    for line in (r"^demo +Ready ", r"^cpu: 2 -> 4$", r"idle cpu-\[2-3\]", r"^cpu: 4 -> 2$", r"was not disturbed$"):
        assert re.search(line, shown, re.MULTILINE), f"{line} isn't in\n{shown}"
    assert "Try next" in shown


def test_its_suggestions_work(cluster: Cluster, shown: str) -> None:
    for verb, says in (("status", "Ready"), ("logs", "slurmctld")):
        suggested = re.search(rf"^  seltzer ({verb} .*)$", shown, re.MULTILINE)
        assert suggested, shown
        assert says in cluster.sandbox.seltzer(*suggested[1].split()).stdout


def test_a_second_demo_finds_everything_there(cluster: Cluster) -> None:
    before = {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()}
    assert "was not disturbed" in succeed("demo", "--name", cluster.sandbox.name)
    after = {name: pod["metadata"]["uid"] for name, pod in cluster.pods().items()}
    assert after == before
    until("Slurm has no other nodes either", lambda: set(cluster.slurm_nodes()) == NODES)


def test_a_demo_that_was_changed_is_brought_back(cluster: Cluster) -> None:
    cluster.scale("highmem", 3)
    cluster.wait("nodeset/highmem", "Ready")
    succeed("demo", "--name", cluster.sandbox.name)
    until("Slurm has the demo's nodes", lambda: set(cluster.slurm_nodes()) == NODES)


def test_srun_answers_from_pods_on_different_nodes(cluster: Cluster) -> None:
    words = ("srun", "--nodes=2", "--constraint=cpu", "hostname")
    assert sorted(cluster.login(*words).split()) == ["cpu-0", "cpu-1"]
    assert len({pod["spec"]["nodeName"] for pod in cluster.pods("cpu").values()}) == 2


def test_a_job_runs_as_its_user(cluster: Cluster) -> None:
    assert cluster.login("srun", "id", "--user", "--name") == f"{demo.USER}\n"


def test_rest_tells_the_same(cluster: Cluster) -> None:
    assert {node["name"] for node in cluster.rest("nodes/")["nodes"]} == NODES
    job = cluster.sbatch("sleep 0.1")
    (found,) = cluster.rest(f"job/{job}")["jobs"]
    assert (found["job_id"], found["user_name"]) == (int(job), demo.USER)
    until("the job is done", lambda: cluster.rest(f"job/{job}")["jobs"][0]["job_state"] == ["COMPLETED"])


def test_rest_refuses_a_token_of_somebody_else(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match="slurmrestd answered with"):
        cluster.rest("nodes/", key=b"x" * 32)


def test_the_demo_has_two_users(cluster: Cluster) -> None:
    table = [line.split() for line in cluster.seltzer("users", cluster.name).stdout.splitlines()]
    assert [(row[0], row[3], row[-1]) for row in table[1:]] == [(name, "inline", "active") for name in demo.USERS]
    assert len(demo.USERS) == 2


def test_nothing_in_the_demo_is_privileged(cluster: Cluster) -> None:
    for pod in cluster.pods().values():
        for container in pod["spec"]["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert not context.get("privileged")


def test_the_images_tell_which_slurm_is_in_them(cluster: Cluster) -> None:
    installed = cluster.login("sinfo", "--version").split()[1]
    assert cluster.status()["slurmVersion"] == installed
    assert {node["version"] for node in cluster.rest("nodes/")["nodes"]} == {installed}
    with Progress() as progress:
        archive = images.archive(progress, commands.find(cluster.sandbox.name).binaries)
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
