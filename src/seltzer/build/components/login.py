"""Login pods: sshd for the users, and sackd, which signs their requests to Slurm.

`spec.login` and each item of `spec.logins` is a set of login pods: a Deployment and a Service of its own. The pods of a
set carry its name as their component: `login`, or `login-<name>`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from importlib import resources as files

from seltzer.api.common import seconds
from seltzer.api.core import Secret
from seltzer.api.labels import LOGIN_CONFIG
from seltzer.api.login import LoginPods, SecretRef
from seltzer.api.slurmcluster import SlurmCluster
from seltzer.build import clients, names, node_names, pods, sshd, users, volumes
from seltzer.build.images import Images
from seltzer.build.names import Manifest
from seltzer.build.sshd import CONFIG, MAKE_HOME, OWN_HOST_KEY, PORT
from seltzer.plan.cluster import deployment_status
from seltzer.plan.cluster.cluster_plan import ClusterObservation
from seltzer.plan.conditions import Finding
from seltzer.plan.users.accounts import BUILT_IN_USER

from .base import Component, Condition, Ingress, Log

__all__ = ["COMPONENT", "MAKE_HOME", "NAME", "OWN_HOST_KEY", "PORT", "applied", "host_key", "label", "scripts", "sets"]

NAME = "login"
_READY = "LoginReady"
_KEY = "ssh_host_ed25519_key"
_HOST_KEY = "/etc/seltzer/host-key"
_LEAVE_SECONDS = 30

# How long sshd and sackd may take to end once nobody is logged in.
_GRACE = 30

# Scripts of the pods, by their names in the ConfigMap.
_SCRIPTS = {"make-home": "make_home.sh", "motd": "motd.sh", "leave": "leave.sh"}
_GREETING = f'case $- in *i*) [ -e ~/.hushlogin ] || [ -n "$TMUX" ] || sh {CONFIG}/motd ;; esac'

# A copy of the host key: sshd refuses one that others can read, as Kubernetes makes it where a podTemplate has an
# fsGroup.
# PerSourcePenalties=no: sshd would block an address after failed logins. Behind a Service, a load balancer or a
# forwarded port all users share one address, also with probes that only connect. Keys can't be guessed, and blocking
# gains nothing. OpenSSH before 9.8 doesn't know the option and exits: `sshd -t` finds out.
_START = f"""\
(umask 077 && cat {_HOST_KEY}/{_KEY} >{OWN_HOST_KEY}) || exit
cat {CONFIG}/pam >/etc/pam.d/sshd
echo '{_GREETING}' >/etc/profile.d/seltzer.sh
ulimit -S -l "$(ulimit -H -l)"
set -- -f {CONFIG}/sshd_config -o PerSourcePenalties=no
/usr/sbin/sshd -t "$@" 2>/dev/null || set -- -f {CONFIG}/sshd_config
exec /usr/sbin/sshd -D -e "$@"
"""

# sackd outlives the sessions: without it no Slurm command works. While sshd runs, it listens.
_SSHD_LISTENS = f"grep -qE ':{PORT:04X} [0-9A-F]+:[0-9A-F]+ 0A ' /proc/net/tcp /proc/net/tcp6"
_AFTER_SSHD = f"while {_SSHD_LISTENS}; do sleep 1; done; kill -INT 1"

# Until sackd has both, every Slurm command fails, and users who log in would think that there is no cluster.
_FETCHED = ["/bin/sh", "-c", "test -S /run/slurm/sack.socket && test -e /run/slurm/conf/slurm.conf"]


@dataclass(frozen=True)
class LoginDeployment:
    """A set of login pods of a cluster. The label is the component of its pods."""

    cluster: SlurmCluster
    label: str
    spec: LoginPods

    @property
    def name(self) -> str:
        """The name of its objects."""
        return names.of_component(self.cluster, self.label)

    @property
    def selector(self) -> dict[str, str]:
        return names.selector(self.cluster, self.label)

    @property
    def files(self) -> dict[str, str]:
        """What the pods mount of sshd's configuration."""
        return sshd.files(self.cluster, self.spec)


