"""PyTorch is as fast through Slurm as without it, on a machine with an NVIDIA GPU whose Python has PyTorch."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests import side_by_side
from tests.conftest import NAME
from tests.harness import Cluster, Sandbox, seltzer, succeed

DEVICE, DRIVER = Path("/dev/nvidia0"), Path("/proc/driver/nvidia/gpus")
# The least share of its speed outside of Slurm.
SHARE = 0.98
ROUNDS = 3
LOADER = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}[platform.machine()]
# What another process needs to start the same Python below another root.
PROBE = """
import json, os, sys, torch
torch.zeros(1, device="cuda")
maps = [line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if len(line.split()) == 6]
folders = {os.path.dirname(path) for path in maps if ".so" in os.path.basename(path)}
print(json.dumps({"program": os.path.realpath(sys.executable), "home": sys.base_prefix, "folders": sorted(folders),
                  "path": [os.path.realpath(each) for each in sys.path if each]}))
"""
# The best of ten times a second's worth of products, after the clocks have risen.
BENCH = """
import torch
n, products = 8192, 200
a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
def measure():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(products): a @ b
    end.record()
    torch.cuda.synchronize()
    return 2 * n**3 * products / begin.elapsed_time(end) / 1e9
for _ in range(5): measure()
print(max(measure() for _ in range(10)), torch.cuda.device_count())
"""


@cache
def python() -> dict[str, Any]:
    """How to start the first Python on the PATH that sees the GPU; empty if none does."""
    folders = [os.environ.get("SELTZER_TORCH", ""), *os.environ["PATH"].split(":")]
    for folder in filter(None, folders):
        program = Path(folder) / "python3"
        if program.exists():
            done = subprocess.run([program, "-c", PROBE], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found: dict[str, Any] = json.loads(done.stdout)
                return {**found, "start": str(program)}
    return {}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if not DEVICE.exists():
        pytest.skip(f"this machine has no NVIDIA GPU ({DEVICE})")
    if not python():
        pytest.skip("no python3 on the PATH, or in the folder SELTZER_TORCH, has a PyTorch that sees the GPU")
    name = f"{NAME}-gpu"
    side_by_side.check_room()
    seltzer("sandbox", "down", "--name", name)
    try:
        succeed("sandbox", "up", "--name", name, "--nodes", "1", "--gpus", "real")
        sandbox = Sandbox(name)
        sandbox.seltzer("install")
        cluster = Cluster(sandbox, "gpu", "demo")
        cluster.create_from(Path(__file__).with_name("pytorch.yaml"))
        cluster.wait_ready()
        yield cluster
    finally:
        succeed("sandbox", "down", "--name", name)


def outside(code: str) -> str:
    """What it prints on this machine."""
    done = subprocess.run([python()["start"], "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def inside(cluster: Cluster, code: str, *options: str) -> str:
    """What it prints in a job, by the same Python with the same libraries."""

    def below(*folders: str) -> str:
        return ":".join(f"/machine{folder}" for folder in folders)

    found = python()
    settings = f"PYTHONHOME={below(found['home'])},PYTHONPATH={below(*found['path'])}"
    start = (below(LOADER), "--library-path", below(*found["folders"]), below(found["program"]))
    # A comma separates variables, and none of these paths has one.
    return cluster.login("srun", f"--export=ALL,{settings}", *options, *start, "-c", code, user=user())


def user() -> str:
    """Who may read that Python: root, if it is below a folder that is closed for others."""
    found = python()
    for each in (found["program"], *found["path"]):
        if not all(folder.stat().st_mode & 0o001 for folder in Path(each).parents if folder.exists()):
            return "root"
    return "user"


def test_the_node_has_the_gpu_that_the_driver_names(cluster: Cluster) -> None:
    text = next(DRIVER.glob("*/information")).read_text()
    model = next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Model:"))
    assert cluster.slurm_node("gpu-0")["Gres"] == f"gpu:{model.lower().replace(' ', '_')}:1"


def test_pytorch_sees_no_gpu_in_a_job_that_asks_for_none(cluster: Cluster) -> None:
    code = "import torch; print(torch.cuda.is_available())"
    assert inside(cluster, code).strip() == "False"
    assert inside(cluster, code, "--gres=gpu:1").strip() == "True"


def test_pytorch_is_as_fast_through_slurm_as_without(cluster: Cluster) -> None:
    without, through = [], []
    for _ in range(ROUNDS):  # by turns, since the card becomes warm
        without.append(float(outside(BENCH).split()[0]))
        speed, devices = inside(cluster, BENCH, "--gres=gpu:1").split()
        assert devices == "1"
        through.append(float(speed))
    print(f"TFLOP/s without Slurm {max(without):.0f}, through it {max(through):.0f}")
    assert max(through) >= SHARE * max(without), f"{through} TFLOP/s through Slurm, {without} without"
