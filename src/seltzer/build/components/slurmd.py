"""slurmd: one in each pod of a NodeSet. `build.nodeset` makes the pods."""

from __future__ import annotations

from collections.abc import Sequence

from seltzer.api.slurmcluster import SlurmCluster

from .base import Component, Ingress, Log

NAME = "slurmd"
PORT = 6818


def _namespaces(cluster: SlurmCluster) -> Sequence[str]:
    return sorted({cluster.metadata.namespace, *cluster.spec.node_sets.namespaces})


COMPONENT = Component(
    name=NAME,
    ports={"slurmd": PORT},
    # All ports: the processes of a job connect to each other on ports that aren't known in advance.
    ingress=(Ingress(("slurmctld", "login", "slurmd")),),
    log=Log("slurmd", pod="node"),
    namespaces=_namespaces,
)
