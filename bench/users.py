"""What ten thousand users cost: how soon all containers of a small cluster know a change, and what the operator pays.

The floor of a row is the same with ten users, in the same cluster; that of `getent` is a user in the image's own file.
A waiter in each container looks for a name every 50 ms, so that no request to Kubernetes is in the time. Run it with
`make bench`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from contextlib import ExitStack

from bench import process
from bench.rows import Row, report
from tests.harness import Cluster, Sandbox, succeed

from seltzer.build import names
from seltzer.plan.users.listing import FILE
from seltzer.progress import Progress

NAME = "bench"
FEW, RUNS = 10, 3
CONTAINERS = ("slurmctld", "slurmrestd", "login", "sackd", "slurmd")
FIRST_UID = 10_000
_WAIT = 'until getent passwd "$0" >/dev/null; do sleep 0.05; done; date +%s.%N'
_LOOKUPS = 'for i in $(seq 100); do getent passwd "$0" >/dev/null; done'


class People:
    """A cluster whose users are in a ConfigMap."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.cluster = Cluster(sandbox, "bench-users", "demo")

    def start(self) -> None:
        self.cluster.create({"users": {"configMap": {"name": "people"}}}, cpu={"replicas": 2})
        self.write("create", FEW)
        self.cluster.wait_ready()
        self.wait_for(FEW - 1)

    def write(self, verb: str, count: int) -> None:
        """List so many users, each with a key and in two groups. The text is too large for kubectl apply."""
        users = [
            {"name": name(at), "uid": FIRST_UID + at, "groups": ["all"], "authorizedKeys": ["ssh-rsa A"]}
            for at in range(count)
        ]
        text = json.dumps({"users": users, "groups": [{"name": "all", "gid": 3000}]}, separators=(",", ":"))
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "people"},
            "data": {FILE: text},
        }
        words = ("--namespace", self.cluster.namespace, verb, "-f", "-")
        self._sandbox.kubectl(*words, stdin=json.dumps(manifest))

    def containers(self) -> list[tuple[str, str]]:
        return [
            (pod, each["name"])
            for pod, found in self.cluster.pods().items()
            for each in found["spec"]["containers"]
            if each["name"] in CONTAINERS
        ]

    def wait_for(self, last: int) -> None:
        for pod, container in self.containers():
            self.cluster.kubectl("exec", pod, f"--container={container}", "--", "sh", "-c", _WAIT, name(last))

    def change(self, count: int) -> tuple[float, float]:
        """From the change of the list to the last container, and the operator's CPU for it, both in seconds."""
        pid, where = operator(self._sandbox), self.containers()
        words = [*self._sandbox.command_words(), "--namespace", self.cluster.namespace, "exec"]
        with ExitStack() as stack:
            waiters = [
                subprocess.Popen(
                    [*words, pod, f"--container={container}", "--", "sh", "-c", _WAIT, name(count - 1)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for pod, container in where
            ]
            for each in waiters:
                stack.callback(each.kill)
            time.sleep(3)  # until all wait
            began, used = time.time(), process.cpu_seconds(pid)
            self.write("replace", count)
            known = max(float(each.communicate(timeout=180)[0]) for each in waiters)
        time.sleep(3)  # what it still has to write, such as the status
        return known - began, process.cpu_seconds(pid) - used

    def lookup(self, user: str) -> float:
        """Milliseconds of `getent passwd` on a node, the start of the program included."""
        began = time.monotonic()
        self.cluster.kubectl("exec", "cpu-0", "--container=slurmd", "--", "sh", "-c", _LOOKUPS, user)
        return (time.monotonic() - began) * 10


def name(at: int) -> str:
    return f"user{at:05}"


def operator(sandbox: Sandbox) -> int:
    """The process of the operator that leads: the one that has worked most."""
    pods = sandbox.pods(f"app.kubernetes.io/name={names.OPERATOR}", "seltzer-system")
    found = [pid for pod in pods for pid in sandbox.processes_of(pod["metadata"]["name"], "seltzer-system", "operator")]
    return max(found, key=process.cpu_seconds)


def measure(people: People, many: int) -> list[Row]:
    """All users at once, then one more at a time; the fastest counts."""
    few = [people.change(FEW + 1 + at) for at in range(RUNS)]
    least, least_cpu = min(seconds for seconds, _ in few), min(cpu for _, cpu in few)
    all_, all_cpu = people.change(many)
    more = [people.change(many + 1 + at) for at in range(RUNS)]
    title = f"{many:,} users"
    count = len(people.containers())
    last = name(many - 1)
    return [
        Row(f"{title}, all new, until all {count} containers know them", all_, "s", least),
        Row(f"{title}, all new: CPU of the operator", all_cpu, "s", least_cpu),
        Row(f"{title} and one more, until all {count} containers know", min(each for each, _ in more), "s", least),
        Row(f"{title} and one more: CPU of the operator", min(cpu for _, cpu in more), "s", least_cpu),
        Row(f"{title}: getent passwd of the last one", people.lookup(last), "ms", people.lookup("root")),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=10_000, help="how many users to measure with")
    asked = parser.parse_args()
    try:
        succeed("sandbox", "up", "--name", NAME)
        sandbox = Sandbox(NAME)
        sandbox.seltzer("install")
        people = People(sandbox)
        with Progress() as progress:
            with progress.step("a cluster with ten users"):
                people.start()
            with progress.step(f"{asked.users:,} users"):
                rows = measure(people, asked.users)
    finally:
        succeed("sandbox", "down", "--name", NAME)
    report(rows)


if __name__ == "__main__":
    main()
