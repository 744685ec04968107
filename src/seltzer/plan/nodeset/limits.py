"""Whether the kernel limits jobs on a NodeSet's nodes, where the SlurmCluster has `cgroups: v2`.

A container that can't prepare its cgroups starts no slurmd: it ends, and its last line says why (build/cgroups.sh).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from seltzer.api.core import ContainerStatus, Pod
from seltzer.plan import pod_state
from seltzer.plan.conditions import Finding
from seltzer.slurm import hostlist

TYPE = "LimitsEnforced"
_SAID = re.compile(r"^seltzer: cgroups: (\w+): (.+)$", re.MULTILINE)
_MACHINES = "on their machines"
_INSTEAD = "; or set cgroups: disabled in a new SlurmCluster. docs/clusters.md has examples"
# What to do, by the words that the script says.
_ADVICE = {
    "Version1": "use machines with cgroup v2: boot them with systemd.unified_cgroup_hierarchy=1, or exclude them with "
    "nodeSelector in podTemplate",
    "ReadOnly": "set cgroup_writable = true in a runtime handler of containerd 2.1 or newer "
    "([plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.cgroups]) " + _MACHINES + ", create a RuntimeClass "
    "with that handler, and name it in podTemplate.spec.runtimeClassName of the NodeSet; on GKE, set "
    "writableCgroups: {enabled: true} in the node pool's containerd configuration",
    "NoDelegation": f"run 'mount -o remount,nsdelegate /sys/fs/cgroup' {_MACHINES}; systemd mounts it so by itself",
    "NoControllers": "the kubelet's cgroups must have the controllers cpu, cpuset, memory and pids: add them to "
    f"cgroup.subtree_control of their parents {_MACHINES}",
}


def finding(pods: Sequence[Pod]) -> Finding:
    """The condition of a NodeSet with these pods."""
    failed = {pod.metadata.name: found for pod in pods if (found := failure(pod))}
    if failed:
        reason, fact = failed[min(failed)]
        names = hostlist.fold(sorted(name for name, (each, _) in failed.items() if each == reason))
        advice = _ADVICE.get(reason, "see 'seltzer logs'")
        return Finding(TYPE, "False", reason, f"{names} can't limit jobs and takes none: {fact}; {advice}{_INSTEAD}")
    if any(pod_state.ready(pod) for pod in pods):
        return Finding(TYPE, "True", "Enforced", "the kernel keeps each job to its memory and its cores")
    return Finding(TYPE, "Unknown", "Starting", "no node has started yet")


def failure(pod: Pod) -> tuple[str, str] | None:
    """Why its cgroups can't be prepared, in a word and a sentence; None if they are, or if it isn't known yet."""
    if pod_state.deleting(pod):
        return None
    status = next((each for each in pod.status.container_statuses if each.name == "slurmd"), None)
    return _said(status) if status and not status.ready else None


def _said(status: ContainerStatus) -> tuple[str, str] | None:
    """What the latest run of the container said at its end."""
    ended = status.state.terminated or status.last_state.terminated
    found = _SAID.findall(ended.message) if ended else []
    return found[-1] if found else None
