"""slurmrestd: a REST API that holds no key; callers bring tokens, and it passes them on."""

from __future__ import annotations

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names, pods, users
from seltzer.build.config import identity
from seltzer.build.images import Images
from seltzer.build.names import Manifest
from seltzer.plan.cluster import deployment_status
from seltzer.plan.cluster.cluster_plan import ClusterObservation
from seltzer.plan.conditions import Finding
from seltzer.slurm import conf

from .base import OPERATOR, Component, Condition, Ingress, Log

NAME = "slurmrestd"
PORT = 6820
_READY = "RestReady"
_USER = 402
_LEAVE_SECONDS = 5


def applied(cluster: SlurmCluster, images: Images) -> list[Manifest]:
    """The managed objects."""
    name = COMPONENT.named(cluster)
    text = conf.render(conf.Conf.of(identity(cluster)), "How slurmrestd finds slurmctld; all else is the controller's.")
    config_map = names.manifest("ConfigMap", "v1", cluster, NAME, name)
    service = names.manifest("Service", "v1", cluster, NAME, name)
    port = {"name": "http", "port": PORT, "protocol": "TCP", "targetPort": "http"}
    return [
        pods.service_account(cluster, NAME, name),
        {**config_map, "data": {"slurm.conf": text}},
        {**service, "spec": {"type": "ClusterIP", "selector": names.selector(cluster, NAME), "ports": [port]}},
        pods.deployment(cluster, NAME, name, cluster.spec.rest.replicas, _pod(cluster, images, text)),
    ]


def _pod(cluster: SlurmCluster, images: Images, text: str) -> Manifest:
    rest = cluster.spec.rest
    container = {
        "name": NAME,
        "image": rest.image or images.of(NAME),
        "imagePullPolicy": images.pull_policy,
        "args": ["-a", "rest_auth/jwt", f"0.0.0.0:{PORT}"],
        "env": [{"name": "SLURM_JWT", "value": "daemon"}],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
        "resources": pods.resources(rest.resources, cpu="20m", memory="32Mi"),
        "lifecycle": pods.ended_by_interrupt(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.NO_ROOT,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/slurm", "readOnly": True}, users.mount()],
    }
    spec = {
        "serviceAccountName": COMPONENT.named(cluster),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": pods.spread(names.selector(cluster, NAME)),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            **pods.SECCOMP,
        },
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": COMPONENT.named(cluster)}},
            users.cluster_volume(cluster),
        ],
    }
    pod = pods.customised(
        spec,
        [cluster.spec.pod_template, rest.pod_template],
        NAME,
        labels=names.labels(cluster, NAME),
        annotations={names.CHECKSUM: pods.checksum(text)},
    )
    return {**pod, "spec": pods.leave_dead_nodes(pod["spec"], _LEAVE_SECONDS)}


def _finding(seen: ClusterObservation) -> Finding:
    """Ready while Slurm answers through it."""
    found = deployment_status.ready(seen, NAME, _READY, "slurmrestd answers")
    if found.holds and seen.slurm.nodes is None:
        why = seen.failure or "it has not been asked yet"
        return Finding(_READY, "Unknown", "Unreachable", f"slurmrestd runs, but Slurm can't be asked: {why}")
    return found


COMPONENT = Component(
    name=NAME,
    ports={"http": PORT},
    ingress=(Ingress((OPERATOR, "login"), ("http",)),),
    log=Log(NAME),
    applied=applied,
    condition=Condition(_READY, _finding),
)
