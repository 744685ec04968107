"""A controller that comes back from the dead changes nothing: not one file of the state, and it acknowledges no job."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.harness import Cluster, Sandbox, until

STATE = "/var/spool/slurmctld"
# Slurm's log and the guard's notes aren't state; a woken slurmctld has the log open and may say that it can't save.
CHECKSUMS = (
    f"cd {STATE} && find . -type f ! -name '*.log*' ! -name 'seltzer.*' ! -name reserve"
    " -exec sha256sum {} + | sort -k2; find . -type d | sort"
)
SUBMIT = "while sleep 0.05; do sbatch --parsable --hold --output=/dev/null --wrap=true; done"


@dataclass(frozen=True)
class Pod:
    """A controller's pod, with its processes as this machine knows them."""

    name: str
    node: str
    guard: int
    slurmctld: int


class Controllers:
    """Two pods on nodes that may die, of which one leads; users are on the third, beside DNS."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def lease(self) -> dict[str, Any]:
        return self.cluster.get(f"lease/{self.cluster.name}-slurmctld")

    @property
    def phase(self) -> str:
        return str(self.lease()["metadata"].get("annotations", {}).get("seltzer.dev/phase", ""))

    def leads(self, pod: str) -> bool:
        found = self.lease()["spec"].get("holderIdentity"), self.phase, self._ready()
        assert self.leader() == pod, f"holder, phase, Ready: {found}"
        return True

    def leader(self) -> str | None:
        """The pod whose slurmctld runs."""
        holder = self.lease()["spec"].get("holderIdentity")
        return str(holder) if self.phase == "running" and holder in self._ready() else None

    def _ready(self) -> list[str]:
        found = self.cluster.sandbox.pods("app.kubernetes.io/component=slurmctld", self.cluster.namespace)
        conditions = {pod["metadata"]["name"]: pod["status"].get("conditions", []) for pod in found}
        return [name for name, each in conditions.items() if {("Ready", "True")} & {_pair(c) for c in each}]

    def both(self) -> tuple[Pod, str]:
        """The one that leads and the name of the one that stands by on the other node, once there are both."""

        def ask() -> tuple[str, str] | None:
            ready, leader = self._ready(), self.leader()
            if not leader or len(ready) != 2:
                return None
            standby = next(name for name in ready if name != leader)
            if self._node(leader) == self._node(standby):  # made while the other node was gone
                self.cluster.kubectl("delete", "pod", standby)
                return None
            return leader, standby

        leader, standby = until("one leads and one stands by", ask)
        return self.pod(leader), standby

    def _node(self, pod: str) -> str:
        return str(self.cluster.get(f"pod/{pod}").get("spec", {}).get("nodeName", ""))

    def pod(self, name: str) -> Pod:
        processes = {word: self._process(name, word) for word in ("seltzer.guard", "slurmctld")}
        return Pod(name, self._node(name), processes["seltzer.guard"], processes["slurmctld"])

    def _process(self, pod: str, word: str) -> int:
        found = self.cluster.sandbox.processes_of(pod, self.cluster.namespace, word)
        return min(found)

    def on(self, pod: str, script: str) -> str:
        return self.cluster.kubectl("exec", pod, "--container=slurmctld", "--", "sh", "-c", script).stdout

    def hold(self, wanted: bool) -> None:
        self.cluster.patch("slurmcluster", self.cluster.name, {"spec": {"controller": {"hold": wanted}}})
        phase = "held" if wanted else "running"
        until(f"slurmctld is {phase}", lambda: self.phase == phase)

    @contextmanager
    def submitting(self) -> Iterator[Callable[[], list[str]]]:
        """Users submit one job after the other; ask for the IDs of those that were acknowledged."""
        login = f"deployment/{self.cluster.name}-login"
        words = [*self.cluster.sandbox.command_words(), "--namespace", self.cluster.namespace, "exec", login]
        command = [*words, "--container=login", "--", "bash", "-c", SUBMIT]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told: list[str] = []

        def read() -> None:
            assert process.stdout
            for line in process.stdout:
                told.append(line.strip())

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield lambda: list(told)
        finally:
            process.kill()
            process.wait()
            self.cluster.run("pkill", "-f", "sbatch --parsable", user="root")
            reader.join()


def _pair(condition: dict[str, Any]) -> tuple[str, str]:
    return condition["type"], condition["status"]


@pytest.fixture(scope="module")
def controllers(installed: Sandbox) -> Iterator[Controllers]:
    cluster = Cluster(installed, "fence", "demo")
    steady = installed.dns_node()
    mortal = [name for name in ("n1", "n2", "n3") if name != steady]
    users = {"podTemplate": {"spec": {"nodeSelector": {"kubernetes.io/hostname": steady}}}}
    place = {"key": "kubernetes.io/hostname", "operator": "In", "values": mortal}
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}
    }
    controller = {
        "standby": 1,
        # On a busy machine, a leader that is alive must not lose its Lease: the next one renames the state.
        "leaseDuration": "10s",
        "storage": {"accessMode": "ReadWriteMany"},
        "podTemplate": {"spec": {"affinity": {"nodeAffinity": affinity}}},
    }
    cluster.create({"controller": controller, "login": users, "rest": users}, cpu={"replicas": 1, **users})
    cluster.wait_ready()
    yield Controllers(cluster)
    for node in mortal:
        installed.command("node", "heal", node)
        installed.wait_for_node(node, "True")
    cluster.delete_later()


def runs(process: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def beside(pod: Pod, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command where a pod's slurmctld is, whatever Kubernetes thinks of it, as Slurm's own user."""
    become = ["nsenter", f"--target={pod.slurmctld}", "--mount", "--net", "--ipc", "--uts", "--", "setpriv"]
    status = Path(f"/proc/{pod.slurmctld}/status").read_text()
    user, group = (
        next(line.split()[1] for line in status.splitlines() if line.startswith(key)) for key in ("Uid", "Gid")
    )
    words = [*become, f"--reuid={user}", f"--regid={group}", "--clear-groups", *command]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": "/etc/slurm/seltzer.local.conf"}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)


