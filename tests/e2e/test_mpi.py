"""MPI programs form one world across nodes, however they are started, also after a node was replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import hpcc
from tests.harness import Cluster, Sandbox, until

SPACE, NODES = "mpi", 4
# One line per rank: its rank, the size of its world, and a sum to which all ranks contributed.
WORLD = sorted(f"{rank} of {NODES} sum {sum(range(NODES))}" for rank in range(NODES))
ALONE = ["0 of 1 sum 0"] * NODES
HELLO = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d sum %d\n", rank, size, sum);
    return MPI_Finalize();
}
"""
MPI4PY = (
    'python3 -c "from mpi4py import MPI; w = MPI.COMM_WORLD; '
    "print(f'{w.rank} of {w.size} sum {w.allreduce(w.rank)}')\""
)
OFFLINE = Path("/etc/seltzer-offline")
pytestmark = pytest.mark.skipif(
    OFFLINE.exists(), reason="an offline archive has no images with MPI, and can't build them"
)
# More ranks than cores: waiting ranks give way.
YIELD = "export OMPI_MCA_mpi_yield_when_idle=1"


@pytest.fixture(scope="module")
def cluster(installed: Sandbox) -> Iterator[Cluster]:
    for image in ("slurmd-mpi", "login-mpi"):
        installed.command("load", image)
    cluster = Cluster(installed, SPACE, "demo")
    cluster.create_from(Path(__file__).with_name("mpi.yaml"))
    cluster.wait_ready()
    cluster.login("sh", "-c", f"cat >hello.c <<'EOF'\n{HELLO}\nEOF\nmpicc.mpich -o hello hello.c")
    yield cluster
    cluster.delete_later()


def lines(cluster: Cluster, script: str, *options: str) -> list[str]:
    """What a script in an allocation of all nodes, on the login pod, prints about its ranks."""
    command = f"{YIELD}; sbcast --force hello /tmp/hello; {script}"
    allocation = ("salloc", f"--nodes={NODES}", f"--ntasks={NODES}", *options)
    return ranks(cluster.login(*allocation, "timeout", "280", "bash", "-c", command))


def ranks(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if " of " in line and " sum " in line)


STARTS = ("srun --mpi=pmi2 /tmp/hello", "srun /tmp/hello", "mpiexec.mpich /tmp/hello", f"mpirun {MPI4PY}")


@pytest.mark.parametrize("start", STARTS)
def test_ranks_that_a_login_pod_starts_are_one_world(cluster: Cluster, start: str) -> None:
    assert lines(cluster, start) == WORLD


def batch(cluster: Cluster, script: str, deadline: float = 300.0) -> str:
    """What a batch script on all nodes prints."""
    job = cluster.sbatch(
        f"exec >/tmp/mpi.out 2>&1; cd /tmp; {YIELD}; {script}", f"--nodes={NODES}", f"--ntasks={NODES}"
    )
    cluster.wait_for_job(job, "COMPLETED", deadline)
    host = cluster.job(job)["BatchHost"]
    return cluster.kubectl("exec", host, "-c", "slurmd", "--", "cat", "/tmp/mpi.out").stdout


def test_ranks_that_a_batch_job_starts_are_one_world_also_with_a_node_that_was_replaced(cluster: Cluster) -> None:
    before = cluster.pods("cpu")["cpu-1"]["status"]["podIP"]
    cluster.kubectl("delete", "pod", "cpu-1")

    def is_replaced() -> bool:
        pod = cluster.pods("cpu").get("cpu-1")
        return pod is not None and pod["status"].get("podIP", before) != before

    until("cpu-1 is another pod", is_replaced)
    until("cpu-1 is idle", lambda: cluster.slurm_nodes().get("cpu-1", "").startswith("IDLE+DYNAMIC"))
    assert lines(cluster, "srun --mpi=pmi2 /tmp/hello") == WORLD  # also brings the program to the new node
    assert ranks(batch(cluster, "srun --mpi=pmi2 /tmp/hello")) == WORLD
    assert ranks(batch(cluster, "mpiexec.mpich /tmp/hello")) == WORLD
    assert ranks(batch(cluster, f"mpirun {MPI4PY}")) == WORLD


