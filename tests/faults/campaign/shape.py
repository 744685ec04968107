"""Where a cluster's pods are: what dies with a fault, and what stays so that it can be measured. Pure.

Everything that a measurement needs is on n1, which no fault touches: login, slurmrestd, the operator, DNS, and a slurmd
that always has room. What a row is about is on the other nodes: slurmctld, or a pool of slurmds. So a row tells what a
fault costs that part, not what it costs the observer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

EVIDENCE = "/evidence"
HOSTNAME = "kubernetes.io/hostname"
STEADY = "n1"
STATE_SIZE = "512Mi"
POOL_NAME = "cpu"


@dataclass(frozen=True)
class Shape:
    """A cluster, and the Kubernetes nodes that it is on."""

    name: str
    """Also its namespace."""
    machines: int
    """How many Kubernetes nodes there are, where the sandbox has as many."""
    pool_dies: bool
    """Whether the slurmds that jobs run on are on the nodes that die; otherwise slurmctld is."""
    replicas: int
    """How many slurmds that is, with how many CPUs each."""
    cpus: int

    def mortal(self, machines: int) -> tuple[str, ...]:
        """The nodes that die, in a sandbox with so many."""
        return tuple(f"n{number}" for number in range(2, 1 + min(machines, self.machines)))


SLURMCTLD = Shape("faults", machines=3, pool_dies=False, replicas=2, cpus=15)
POOL = Shape("pool", machines=5, pool_dies=True, replicas=4, cpus=8)
SHAPES = (SLURMCTLD, POOL)


def cluster(shape: Shape, mortal: Sequence[str]) -> dict[str, Any]:
    """The spec of the SlurmCluster. Jobs that have ended stay known for as long as a repeat may take."""
    storage = {"className": "limited", "accessMode": "ReadWriteMany", "size": STATE_SIZE}
    spec: dict[str, Any] = {
        "controller": {"storage": storage, "podTemplate": {"spec": _where(mortal, not shape.pool_dies)}},
        "rest": {"podTemplate": {"spec": _steady()}},
        "login": {"podTemplate": {"spec": {**_steady(), **_with_evidence("login")}}},
    }
    return {**spec, "config": {"slurm.conf": "MinJobAge=900\n"}} if shape.pool_dies else spec


def nodesets(shape: Shape, mortal: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The pool, and a node for the jobs that measure: Slurm looks at the first hundred waiting jobs only, and those
    have to be among them. Both claim more CPUs than there are, since the jobs sleep."""
    return {
        POOL_NAME: _nodes(shape.replicas, shape.cpus, _where(mortal, shape.pool_dies)),
        "probe": {**_nodes(1, 40, _steady()), "partition": {"options": "PriorityTier=10"}},
    }


def _nodes(replicas: int, cpus: int, where: dict[str, Any]) -> dict[str, Any]:
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": str(cpus), "memory": "2Gi"}}
    return {
        "replicas": replicas,
        "resources": resources,
        "podTemplate": {"spec": {**where, **_with_evidence("slurmd")}},
    }


def _where(mortal: Sequence[str], dies: bool) -> dict[str, Any]:
    if not dies:
        return _steady()
    wanted = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(mortal)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}
    return {"affinity": {"nodeAffinity": required}}


def _steady() -> dict[str, Any]:
    return {"nodeSelector": {HOSTNAME: STEADY}}


def _with_evidence(container: str) -> dict[str, Any]:
    return {
        "volumes": [{"name": "evidence", "persistentVolumeClaim": {"claimName": "evidence"}}],
        "containers": [{"name": container, "volumeMounts": [{"name": "evidence", "mountPath": EVIDENCE}]}],
    }
