"""Which configurations need no trial."""

from __future__ import annotations

from collections.abc import Iterable

from seltzer.api.common import PodTemplate
from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster


def is_trusted(cluster: SlurmCluster, nodesets: Iterable[NodeSet]) -> bool:
    """Whether neither the configuration nor the pod that reads it contains anything from the user."""
    spec = cluster.spec
    unchanged = PodTemplate()
    return (
        not spec.config
        and not any(nodeset.spec.partition.options for nodeset in nodesets)
        and spec.controller.image is None
        and spec.pod_template == unchanged
        and spec.controller.pod_template == unchanged
    )