def test_open_mpi_under_srun_is_many_worlds_and_says_so(cluster: Cluster) -> None:
    answer = cluster.run("srun", f"--nodes={NODES}", "sh", "-c", MPI4PY)
    assert ranks(answer.stdout) == ALONE
    assert "singletons" in answer.stdout + answer.stderr


def test_hpcc_solves_its_equations_and_measures_the_network(cluster: Cluster) -> None:
    found = hpcc.results(batch(cluster, hpcc.script("mpirun", 2, 2), 760))
    assert (found["Success"], found["CommWorldProcs"]) == ("1", f"{NODES}")
    assert float(found["RandomlyOrderedRingBandwidth_GBytes"]) > 0


def test_shared_memory_is_half_of_the_nodes_memory_and_sticky(cluster: Cluster) -> None:
    shm = cluster.login("srun", "sh", "-c", "df --output=size /dev/shm | tail -n 1; stat -c %a /dev/shm")
    assert shm.split() == [f"{256 * 1024}", "1777"]
    # Two ranks of one node.
    script = "srun --nodes=1 --ntasks=2 --overcommit --mpi=pmi2 /tmp/hello"
    assert lines(cluster, script) == ["0 of 2 sum 1", "1 of 2 sum 1"]


# cgroup v2, or v1.
USED = "cat /sys/fs/cgroup/memory.current /sys/fs/cgroup/memory/memory.usage_in_bytes 2>/dev/null | head -n 1"


def test_what_is_in_shared_memory_counts_as_memory_of_the_node(cluster: Cluster) -> None:
    script = f"{USED}; head -c 100M /dev/zero >/dev/shm/counts; {USED}; rm /dev/shm/counts"
    before, after = map(int, cluster.login("srun", "--nodes=1", "sh", "-c", script).split())
    assert after - before > 90 << 20


# As torchrun does it: all know the first node's short name, and rank 0 publishes its own full name there.
RENDEZVOUS = r"""
import os, socket, sys, time
rank, head = int(os.environ["SLURM_PROCID"]), sys.argv[1]
others = int(os.environ["SLURM_NTASKS"]) - 1
def dial(name, port):
    for _ in range(300):
        try:
            return socket.create_connection((name, port))
        except ConnectionRefusedError:
            time.sleep(0.1)
if rank == 0:
    store, master = (socket.create_server(("", port)) for port in (29500, 29501))
    for _ in range(others):
        with store.accept()[0] as peer:
            peer.sendall(socket.getfqdn().encode())
    seen = set()
    for _ in range(others):
        with master.accept()[0] as peer:
            seen.add(socket.getfqdn(peer.getpeername()[0]))
            peer.sendall(b"ok")
    print(f"{len(seen)} peers with full names:", all("." in each for each in seen))
else:
    with dial(head, 29500) as store:
        name = store.recv(1000).decode()
    with dial(name, 29501) as master:
        print("." in name, master.recv(10).decode())
"""


def test_ranks_meet_at_the_full_name_that_the_first_one_publishes(cluster: Cluster) -> None:
    script = f"python3 - \"$(scontrol show hostnames | head -n 1)\" <<'EOF'\n{RENDEZVOUS}\nEOF"
    wrapped = f"cat >/tmp/rank.sh <<'DONE'\n{script}\nDONE\nsrun --input=none bash -c \"$(cat /tmp/rank.sh)\""
    answer = cluster.login("salloc", f"--nodes={NODES}", f"--ntasks={NODES}", "timeout", "280", "bash", "-c", wrapped)
    assert sorted(answer.splitlines()) == [f"{NODES - 1} peers with full names: True", *["True ok"] * (NODES - 1)]
