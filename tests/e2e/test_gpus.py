"""GPUs as jobs see them: kubelet, devices, Slurm and its scheduling are real, only the cards are pretended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

from seltzer_sandbox.run.layout import Layout

MACHINES = 3
VISIBLE = 'echo "cuda=$CUDA_VISIBLE_DEVICES rocr=$ROCR_VISIBLE_DEVICES shards=$SLURM_SHARDS_ON_NODE"'
SET = 'echo "${CUDA_VISIBLE_DEVICES-unset} ${ROCR_VISIBLE_DEVICES-unset}"'


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    cluster = Cluster(installed, "gpus", "demo")
    cluster.create_from(Path(__file__).with_name("gpus.yaml"))
    cluster.wait_ready()
    yield cluster
    cluster.delete_later()


def srun(cluster: Cluster, partition: str, *words: str) -> list[str]:
    """What a shell script that is the last word prints in a job, line by line."""
    *options, script = words
    return sorted(cluster.login("srun", f"--partition={partition}", *options, "bash", "-c", script).splitlines())


@pytest.mark.parametrize(
    ("node", "gres"),
    [
        ("cpu-0", "(null)"),
        ("gpu-0", "gpu:nvidia_sandbox:2"),
        ("shared-0", "gpu:small:1,shard:small:4"),
        ("mig-0", "gpu:mig_1g.10gb:2"),
        ("amd-0", "gpu:2"),
    ],
)
def test_slurm_knows_the_number_and_the_type_without_a_gres_conf_of_the_user(
    cluster: Cluster, node: str, gres: str
) -> None:
    """Each machine has four GPUs, which its driver shows in every pod."""
    assert cluster.slurm_node(node)["Gres"] == gres


@pytest.mark.parametrize(
    ("partition", "options", "seen"),
    [
        ("gpu", ("--gres=gpu:1",), ["cuda=0 rocr= shards="]),
        ("gpu", ("--gres=gpu:nvidia_sandbox:2",), ["cuda=0,1 rocr= shards="]),
        ("gpu", ("--nodes=2", "--gpus=4"), ["cuda=0,1 rocr= shards="] * 2),
        ("gpu", ("--nodes=1", "--ntasks=2", "--gpus-per-task=1"), ["cuda=0 rocr= shards=", "cuda=1 rocr= shards="]),
        ("shared", ("--gres=shard:3",), ["cuda=0 rocr= shards=3"]),
        ("amd", ("--gpus=2",), ["cuda= rocr=0,1 shards="]),
        ("mig", ("--gres=gpu:1",), ["cuda=MIG-00000000-0000-0000-0000-000000000000 rocr= shards="]),
    ],
)
def test_a_job_sees_the_gpus_that_it_asked_for(
    cluster: Cluster, partition: str, options: tuple[str, ...], seen: list[str]
) -> None:
    assert srun(cluster, partition, *options, VISIBLE) == seen


@pytest.mark.parametrize(
    ("partition", "seen"), [("gpu", " unset"), ("mig", " unset"), ("amd", "unset "), ("cpu", "unset unset")]
)
def test_a_job_that_asks_for_none_sees_none(cluster: Cluster, partition: str, seen: str) -> None:
    """A program takes an empty value for no GPU, and an unset one for all of them."""
    assert srun(cluster, partition, SET) == [seen]


def test_a_batch_script_and_its_steps_see_what_each_of_them_has(cluster: Cluster) -> None:
    steps = f"{SET}; srun --gres=gpu:1 --ntasks=1 bash -c '{SET}'; srun --gres=none --ntasks=1 bash -c '{SET}'"
    done = cluster.login("sbatch", "--wait", "--parsable", "--partition=gpu", "--gres=gpu:2", f"--wrap={steps}")
    node = cluster.job(done.strip())["NodeList"]
    said = cluster.kubectl("exec", node, "-c", "slurmd", "--", "cat", f"/home/user/slurm-{done.strip()}.out").stdout
    assert said.splitlines() == ["0,1 unset", "0 unset", " unset"]


def test_two_jobs_on_a_node_have_different_gpus(cluster: Cluster) -> None:
    options = ("--partition=gpu", "--nodelist=gpu-0", "--gres=gpu:1")
    one = cluster.hold(*options)
    assert srun(cluster, "gpu", "--nodelist=gpu-0", "--gres=gpu:1", VISIBLE) == ["cuda=1 rocr= shards="]
    waiting = cluster.sbatch("true", *options[:2], "--gres=gpu:2")
    assert cluster.jobs()[waiting] == "PENDING", "one of the two is taken"
    wanted = {"gpu-0": (1, 2), "gpu-1": (0, 2), "cpu-0": (0, 0)}
    until("only the job that runs has one", lambda: wanted.items() <= used(cluster).items())
    until("the NodeSet counts it", lambda: cluster.nodeset("gpu")["status"]["gpus"] == {"total": 4, "used": 1})
    assert "1/4 GPUs" in cluster.seltzer("status", "demo", check=False).stdout
    assert "GPUS" in cluster.seltzer("nodes", "demo").stdout
    cluster.release(one)
    cluster.wait_for_job(waiting, "COMPLETED")


def used(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """How many GPUs of each node jobs have, and how many there are. A job that is COMPLETING still has its own."""
    shown = json.loads(cluster.seltzer("nodes", "demo", "--output=json").stdout)["nodes"]
    return {each["name"]: (each["slurm"]["allocatedGpus"], each["slurm"]["gpus"]) for each in shown}


@contextmanager
def lost(sandbox: Sandbox) -> Iterator[None]:
    """While pods get devices, all of them are missing, as if they had fallen off the bus."""
    layout = Layout(sandbox.name)
    files = [layout.node(number) / "varlib/seltzer-devices/lost" for number in range(1, MACHINES + 1)]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("0 1 2 3\n")
    try:
        yield
    finally:
        for file in files:
            file.unlink()


def add(cluster: Cluster, name: str, limits: dict[str, Any]) -> None:
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": limits}
    cluster.apply(cluster.manifest("NodeSet", name, {"clusterRef": {"name": "demo"}, "resources": resources}))


def ready(cluster: Cluster, nodeset: str) -> dict[str, Any]:
    return cluster.condition(f"nodeset/{nodeset}", "Ready")


def reason(cluster: Cluster, node: str) -> str:
    """Why Slurm gives it no jobs."""
    return cluster.login("sinfo", "--noheader", f"--nodes={node}", "--format=%E").strip()


def test_a_node_with_fewer_gpus_than_its_limits_say_takes_no_jobs_and_says_why(
    cluster: Cluster, installed: Sandbox
) -> None:
    why = "gres/gpu count reported lower than configured (0 < 1)"
    with lost(installed):
        add(cluster, "less", {"nvidia.com/gpu": 1})
        until("the NodeSet says why", lambda: why in ready(cluster, "less").get("message", ""))
    # The condition passes through Starting.
    until("the reason is NotAvailable", lambda: ready(cluster, "less")["reason"] == "NotAvailable")
    assert reason(cluster, "less-0") == why
    assert cluster.run("srun", "--partition=less", "--immediate=1", "true").code != 0
    (slurmd,) = cluster.get("pod/less-0")["status"]["containerStatuses"]
    assert slurmd["restartCount"] == 0, "it doesn't crash"
    assert "seltzer: 0 of 1 GPUs: none" in cluster.kubectl("logs", "less-0").stdout
    # A new pod gets its GPU, and a person resumes the node.
    cluster.kubectl("delete", "pod", "less-0")
    until("Slurm accepts the node", lambda: "INVALID_REG" not in cluster.slurm_nodes()["less-0"])
    until("the NodeSet says how", lambda: "seltzer resume" in ready(cluster, "less")["message"])
    cluster.seltzer("resume", "less-0")
    cluster.wait("nodeset/less", "Ready")
    assert srun(cluster, "less", "--gres=gpu:nvidia_sandbox:1", VISIBLE) == ["cuda=0 rocr= shards="]
    cluster.kubectl("delete", "nodeset", "less", "--wait=false")


def test_a_limit_that_no_device_plugin_offers_is_named(cluster: Cluster) -> None:
    add(cluster, "none", {"nvidia.com/mig-7g.80gb": 1})
    until("the NodeSet says why", lambda: ready(cluster, "none").get("reason") == "Unschedulable")
    message = ready(cluster, "none")["message"]
    assert "Insufficient nvidia.com/mig-7g.80gb" in message and "install NVIDIA's device plugin" in message
    cluster.kubectl("delete", "nodeset", "none", "--wait=false")


def test_a_gpu_that_fails_later_drains_its_node(cluster: Cluster) -> None:
    gone = cluster.kubectl(
        "exec", "gpu-1", "-c", "slurmd", "--", "sh", "-c", "ls /dev/nvidia? | head -n 1"
    ).stdout.strip()
    cluster.kubectl("exec", "gpu-1", "-c", "slurmd", "--", "rm", gone)
    until("gpu-1 is drained", lambda: "DRAIN" in cluster.slurm_nodes()["gpu-1"])
    assert reason(cluster, "gpu-1") == f"GPU check: {gone} can't be opened"
    until("the NodeSet says why", lambda: "GPU check" in ready(cluster, "gpu")["message"])
    cluster.kubectl("delete", "pod", "gpu-1")
    there = ("wait", "--for=condition=Ready", "pod/gpu-1", "--timeout=1s")
    until("gpu-1 is back", lambda: cluster.kubectl(*there, check=False).code == 0)
    assert "DRAIN" in cluster.slurm_nodes()["gpu-1"], "a person decides that it is well"
    cluster.seltzer("resume", "gpu-1")
    cluster.wait("nodeset/gpu", "Ready")
    assert cluster.slurm_nodes()["gpu-1"].startswith("IDLE+DYNAMIC")
