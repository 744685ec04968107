"""All objects of a SlurmCluster."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import names, network, node_names, volumes
from . import trial as trials
from .components import slurmctld
from .components.base import Component
from .components.table import COMPONENTS
from .config import Rendered
from .images import Images
from .names import Manifest


def applied(cluster: SlurmCluster, images: Images, nodesets: Sequence[NodeSet] = ()) -> list[Manifest]:
    """Objects that are kept in this form by server-side apply, in the order in which to create them.

    Only the Services of nodes depend on the NodeSets: the peers of a policy follow from spec.nodeSets alone.
    """
    objects = [manifest for component in COMPONENTS for manifest in component.applied(cluster, images)]
    return [*network.applied(cluster), *node_names.services(cluster, nodesets), *objects]


def created_once(cluster: SlurmCluster) -> list[Manifest]:
    """Objects that are created if they are missing and never changed, such as the Lease that the guard updates."""
    return [manifest for component in COMPONENTS for manifest in component.created_once(cluster)]


def home(cluster: SlurmCluster) -> list[Manifest]:
    """The claim for the home directories, if we create one: kept like the objects of `applied`."""
    return volumes.home(cluster)


def home_binder(cluster: SlurmCluster, images: Images) -> Manifest:
    """The binder: the pod for which the claim for the home directories is bound."""
    return volumes.binder(cluster, images)


def keys(cluster: SlurmCluster, slurm_key: bytes, jwt_key: bytes) -> Manifest:
    """The Secret with both of Slurm's keys."""
    return _secret(cluster, "config", names.keys(cluster), {names.SLURM_KEY: slurm_key, names.JWT_KEY: jwt_key})


def secret(cluster: SlurmCluster, component: Component, data: Mapping[str, bytes]) -> Manifest:
    """A component's own Secret."""
    return _secret(cluster, component.name, component.named(cluster), data)


def config_map(cluster: SlurmCluster, rendered: Rendered) -> Manifest:
    """The configuration that is rolled out."""
    head = names.manifest(
        "ConfigMap",
        "v1",
        cluster,
        "config",
        names.config(cluster),
        annotations={names.CONFIG: rendered.digest},
    )
    return {**head, "data": dict(rendered.files)}


def trial(cluster: SlurmCluster, rendered: Rendered, images: Images) -> list[Manifest]:
    """A ConfigMap, and a pod that succeeds if slurmctld starts with it."""
    return trials.trial(cluster, rendered, images)


def controller_pod(cluster: SlurmCluster, images: Images) -> str:
    """Identifies the controller's pod template; an annotation of its Deployment has it."""
    return slurmctld.pod_id(cluster, images)


def trial_id(cluster: SlurmCluster, rendered: Rendered, images: Images) -> str:
    """Identifies a trial; a label of its pod has it."""
    return trials.trial_id(cluster, rendered, images)


def _secret(cluster: SlurmCluster, component: str, name: str, data: Mapping[str, bytes]) -> Manifest:
    head = names.manifest("Secret", "v1", cluster, component, name)
    return {**head, "type": "Opaque", "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
