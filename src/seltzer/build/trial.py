"""The trial of a configuration: a pod that starts a scratch slurmctld with it before the roll-out."""

from __future__ import annotations

from typing import Final

from seltzer.api.slurmcluster import SlurmCluster

from . import names, pods
from .components import slurmctld
from .config import Rendered
from .images import Images
from .names import Manifest

COMPONENT: Final = "trial"
"""The component label of the pod and of its ConfigMap."""

# Far longer than a trial takes: the image may have to be pulled first.
_DEADLINE_SECONDS = 600


def trial_id(cluster: SlurmCluster, rendered: Rendered, images: Images) -> str:
    """Identifies a trial of this configuration with the controller's pod template."""
    return pods.checksum(rendered.digest, slurmctld.pod_id(cluster, images))


def trial(cluster: SlurmCluster, rendered: Rendered, images: Images) -> list[Manifest]:
    """A ConfigMap, and a pod that succeeds if slurmctld starts with it.

    The pod is the controller's, with its image and the user's changes, but without sidecars (it would never end), and
    without token, keys and state volume (it must not be taken for the controller, nor touch its state).
    """
    id_ = trial_id(cluster, rendered, images)
    name = names.trial(cluster, id_)
    digest = {names.TRIAL: id_}
    config = names.manifest("ConfigMap", "v1", cluster, COMPONENT, name, more_labels=digest)
    head = names.manifest("Pod", "v1", cluster, COMPONENT, name, more_labels=digest)
    built = slurmctld.pod(cluster, images)
    empty: Manifest = {"emptyDir": {}}
    replaced: dict[str, Manifest] = {"config": {"configMap": {"name": name}}, "keys": empty, "state": empty}
    spec = {
        **built["spec"],
        "automountServiceAccountToken": False,
        "containers": [_trial_container(one) for one in built["spec"]["containers"] if one["name"] == slurmctld.NAME],
        "volumes": [
            {"name": volume["name"], **replaced[volume["name"]]} if volume["name"] in replaced else volume
            for volume in built["spec"].get("volumes", [])
        ],
        "restartPolicy": "Never",
        "activeDeadlineSeconds": _DEADLINE_SECONDS,
        "terminationGracePeriodSeconds": 5,
    }
    metadata = {**built["metadata"], **head["metadata"]}
    metadata["labels"] = {**built["metadata"]["labels"], **head["metadata"]["labels"]}
    return [
        {**config, "data": dict(rendered.files), "immutable": True},
        {**head, "metadata": metadata, "spec": spec},
    ]


def _trial_container(container: Manifest) -> Manifest:
    """The slurmctld container, running a trial: without ports and probes."""
    left_out = {"livenessProbe", "ports", "readinessProbe", "startupProbe"}
    return {**{key: value for key, value in container.items() if key not in left_out}, "args": ["try"]}
