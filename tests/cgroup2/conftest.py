"""A test that fails shows the node's cgroups, its processes and the last lines of slurmd."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress

import pytest
from tests.harness import Cluster

# Each cgroup of the container: what it hands down, its limits and its processes.
LOOK = r"""
cat /proc/1/cgroup
grep cgroup /proc/1/mountinfo
find /sys/fs/cgroup -type d | sort | while read -r each; do
    memory=$(cat "$each/memory.max" "$each/memory.current" 2>/dev/null | tr '\n' ' ')
    processes=$(tr '\n' ' ' <"$each/cgroup.procs" 2>/dev/null)
    echo "$each hands down [$(cat "$each/cgroup.subtree_control")], memory max, current: $memory, processes: $processes"
done
for each in /proc/[0-9]*/status; do awk '/^(Name|State|PPid|Pid):/ {printf "%s ", $2} END {print ""}' "$each"; done
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        with suppress(Exception):
            report.sections.append(("the nodes then", look(cluster)))
    return report


def look(cluster: Cluster) -> str:
    """What can be seen of a cluster's nodes, from outside and from inside."""
    shown = [cluster.kubectl("get", "slurmclusters,nodesets,pods", "--output=wide", check=False).stdout]
    shown += [cluster.run("sh", "-c", "scontrol show nodes; squeue --states=all").stdout]
    for pod in cluster.pods("cpu"):
        for words in (
            ("exec", pod, "-c", "slurmd", "--", "sh", "-c", LOOK),
            ("logs", pod, "-c", "slurmd", "--tail=60"),
        ):
            answer = cluster.kubectl(*words, check=False)
            shown.append(f"--- {pod}: {words[0]}\n{answer.stdout}{answer.stderr}")
    return "\n".join(shown)