def checksums(controllers: Controllers, pod: str) -> str:
    return controllers.on(pod, CHECKSUMS)


def stamps_are_in_order(controllers: Controllers, pod: str) -> None:
    lines = controllers.on(pod, f"cat {STATE}/epoch-*/seltzer.stamps").splitlines()
    epochs = [int(line.split()[1].removeprefix("epoch=")) for line in lines]
    assert len(set(epochs)) > 1 and epochs == sorted(epochs), lines


def test_a_frozen_controller_that_wakes_up_changes_no_state_and_acknowledges_no_job(controllers: Controllers) -> None:
    sandbox = controllers.cluster.sandbox
    first, second = controllers.both()
    sandbox.settle()
    with controllers.submitting() as acknowledged:
        until("jobs are submitted", lambda: len(acknowledged()) > 5)
        sandbox.command("node", "freeze", first.node)
        before = len(acknowledged())
        until("the standby leads", lambda: controllers.leads(second))
        until("it takes jobs", lambda: len(acknowledged()) > before + 5)
    os.kill(
        first.guard, signal.SIGSTOP
    )  # so that nothing but the fence stands between the woken slurmctld and the state
    try:
        controllers.hold(True)
        saved = checksums(controllers, second)
        sandbox.command("node", "heal", first.node)
        answer = beside(first, "sbatch", "--hold", "--output=/dev/null", "--wrap=true")
        assert answer.returncode != 0 and "error" in answer.stderr, f"the woken one took a job: {answer}"
        assert runs(first.slurmctld), "nobody has ended it yet"
    finally:
        os.kill(first.guard, signal.SIGCONT)
    until("its guard has ended it", lambda: not runs(first.slurmctld))
    assert checksums(controllers, second) == saved
    stamps_are_in_order(controllers, second)
    sandbox.wait_for_node(first.node, "True")
    controllers.hold(False)
    jobs = controllers.cluster.jobs()
    assert [job for job in acknowledged() if job not in jobs] == []


def test_a_cut_off_controller_ends_by_itself_and_changes_nothing_when_it_is_back(controllers: Controllers) -> None:
    sandbox = controllers.cluster.sandbox
    first, second = controllers.both()
    sandbox.settle()
    with controllers.submitting() as acknowledged:
        until("jobs are submitted", lambda: len(acknowledged()) > 5)
        sandbox.command("node", "cut", first.node)
        before = len(acknowledged())
        until("the standby leads", lambda: controllers.leads(second))
        until("the other one has seen that its state is gone", lambda: not runs(first.slurmctld))
        until("the standby takes jobs", lambda: len(acknowledged()) > before + 5)
    controllers.hold(True)
    saved = checksums(controllers, second)
    sandbox.command("node", "heal", first.node)
    sandbox.wait_for_node(first.node, "True")
    assert checksums(controllers, second) == saved
    stamps_are_in_order(controllers, second)
    controllers.hold(False)
    jobs = controllers.cluster.jobs()
    assert [job for job in acknowledged() if job not in jobs] == []