def sets(cluster: SlurmCluster) -> list[LoginDeployment]:
    """All sets of login pods; that of `spec.login` is the first."""
    more = (LoginDeployment(cluster, label(each.name), each) for each in cluster.spec.logins)
    return [LoginDeployment(cluster, NAME, cluster.spec.login), *more]


def label(login_set: str) -> str:
    """The component that the pods of an item of `spec.logins` are labelled with."""
    return f"{NAME}-{login_set}"


def applied(cluster: SlurmCluster, images: Images) -> list[Manifest]:
    """The managed objects. A set with 0 replicas has all of them, without pods."""
    account = pods.service_account(cluster, NAME, COMPONENT.named(cluster))
    return [account, *(manifest for each in sets(cluster) for manifest in _of_set(each, images))]


def scripts() -> dict[str, str]:
    """The scripts of the login pods, by name."""
    folder = files.files("seltzer.build")
    return {name: folder.joinpath(file).read_text() for name, file in _SCRIPTS.items()}


def _of_set(login: LoginDeployment, images: Images) -> list[Manifest]:
    config_map = names.manifest("ConfigMap", "v1", login.cluster, login.label, login.name)
    deployment = pods.deployment(login.cluster, login.label, login.name, login.spec.replicas, _pod(login, images))
    return [{**config_map, "data": {**login.files, **scripts()}}, _service(login), deployment]


def _service(login: LoginDeployment) -> Manifest:
    service = login.spec.service
    head = names.manifest("Service", "v1", login.cluster, login.label, login.name, annotations=service.annotations)
    port = {"name": "ssh", "port": PORT, "protocol": "TCP", "targetPort": "ssh"}
    return {**head, "spec": {"type": service.type, "selector": login.selector, "ports": [port]}}


def _pod(login: LoginDeployment, images: Images) -> Manifest:
    cluster = login.cluster
    spec = {
        "serviceAccountName": COMPONENT.named(cluster),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": seconds(login.spec.session_timeout) + _GRACE,
        "affinity": pods.spread(login.selector),
        # No fsGroup: Kubernetes would give everybody's files on the home volume to that group.
        "securityContext": dict(pods.SECCOMP),
        "initContainers": [_key(login, images)],
        "containers": [_sshd(login, images), _sackd(login, images)],
        "volumes": _volumes(login),
    }
    pod = pods.customised(
        spec,
        [cluster.spec.pod_template, login.spec.pod_template],
        NAME,
        labels=names.labels(cluster, login.label),
        # sshd reads users' keys at each login, but its own configuration only once: a change replaces the pods.
        annotations={names.CHECKSUM: pods.checksum(*login.files.values())},
    )
    spec = node_names.searched(pod["spec"], cluster, images)
    return {**pod, "spec": pods.leave_dead_nodes(spec, _LEAVE_SECONDS)}


def _image(login: LoginDeployment, images: Images) -> dict[str, str]:
    return {"image": login.spec.image or images.of(NAME), "imagePullPolicy": images.pull_policy}


