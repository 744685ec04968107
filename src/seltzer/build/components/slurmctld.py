"""slurmctld: one runs, under a guard that elects it, fences its state and enters its address."""

from __future__ import annotations

import json

from seltzer.api.common import seconds
from seltzer.api.labels import HOLD
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import names, pods
from seltzer.build.images import Images
from seltzer.build.names import Manifest
from seltzer.plan.cluster import controller_status
from seltzer.wire import guard_api

from .base import OPERATOR, Component, Condition, Ingress, Log

NAME = "slurmctld"
PORT = 6817
GUARD_PORT = guard_api.PORT
STATE = "/var/spool/slurmctld"
_PORTS = {"slurmctld": PORT, "guard": GUARD_PORT}
_LEAVE_SECONDS = 5
# The guard keeps at most 1 GiB of cores; a pod that exceeds the limit is evicted, so there is room for one more beside.
_RUN_SIZE = "3Gi"


def applied(cluster: SlurmCluster, images: Images) -> list[Manifest]:
    """All that is kept as it is here."""
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
    """What the guard fills in: who changed it back would take the controller away."""
    name = names.controller(cluster)
    # A cluster that is held from its beginning must not run for a moment.
    held = {HOLD: "true"} if cluster.spec.controller.hold else None
    lease = names.manifest("Lease", "coordination.k8s.io/v1", cluster, NAME, name, annotations=held)
    service = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "seltzer.dev"}
    endpoints = names.manifest("EndpointSlice", "discovery.k8s.io/v1", cluster, NAME, name, more_labels=service)
    ports = [{"name": port["name"], "port": port["port"], "protocol": "TCP"} for port in _ports()]
    return [{**lease, "spec": {}}, {**endpoints, "addressType": "IPv4", "ports": ports, "endpoints": []}]


def pod_id(cluster: SlurmCluster, images: Images) -> str:
    """What the controller's pod is known by: it changes when a pod made now would differ from the last."""
    return pods.checksum(json.dumps(pod(cluster, images), sort_keys=True))


def _deployment(cluster: SlurmCluster, images: Images) -> Manifest:
    replicas = 1 + cluster.spec.controller.standby
    deployment = pods.deployment(cluster, NAME, names.controller(cluster), replicas, pod(cluster, images))
    # The old pod first: a volume may be for one pod only.
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
        # No liveness probe: the guard looks after slurmctld, and a kill under load could lose jobs. Readiness is the
        # guard's to tell, since a standby has no slurmctld.
        "readinessProbe": {"httpGet": {"path": guard_api.READY, "port": "guard"}, "periodSeconds": 1},
        "resources": pods.resources(controller.resources, cpu="50m", memory="64Mi"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.NO_ROOT,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/seltzer/config", "readOnly": True},
            {"name": "keys", "mountPath": "/etc/seltzer/keys", "readOnly": True},
            {"name": "slurm", "mountPath": "/etc/slurm"},
            {"name": "state", "mountPath": STATE},
            # Not /run/slurmctld: slurmctld insists that it owns that folder, so it has to make it by itself.
            {"name": "run", "mountPath": "/run"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }
    user = pods.SLURM_USER
    spec = {
        # slurmctld starts only where the host is called what SlurmctldHost says.
        "hostname": names.controller(cluster),
        # Commands in this pod ask the slurmctld in this pod: through the Service they would reach another one, or
        # nobody, since not every network brings a pod's packets back to itself.
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": [names.controller_address(cluster)]}],
        "serviceAccountName": names.controller(cluster),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "topologySpreadConstraints": [_apart(cluster)],
        # It writes its state out when it is asked to end.
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
    """Never on the Kubernetes node of another controller's pod while there is a node without one.

    There also without a standby: adding one later must not change the pod, and so restart slurmctld.
    """
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        # A dead node counts as one without a pod. A standby that replaces one which died there waits for it:
        # beside the active one it would stay, and the next dead node would take both.
        "nodeTaintsPolicy": "Ignore",
        "labelSelector": {"matchLabels": names.selector(cluster, NAME)},
    }


def _env(cluster: SlurmCluster) -> list[Manifest]:
    """`hold` isn't here: whoever is to be held must not be restarted first. The guard reads it from its Lease."""
    name, controller = names.controller(cluster), cluster.spec.controller
    return [
        {"name": "SELTZER_NAMESPACE", "value": cluster.metadata.namespace},
        {"name": "SELTZER_LEASE", "value": name},
        {"name": "SELTZER_ENDPOINTSLICE", "value": name},
        pods.from_field("SELTZER_IDENTITY", "metadata.name"),
        pods.from_field("SELTZER_ADDRESS", "status.podIP"),
        {"name": "SELTZER_LEASE_DURATION", "value": str(seconds(controller.lease_duration))},
        {"name": "SELTZER_KEEP_JOBS", "value": "true" if controller.keep_jobs else "false"},
    ]


def _ports() -> list[Manifest]:
    return [{"name": name, "port": port} for name, port in _PORTS.items()]


def _service(cluster: SlurmCluster) -> Manifest:
    """Without a selector: the guard in charge enters itself, so nobody waits for a probe."""
    head = names.manifest("Service", "v1", cluster, NAME, names.controller(cluster))
    ports = [{**port, "protocol": "TCP", "targetPort": port["port"]} for port in _ports()]
    return {**head, "spec": {"type": "ClusterIP", "ports": ports}}


def _disruption_budget(cluster: SlurmCluster) -> Manifest:
    """Whoever empties nodes takes the controller's pods one after the other, so that one can always take over.

    A controller without a standby may be taken too: it is made anew elsewhere.
    """
    head = names.manifest("PodDisruptionBudget", "policy/v1", cluster, NAME, names.controller(cluster))
    selector = {"matchLabels": names.selector(cluster, NAME)}
    return {**head, "spec": {"maxUnavailable": 1, "selector": selector}}


def _claim(cluster: SlurmCluster) -> Manifest:
    """The state outlives the cluster unless storage.onDelete says otherwise, so nobody owns it."""
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
    """The guard may change its one Lease and its one EndpointSlice, and nothing else."""
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
