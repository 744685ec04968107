"""slurmctld: one pod runs it. The guard in each pod elects that pod, fences the state and publishes the address."""

from __future__ import annotations

import json

from seltzer.api.common import seconds
from seltzer.api.labels import HOLD
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names, pods, users
from seltzer.build.images import Images
from seltzer.build.names import Manifest
from seltzer.plan.cluster import controller_status
from seltzer.wire import environment, guard_api

from .base import OPERATOR, Component, Condition, Ingress, Log

NAME = "slurmctld"
PORT = 6817
GUARD_PORT = guard_api.PORT
STATE = "/var/spool/slurmctld"
_PORTS = {"slurmctld": PORT, "guard": GUARD_PORT}
_LEAVE_SECONDS = 5
# The guard keeps at most 1 GiB of cores. A pod that exceeds the limit is evicted: leave room for one more core.
_RUN_SIZE = "3Gi"


def applied(cluster: SlurmCluster, images: Images) -> list[Manifest]:
    """The managed objects."""
    name = names.controller(cluster)
    return [
        pods.service_account(cluster, NAME, name),
        _role(cluster),
        _role_binding(cluster),
        _claim(cluster),
        _service(cluster),
        _disruption_budget(cluster),
        _deployment(cluster, images),
    ]


def created_once(cluster: SlurmCluster) -> list[Manifest]:
    """The objects that the guard updates. Applying them again would take Lease and address from the controller."""
    name = names.controller(cluster)
    # If a cluster is created with `hold`, slurmctld must not run even for a moment.
    held = {HOLD: "true"} if cluster.spec.controller.hold else None
    lease = names.manifest("Lease", "coordination.k8s.io/v1", cluster, NAME, name, annotations=held)
    service = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "seltzer.dev"}
    endpoints = names.manifest("EndpointSlice", "discovery.k8s.io/v1", cluster, NAME, name, more_labels=service)
    ports = [{"name": port["name"], "port": port["port"], "protocol": "TCP"} for port in _ports()]
    return [{**lease, "spec": {}}, {**endpoints, "addressType": "IPv4", "ports": ports, "endpoints": []}]


def pod_id(cluster: SlurmCluster, images: Images) -> str:
    """Identifies the controller's pod template: it changes if a new pod would differ from the existing ones."""
    return pods.checksum(json.dumps(pod(cluster, images), sort_keys=True))


def _deployment(cluster: SlurmCluster, images: Images) -> Manifest:
    replicas = 1 + cluster.spec.controller.standby
    deployment = pods.deployment(cluster, NAME, names.controller(cluster), replicas, pod(cluster, images))
    # The old pod goes first: the volume may allow only one pod.
    deployment["spec"]["strategy"] = {"type": "Recreate"}
    deployment["metadata"]["annotations"] = {names.CONTROLLER_POD: pod_id(cluster, images)}
    return deployment


def pod(cluster: SlurmCluster, images: Images) -> Manifest:
    """Metadata and spec of the controller's pods."""
    controller = cluster.spec.controller
    container = {
        "name": NAME,
        "image": controller.image or images.of(NAME),
        "imagePullPolicy": images.pull_policy,
        "args": ["run"],
        "env": _env(cluster),
        "ports": [{"name": port["name"], "containerPort": port["port"], "protocol": "TCP"} for port in _ports()],
        # No liveness probe: the guard supervises slurmctld, and a kill under load could lose jobs. The guard reports
        # readiness because a standby runs no slurmctld.
        "readinessProbe": {"httpGet": {"path": guard_api.READY, "port": "guard"}, "periodSeconds": 1},
        "resources": pods.resources(controller.resources, cpu="50m", memory="64Mi"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.NO_ROOT,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/seltzer/config", "readOnly": True},
            {"name": "keys", "mountPath": "/etc/seltzer/keys", "readOnly": True},
            {"name": "slurm", "mountPath": "/etc/slurm"},
            {"name": "state", "mountPath": STATE},
            # Not /run/slurmctld: slurmctld has to own that folder, and therefore creates it itself.
            {"name": "run", "mountPath": "/run"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            users.mount(),
        ],
    }
    user = pods.SLURM_USER
    spec = {
        # slurmctld starts only on a host with the name in SlurmctldHost.
        "hostname": names.controller(cluster),
        # Commands in this pod reach the slurmctld of this pod. Through the Service they would reach another pod's, or
        # none: not every network delivers a pod's packets back to the pod itself.
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": [names.controller_address(cluster)]}],
        "serviceAccountName": names.controller(cluster),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "topologySpreadConstraints": [_apart(cluster)],
        # slurmctld saves its state when it is terminated.
        "terminationGracePeriodSeconds": 60,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "fsGroupChangePolicy": "OnRootMismatch",
            **pods.SECCOMP,
        },
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": names.config(cluster)}},
            pods.secret_volume("keys", names.keys(cluster), 0o440, names.SLURM_KEY, names.JWT_KEY),
            {"name": "state", "persistentVolumeClaim": {"claimName": names.controller(cluster)}},
            {"name": "slurm", "emptyDir": {}},
            {"name": "run", "emptyDir": {"sizeLimit": _RUN_SIZE}},
            {"name": "tmp", "emptyDir": {}},
            users.cluster_volume(cluster),
        ],
    }
    built = pods.customised(
        spec,
        [cluster.spec.pod_template, controller.pod_template],
        NAME,
        labels=names.labels(cluster, NAME),
    )
    return {**built, "spec": pods.leave_dead_nodes(built["spec"], _LEAVE_SECONDS)}


