"""What Slurm and the network of pods cost MPI: HPCC as a job on two nodes, and the same program without Slurm.

That runs with the same files, once in the network of the same pods, which shows what Slurm costs, and once in the
network of their machines, which shows what pods cost, too. All alternate. Run it with `make bench`.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.rows import Row, report
from tests import hpcc
from tests.harness import COMMAND_DEADLINE, Cluster, Sandbox, succeed

from seltzer_sandbox import commands

NAME = "bench"
RUNS = 5
RESULTS = (
    ("AvgPingPongLatency_usec", "HPCC, two nodes: ping-pong latency", "us"),
    ("AvgPingPongBandwidth_GBytes", "HPCC, two nodes: ping-pong bandwidth", "GB/s"),
    ("NaturallyOrderedRingBandwidth_GBytes", "HPCC, two nodes: bandwidth of a ring", "GB/s"),
)
USER = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "env", "--ignore-environment")
ENVIRONMENT = ("PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8")
# The interface of the pod, and of the machine. Two daemons that know nothing of each other would bind to the same core.
LINK = "--mca btl_tcp_if_include eth0 --bind-to none"
ORDER = "/tmp/order"  # noqa: S108
# What mpirun starts instead of ssh: `Machines.direct` carries it out.
AGENT = f'#!/bin/sh\nshift\necho "$*" >{ORDER}.half && mv {ORDER}.half {ORDER}\n'
NODE = {
    "replicas": 2,
    "image": "seltzer.dev/slurmd-mpi:dev",
    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": 2, "memory": "1Gi"}},
}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "slurmd"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}


@dataclass(frozen=True)
class Machine:
    """A slurmd pod without its Slurm, or the machine on which it runs with the files of the pod."""

    address: str
    network: int
    """A process that has the network."""
    slurmd: int

    @property
    def files(self) -> Path:
        """Those that the pod sees."""
        return Path(f"/proc/{self.slurmd}/root")

    def words(self, command: str) -> list[str]:
        """A shell command. Without a host name of its own, mpirun would take both for the same machine."""
        enter = ["nsenter", f"--target={self.slurmd}", "--mount", "--ipc", "--pid", "--uts"]
        return [
            *enter,
            f"--net=/proc/{self.network}/ns/net",
            "--",
            *USER,
            *ENVIRONMENT,
            "sh",
            "-c",
            f"cd /tmp && {command}",
        ]


def machines(cluster: Cluster, name: str) -> tuple[Machine, Machine]:
    """The pod, and its machine."""
    pod = cluster.get(f"pod/{name}")
    node = commands.find(NAME).registry.get(pod["spec"]["nodeName"])
    assert node
    slurmd = cluster.sandbox.processes_of(name, cluster.namespace, "/usr/sbin/slurmd")[0]
    return Machine(pod["status"]["podIP"], slurmd, slurmd), Machine(pod["status"]["hostIP"], node.pid, slurmd)


def direct(first: Machine, second: Machine) -> str:
    """What HPCC prints without Slurm."""
    order = first.files / ORDER.lstrip("/")
    for machine in (first, second):  # mpirun's daemon looks for it, too, although it starts nothing
        agent = machine.files / "tmp/agent"
        agent.write_text(AGENT)
        agent.chmod(0o755)
    order.unlink(missing_ok=True)
    start = f"mpirun -n 2 --host {first.address}:1,{second.address}:1 --prtemca plm_ssh_agent /tmp/agent {LINK}"
    program = subprocess.Popen(first.words(hpcc.script(start, 1, 2)), stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + COMMAND_DEADLINE
    while not order.exists():
        assert program.poll() is None and time.monotonic() < end, "mpirun started nothing on the second machine"
        time.sleep(0.05)
    with subprocess.Popen(second.words(order.read_text())) as daemon:
        try:
            return program.communicate(timeout=300)[0]
        finally:
            for each in (program, daemon):
                with suppress(ProcessLookupError):
                    os.kill(each.pid, 9)


def job(cluster: Cluster) -> str:
    """What HPCC prints as a job."""
    script = f"exec >/tmp/hpcc.out 2>&1; cd /tmp; {hpcc.script(f'mpirun {LINK}', 1, 2)}"
    number = cluster.sbatch(script, "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2")
    cluster.wait_for_job(number, "COMPLETED", 300)
    host = cluster.job(number)["BatchHost"]
    return cluster.kubectl("exec", host, "--container=slurmd", "--", "cat", "/tmp/hpcc.out").stdout  # noqa: S108


def measured(printed: str) -> dict[str, float]:
    found = hpcc.results(printed)
    assert found.get("Success") == "1", printed[-2000:]
    return {key: float(found[key]) for key, *_ in RESULTS}


def best(runs: list[dict[str, float]], key: str) -> float:
    """Whatever disturbs a run makes it slower."""
    found = [run[key] for run in runs]
    return min(found) if "Latency" in key else max(found)


def main() -> None:
    try:
        succeed("sandbox", "up", "--name", NAME)
        sandbox = Sandbox(NAME)
        sandbox.seltzer("install")
        sandbox.command("load", "slurmd-mpi")
        cluster = Cluster(sandbox, NAME, "demo")
        cluster.create(cpu={**NODE, "podTemplate": {"spec": {"affinity": APART}}})
        cluster.wait_ready()
        pods, nodes = zip(*(machines(cluster, name) for name in ("cpu-0", "cpu-1")), strict=True)
        jobs, beside_pods, beside_nodes = [], [], []
        for _ in range(RUNS):
            jobs.append(measured(job(cluster)))
            beside_pods.append(measured(direct(*pods)))
            beside_nodes.append(measured(direct(*nodes)))
    finally:
        succeed("sandbox", "down", "--name", NAME)
    rows = []
    for floor, floors in (("the same pods without Slurm", beside_pods), ("their machines without pods", beside_nodes)):
        rows += [
            Row(f"{name}, beside {floor}", best(jobs, key), unit, best(floors, key)) for key, name, unit in RESULTS
        ]
    report(rows)


if __name__ == "__main__":
    main()
