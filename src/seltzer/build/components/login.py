"""Login pods: sshd for the users, and sackd, which signs their requests to Slurm."""

from __future__ import annotations

from seltzer.api.labels import LOGIN_CONFIG
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import clients, names, pods, users
from seltzer.build.images import Images
from seltzer.build.names import Manifest
from seltzer.plan.users.accounts import BUILT_IN_USER

from .base import Component, Ingress, Log, deployed

NAME = "login"
PORT = 22
_KEY = "ssh_host_ed25519_key"
_CONFIG = "/etc/seltzer/login"
_MORE_KEYS = "/etc/seltzer/authorized-keys"
_HOST_KEY = "/etc/seltzer/host-key"
_OWN_HOST_KEY = "/run/sshd/host_key"
_LEAVE_SECONDS = 30

# StrictModes would refuse the folders that Kubernetes mounts, because their modes are open to all. It isn't needed: the
# mounts are read-only, and sshd reads no file that belongs to a user.
_SSHD_CONFIG = f"""\
Port {PORT}
HostKey {_OWN_HOST_KEY}
PidFile none
UseDNS no
UsePAM no
StrictModes no
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
AuthorizedKeysFile {users.KEYS_FOLDER}/%u {_MORE_KEYS}/%u
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""

# A copy of the host key: sackd needs the pod's fsGroup, which makes all mounted Secrets readable for that group, and
# sshd refuses a host key that others can read.
# PerSourcePenalties=no: sshd would block an address after failed logins. Behind a Service, a load balancer or a
# forwarded port all users share one address, also with probes that only connect. Keys can't be guessed, and blocking
# gains nothing. OpenSSH before 9.8 doesn't know the option and exits: `sshd -t` finds out.
_START = f"""\
umask 077 && cat {_HOST_KEY}/{_KEY} >{_OWN_HOST_KEY} || exit
set -- -f {_CONFIG}/sshd_config -o PerSourcePenalties=no
/usr/sbin/sshd -t "$@" 2>/dev/null || set -- -f {_CONFIG}/sshd_config
exec /usr/sbin/sshd -D -e "$@"
"""

# Until sackd has both, every Slurm command fails, and users who log in would think that there is no cluster.
_FETCHED = ["/bin/sh", "-c", "test -S /run/slurm/sack.socket && test -e /run/slurm/conf/slurm.conf"]


def applied(cluster: SlurmCluster, images: Images) -> list[Manifest]:
    """The managed objects. With 0 replicas all of them exist, without pods."""
    name = COMPONENT.named(cluster)
    login = cluster.spec.login
    config_map = names.manifest("ConfigMap", "v1", cluster, NAME, name)
    return [
        pods.service_account(cluster, NAME, name),
        {**config_map, "data": {"sshd_config": _SSHD_CONFIG}},
        _service(cluster),
        pods.deployment(cluster, NAME, name, login.replicas, _pod(cluster, images)),
    ]


def _service(cluster: SlurmCluster) -> Manifest:
    service = cluster.spec.login.service
    head = names.manifest("Service", "v1", cluster, NAME, COMPONENT.named(cluster), annotations=service.annotations)
    port = {"name": "ssh", "port": PORT, "protocol": "TCP", "targetPort": "ssh"}
    return {**head, "spec": {"type": service.type, "selector": names.selector(cluster, NAME), "ports": [port]}}


def _pod(cluster: SlurmCluster, images: Images) -> Manifest:
    spec = {
        "serviceAccountName": COMPONENT.named(cluster),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": pods.spread(names.selector(cluster, NAME)),
        "securityContext": {"fsGroup": pods.SLURM_USER, **pods.SECCOMP},
        "containers": [_sshd(cluster, images), _sackd(cluster, images)],
        "volumes": _volumes(cluster),
    }
    pod = pods.customised(
        spec,
        [cluster.spec.pod_template, cluster.spec.login.pod_template],
        NAME,
        labels=names.labels(cluster, NAME),
        # sshd reads users' keys at each login, but its own configuration only once: a change replaces the pods.
        annotations={names.CHECKSUM: pods.checksum(_SSHD_CONFIG)},
    )
    return {**pod, "spec": pods.leave_dead_nodes(pod["spec"], _LEAVE_SECONDS)}


def _sshd(cluster: SlurmCluster, images: Images) -> Manifest:
    login = cluster.spec.login
    mounts = [
        {"name": "slurm", "mountPath": "/run/slurm", "readOnly": True},
        {"name": "config", "mountPath": _CONFIG, "readOnly": True},
        {"name": "host-key", "mountPath": _HOST_KEY, "readOnly": True},
        {"name": "user-keys", "mountPath": users.KEYS_FOLDER, "readOnly": True},
        users.mount(),
    ]
    if login.authorized_keys_secret:
        mounts.append({"name": "authorized-keys", "mountPath": _MORE_KEYS, "readOnly": True})
    return {
        "name": NAME,
        "image": login.image or images.of(NAME),
        "imagePullPolicy": images.pull_policy,
        "command": ["/bin/sh", "-c", _START],
        "ports": [{"name": "ssh", "containerPort": PORT, "protocol": "TCP"}],
        # No readiness probe: once sshd listens it keeps listening, and a probe every second would fill its log.
        "startupProbe": {"tcpSocket": {"port": "ssh"}, "periodSeconds": 1, "failureThreshold": 60},
        "resources": pods.resources(login.resources, cpu="20m", memory="32Mi"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            # To switch to the user who logs in, to give them a terminal (sshd refuses without an audit record), to
            # confine its own unauthenticated part with chroot, and to listen on port 22.
            "capabilities": {
                "drop": ["ALL"],
                "add": ["AUDIT_WRITE", "CHOWN", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"],
            },
        },
        "volumeMounts": mounts,
    }


def _sackd(cluster: SlurmCluster, images: Images) -> Manifest:
    """Fetches the configuration and signs the users' requests. Users never see the key."""
    user = pods.SLURM_USER
    return {
        "name": "sackd",
        "image": cluster.spec.login.image or images.of(NAME),
        "imagePullPolicy": images.pull_policy,
        "command": clients.after_slurmctld("/usr/sbin/sackd", "-D", *clients.conf_server(cluster)),
        "env": clients.environment(cluster),
        "startupProbe": {"exec": {"command": _FETCHED}, "periodSeconds": 1, "failureThreshold": 3600},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "lifecycle": pods.ended_by_interrupt(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, **pods.NO_ROOT},
        "volumeMounts": [
            {"name": "keys", "mountPath": "/etc/slurm", "readOnly": True},
            {"name": "slurm", "mountPath": "/run/slurm"},
            users.mount(),
        ],
    }