def _apart(cluster: SlurmCluster) -> Manifest:
    """Keeps the controller's pods on different Kubernetes nodes while there is a node without one.

    Also set without a standby: adding one later must not change the pod template, which would restart slurmctld.
    """
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        # A dead node counts as a node without a pod: the replacement of a standby that died there stays pending until
        # the node is back. Beside the active pod it would stay for good, and one dead node would take both.
        "nodeTaintsPolicy": "Ignore",
        "labelSelector": {"matchLabels": names.selector(cluster, NAME)},
    }


def _env(cluster: SlurmCluster) -> list[Manifest]:
    """Without `hold`, which the guard reads from its Lease: a variable would restart slurmctld before it is held."""
    name, controller = names.controller(cluster), cluster.spec.controller
    return [
        {"name": environment.NAMESPACE, "value": cluster.metadata.namespace},
        {"name": environment.LEASE, "value": name},
        {"name": environment.ENDPOINTSLICE, "value": name},
        pods.from_field(environment.IDENTITY, "metadata.name"),
        pods.from_field(environment.ADDRESS, "status.podIP"),
        {"name": environment.LEASE_DURATION, "value": str(seconds(controller.lease_duration))},
        {"name": environment.KEEP_JOBS, "value": "true" if controller.keep_jobs else "false"},
    ]


def _ports() -> list[Manifest]:
    return [{"name": name, "port": port} for name, port in _PORTS.items()]


def _service(cluster: SlurmCluster) -> Manifest:
    """Without a selector: the active guard writes its own address, and clients needn't wait for a readiness probe."""
    head = names.manifest("Service", "v1", cluster, NAME, names.controller(cluster))
    ports = [{**port, "protocol": "TCP", "targetPort": port["port"]} for port in _ports()]
    return {**head, "spec": {"type": "ClusterIP", "ports": ports}}


def _disruption_budget(cluster: SlurmCluster) -> Manifest:
    """Evictions take the controller's pods one at a time, which leaves one that can take over.

    A controller without a standby can be evicted too: its Deployment creates it again on another node.
    """
    head = names.manifest("PodDisruptionBudget", "policy/v1", cluster, NAME, names.controller(cluster))
    selector = {"matchLabels": names.selector(cluster, NAME)}
    return {**head, "spec": {"maxUnavailable": 1, "selector": selector}}


def _claim(cluster: SlurmCluster) -> Manifest:
    """Without an owner: the state outlives the cluster unless storage.onDelete says otherwise."""
    storage = cluster.spec.controller.storage
    head = names.manifest("PersistentVolumeClaim", "v1", cluster, NAME, names.controller(cluster))
    del head["metadata"]["ownerReferences"]
    spec: Manifest = {
        "accessModes": [storage.access_mode],
        "resources": {"requests": {"storage": str(storage.size)}},
    }
    if storage.class_name:
        spec["storageClassName"] = storage.class_name
    return {**head, "spec": spec}


def _role(cluster: SlurmCluster) -> Manifest:
    """The guard may change its own Lease and EndpointSlice, and nothing else."""
    name = names.controller(cluster)
    may = {"resourceNames": [name], "verbs": ["get", "update", "patch"]}
    rules = [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], **may},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], **may},
    ]
    return {**names.manifest("Role", "rbac.authorization.k8s.io/v1", cluster, NAME, name), "rules": rules}


def _role_binding(cluster: SlurmCluster) -> Manifest:
    name = names.controller(cluster)
    head = names.manifest("RoleBinding", "rbac.authorization.k8s.io/v1", cluster, NAME, name)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": cluster.metadata.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    return {**head, "subjects": [subject], "roleRef": role}


COMPONENT = Component(
    name=NAME,
    ports=_PORTS,
    ingress=(
        Ingress(("slurmrestd", "login", "slurmd"), ("slurmctld",)),
        Ingress((OPERATOR,), ("slurmctld", "guard")),
    ),
    log=Log(NAME, pod="lease"),
    applied=applied,
    created_once=created_once,
    condition=Condition(controller_status.READY, controller_status.ready),
)