def _sshd(login: LoginDeployment, images: Images) -> Manifest:
    mounts = [
        {"name": "slurm", "mountPath": "/run/slurm", "readOnly": True},
        {"name": "config", "mountPath": CONFIG, "readOnly": True},
        {"name": "host-key", "mountPath": _HOST_KEY, "readOnly": True},
        {"name": "user-keys", "mountPath": users.KEYS_FOLDER, "readOnly": True},
        users.mount(),
    ]
    if _more_keys(login.cluster):
        mounts.append({"name": "authorized-keys", "mountPath": sshd.MORE_KEYS, "readOnly": True})
    mounts += [mount for _, mount in volumes.of_login(login.cluster)]
    leave = ["/bin/sh", f"{CONFIG}/leave", str(seconds(login.spec.session_timeout))]
    return {
        "name": NAME,
        **_image(login, images),
        "command": ["/bin/sh", "-c", _START],
        "ports": [{"name": "ssh", "containerPort": PORT, "protocol": "TCP"}],
        # No readiness probe: once sshd listens it keeps listening, and a probe every second would fill its log.
        "startupProbe": {"tcpSocket": {"port": "ssh"}, "periodSeconds": 1, "failureThreshold": 60},
        "resources": pods.resources(login.spec.resources, cpu="20m", memory="32Mi"),
        "lifecycle": {"preStop": {"exec": {"command": leave}}},
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


def _key(login: LoginDeployment, images: Images) -> Manifest:
    """Copies Slurm's key for sackd, which accepts only a key that nobody else can read, and isn't root."""
    user = pods.SLURM_USER
    copy = f"umask 377 && cat /keys/{names.SLURM_KEY} >/copy/{names.SLURM_KEY} && chown {user}:{user} /copy/*"
    return {
        "name": "key",
        **_image(login, images),
        # A container that is started again finds its copy.
        "command": ["/bin/sh", "-c", f"rm -f /copy/*; {copy}"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {**pods.NO_ROOT, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
        "volumeMounts": [
            {"name": "keys", "mountPath": "/keys", "readOnly": True},
            {"name": "sack-key", "mountPath": "/copy"},
        ],
    }


def _sackd(login: LoginDeployment, images: Images) -> Manifest:
    """Fetches the configuration and signs the users' requests. Users never see the key."""
    user = pods.SLURM_USER
    return {
        "name": "sackd",
        **_image(login, images),
        "command": clients.after_slurmctld("/usr/sbin/sackd", "-D", *clients.conf_server(login.cluster)),
        "env": clients.environment(login.cluster),
        "startupProbe": {"exec": {"command": _FETCHED}, "periodSeconds": 1, "failureThreshold": 3600},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", _AFTER_SSHD]}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, **pods.NO_ROOT},
        "volumeMounts": [
            {"name": "sack-key", "mountPath": "/etc/slurm", "readOnly": True},
            {"name": "slurm", "mountPath": "/run/slurm"},
            users.mount(),
        ],
    }


def _volumes(login: LoginDeployment) -> list[Manifest]:
    cluster = login.cluster
    found: list[Manifest] = [
        pods.secret_volume("keys", names.keys(cluster), 0o400, names.SLURM_KEY),
        {"name": "sack-key", "emptyDir": {"medium": "Memory"}},
        {"name": "slurm", "emptyDir": {}},
        {"name": "config", "configMap": {"name": login.name, "defaultMode": 0o444}},
        # One host key for all sets.
        pods.secret_volume("host-key", COMPONENT.named(cluster), 0o400, _KEY),
        users.cluster_volume(cluster),
        # sshd reads the keys as the user who logs in.
        users.keys_volume(cluster),
        *(volume for volume, _ in volumes.of_login(cluster)),
    ]
    if more := _more_keys(cluster):
        # Under the user's name, so that they open no other account. Optional: while the Secret is missing, `user` can
        # log in with the other keys.
        volume = pods.secret_volume("authorized-keys", more.name, 0o444)
        items = [{"key": "authorized_keys", "path": BUILT_IN_USER.name}]
        found.append({**volume, "secret": {**volume["secret"], "items": items, "optional": True}})
    return found


def _more_keys(cluster: SlurmCluster) -> SecretRef | None:
    """The Secret with keys of `user`, who is the cluster's only user then. Users of a source have their own keys."""
    return None if cluster.spec.users.named else cluster.spec.login.authorized_keys_secret


def host_key(secret: Secret) -> bytes:
    """The private key by which ssh knows the login pods, from their Secret."""
    return base64.b64decode(secret.data.get(_KEY, ""))


def _unwanted(cluster: SlurmCluster) -> str:
    if any(each.spec.replicas for each in sets(cluster)):
        return ""
    return "spec.login.replicas is 0"


def _finding(seen: ClusterObservation) -> Finding:
    """Ready while each set that has pods has a ready one."""
    for login in sets(seen.cluster):
        found = deployment_status.ready(seen, login.label, _READY, "people can log in")
        if login.spec.replicas and not found.holds:
            return found
    return Finding(_READY, "True", "Running", "people can log in")


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
    variants=lambda cluster: [label(each.name) for each in cluster.spec.logins],
    applied=applied,
    # The key that identifies all login pods to their users' ssh.
    secret={_KEY: "openssh-ed25519"},
    config_annotation=LOGIN_CONFIG,
    mounts_user_keys=True,
    condition=Condition(_READY, _finding),
    unwanted=_unwanted,
)
