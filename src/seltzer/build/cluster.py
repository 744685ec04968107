"""All objects of a SlurmCluster, put together."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from seltzer.api.nodeset import NodeSet
from seltzer.api.slurmcluster import SlurmCluster

from . import controller, login, names, network, rest
from .config import Rendered
from .images import Images
from .names import Component, Manifest


def applied(cluster: SlurmCluster, images: Images, nodesets: Sequence[NodeSet] = ()) -> list[Manifest]:
    """What is kept so by server-side apply, in the order in which it is best made.

    It doesn't depend on the NodeSets yet: who may talk to whom follows from spec.nodeSets alone.
    """
    return [
        *network.applied(cluster),
        *controller.applied(cluster, images),
        *rest.applied(cluster, images),
        *login.applied(cluster, images),
    ]


def created_once(cluster: SlurmCluster) -> list[Manifest]:
    """Lease and EndpointSlice, which are made when they are missing and never changed: the guard fills them in."""
    return controller.created_once(cluster)


def keys(cluster: SlurmCluster, slurm_key: bytes, jwt_key: bytes) -> Manifest:
    """The Secret with both of Slurm's keys."""
    return _secret(cluster, "config", names.keys(cluster), {names.SLURM_KEY: slurm_key, names.JWT_KEY: jwt_key})


def host_key(cluster: SlurmCluster, private_key: bytes) -> Manifest:
    """The Secret with the key by which the login pods are known, whichever of them answers."""
    return _secret(cluster, "login", names.login(cluster), {names.HOST_KEY: private_key})


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
    """A ConfigMap, and a Pod that succeeds if slurmctld starts with it."""
    return controller.trial(cluster, rendered, images)


def controller_pod(cluster: SlurmCluster, images: Images) -> str:
    """What the controller's pod is known by, on its Deployment too."""
    return controller.pod_id(cluster, images)


def trial_id(cluster: SlurmCluster, rendered: Rendered, images: Images) -> str:
    """What a trial is known by, on its pod too."""
    return controller.trial_id(cluster, rendered, images)


def _secret(cluster: SlurmCluster, component: Component, name: str, data: Mapping[str, bytes]) -> Manifest:
    head = names.manifest("Secret", "v1", cluster, component, name)
    return {**head, "type": "Opaque", "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