def _volumes(cluster: SlurmCluster) -> list[Manifest]:
    volumes: list[Manifest] = [
        pods.secret_volume("keys", names.keys(cluster), 0o440, names.SLURM_KEY),
        {"name": "slurm", "emptyDir": {}},
        {"name": "config", "configMap": {"name": COMPONENT.named(cluster), "defaultMode": 0o444}},
        pods.secret_volume("host-key", COMPONENT.named(cluster), 0o400, _KEY),
        users.cluster_volume(cluster),
        # sshd reads the keys as the user who logs in.
        users.keys_volume(cluster),
    ]
    more = cluster.spec.login.authorized_keys_secret
    if more:
        # Under the user's name, so that they open no other account. Optional: while the Secret is missing, `user` can
        # log in with the other keys.
        volume = pods.secret_volume("authorized-keys", more.name, 0o444)
        items = [{"key": "authorized_keys", "path": BUILT_IN_USER.name}]
        volumes.append({**volume, "secret": {**volume["secret"], "items": items, "optional": True}})
    return volumes


def _unwanted(cluster: SlurmCluster) -> str:
    return "spec.login.replicas is 0" if cluster.spec.login.replicas == 0 else ""


COMPONENT = Component(
    name=NAME,
    ports={"ssh": PORT},
    ingress=(
        # From anywhere: a key is enough to log in.
        Ingress(ports=("ssh",)),
        # srun and sackd listen for answers on ports that they choose.
        Ingress(("slurmctld", "slurmd")),
    ),
    log=Log(NAME),
    applied=applied,
    # The key that identifies all login pods to their users' ssh.
    secret={_KEY: "openssh-ed25519"},
    config_annotation=LOGIN_CONFIG,
    condition=deployed(NAME, "LoginReady", "people can log in"),
    unwanted=_unwanted,
)
