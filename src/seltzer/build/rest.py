"""slurmrestd: a REST API that holds no key; callers bring tokens, and it passes them on."""

from __future__ import annotations

from seltzer.api.slurmcluster import SlurmCluster
from seltzer.slurm import conf

from . import names, pods
from .config import identity
from .images import Images
from .names import PORTS, Manifest

_LEAVE_SECONDS = 5


def applied(cluster: SlurmCluster, images: Images) -> list[Manifest]:
    """All that is kept as it is here."""
    name = names.rest(cluster)
    text = conf.render(conf.Conf.of(identity(cluster)), "How slurmrestd finds slurmctld; all else is the controller's.")
    config_map = names.manifest("ConfigMap", "v1", cluster, "slurmrestd", name)
    service = names.manifest("Service", "v1", cluster, "slurmrestd", name)
    port = {"name": "http", "port": PORTS["slurmrestd"], "protocol": "TCP", "targetPort": "http"}
    return [
        pods.service_account(cluster, "slurmrestd", name),
        {**config_map, "data": {"slurm.conf": text}},
        {**service, "spec": {"type": "ClusterIP", "selector": names.selector(cluster, "slurmrestd"), "ports": [port]}},
        pods.deployment(cluster, "slurmrestd", name, cluster.spec.rest.replicas, _pod(cluster, images, text)),
    ]


def _pod(cluster: SlurmCluster, images: Images, text: str) -> Manifest:
    rest = cluster.spec.rest
    container = {
        "name": "slurmrestd",
        "image": rest.image or images.slurmrestd,
        "imagePullPolicy": images.pull_policy,
        "args": ["-a", "rest_auth/jwt", f"0.0.0.0:{PORTS['slurmrestd']}"],
        "env": [{"name": "SLURM_JWT", "value": "daemon"}],
        "ports": [{"name": "http", "containerPort": PORTS["slurmrestd"], "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
        "resources": pods.resources(rest.resources, cpu="20m", memory="32Mi"),
        "lifecycle": pods.ended_by_interrupt(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.NO_ROOT,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/slurm", "readOnly": True}],
    }
    spec = {
        "serviceAccountName": names.rest(cluster),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": pods.spread(names.selector(cluster, "slurmrestd")),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": pods.REST_USER,
            "runAsGroup": pods.REST_USER,
            **pods.SECCOMP,
        },
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": names.rest(cluster)}}],
    }
    pod = pods.customised(
        spec,
        [cluster.spec.pod_template, rest.pod_template],
        "slurmrestd",
        labels=names.labels(cluster, "slurmrestd"),
        annotations={names.CHECKSUM: pods.checksum(text)},
    )
    return {**pod, "spec": pods.leave_dead_nodes(pod["spec"], _LEAVE_SECONDS)}
